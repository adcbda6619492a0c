"""Accuracy in single precision of the two forms that a Gaussian belief could have.

    python benchmarks/belief_forms.py

A Kalman filter in float32 carries the covariance (Joseph's form of the update) or a triangular
root of it (`filtrax`). Both are compared with a Kalman filter in float64: the largest error of a
mean over all steps and components, in standard deviations of the float64 filter, and the largest
relative error of a standard deviation. Means and readings are rounded to float32 beforehand, so
that all filters are told the same numbers. Times of both forms are those of `benchmarks/core.py`
before and after filtrax changed from one to the other.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import filtrax

STEPS = 2000


@dataclasses.dataclass(frozen=True)
class System:
    """A linear system x' = F x + q, z = H x + r, and the prior of x."""

    F: np.ndarray
    H: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def oscillators(count: int, observed: int, process: float, ratio: float, mean: float) -> System:
    """Damped oscillators of different speeds, of which the positions of the first are seen."""
    turns = [0.05 * (k + 1) for k in range(count)]
    blocks = [0.999 * np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in turns]
    F = np.zeros((2 * count, 2 * count))
    for k, block in enumerate(blocks):
        F[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = block
    H = np.zeros((observed, 2 * count))
    for row in range(observed):
        H[row, 2 * row :: 2] = 1.0
    Q = process**2 * np.eye(2 * count)
    start = np.full(2 * count, mean)
    return System(F, H, Q, np.eye(observed), start, ratio * np.eye(2 * count))


def unobserved(size: int, ratio: float) -> System:
    """Independent constants of which only the first half is ever seen, without process noise."""
    H = np.eye(size // 2, size)
    mixing = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]
    zero, one = np.zeros((size, size)), np.eye(size)
    return System(one, H @ mixing, zero, np.eye(size // 2), np.zeros(size), ratio * one)


def cases() -> dict[str, System]:
    """Systems by what is hard about them."""
    ratios = [1.0, 1e4, 1e6, 1e8, 1e10, 1e12]
    systems = {f"two states, prior of {r:.0e} R": oscillators(1, 1, 0.1, r, 0.0) for r in ratios}
    for ratio in ratios:
        systems[f"six states, prior of {ratio:.0e} R"] = oscillators(3, 1, 0.01, ratio, 0.0)
    for ratio in ratios:
        systems[f"Q = 0, half unobserved, prior of {ratio:.0e} R"] = unobserved(4, ratio)
    for mean in (1e4, 1e6):
        systems[f"a state of {mean:.0e} s.d."] = oscillators(1, 1, 0.1, 1.0, mean)
    return systems


def lower_triangle(rows: np.ndarray) -> np.ndarray:
    """L of rows L Q with orthonormal rows in Q."""
    return np.linalg.qr(rows.T)[1].T


def reference(system: System, readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations by a Kalman filter in float64, with stacked QR roots."""
    mean, root = system.mean, np.linalg.cholesky(system.covariance)
    noise = np.sqrt(system.Q)  # all are diagonal
    means, stds = [], []
    for z in readings:
        mean = system.F @ mean
        root = lower_triangle(np.hstack([system.F @ root, noise]))
        image = system.H @ root
        size = len(z)
        top = np.hstack([np.linalg.cholesky(system.R), image])
        bottom = np.hstack([np.zeros((len(mean), size)), root])
        lower = lower_triangle(np.vstack([top, bottom]))
        gain = lower[size:, :size] @ np.linalg.inv(lower[:size, :size])
        mean = mean + gain @ (z - system.H @ mean)
        root = lower[size:, size:]
        means.append(mean)
        stds.append(np.sqrt((root**2).sum(1)))
    return np.asarray(means), np.asarray(stds)


def covariance_form(system: System, readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same in float32 with a covariance, by Joseph's form."""
    F, H, Q, R = (jnp.asarray(m, jnp.float32) for m in (system.F, system.H, system.Q, system.R))

    def step(belief, z):
        mean, P = belief
        mean, P = F @ mean, F @ P @ F.T + Q
        P = 0.5 * (P + P.T)
        S = H @ P @ H.T + R
        gain = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(S), True), H @ P).T
        kept = jnp.eye(len(mean), dtype=P.dtype) - gain @ H
        mean, P = mean + gain @ (z - H @ mean), kept @ P @ kept.T + gain @ R @ gain.T
        return (mean, P), (mean, jnp.sqrt(jnp.diagonal(P)))

    start = tuple(jnp.asarray(m, jnp.float32) for m in (system.mean, system.covariance))
    with jax.default_matmul_precision("float32"):
        _, (means, stds) = jax.lax.scan(step, start, jnp.asarray(readings, jnp.float32))
    return np.asarray(means, float), np.asarray(stds, float)


def root_form(system: System, readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by filtrax."""
    F, H = (jnp.asarray(m, jnp.float32) for m in (system.F, system.H))
    noise = lambda matrix: filtrax.constant_noise(jnp.asarray(matrix, jnp.float32))  # noqa: E731
    model = filtrax.StateSpaceModel(
        process=lambda state, inputs: F @ state,
        process_noise=noise(np.sqrt(np.diagonal(system.Q))),
        observe=lambda state, inputs: H @ state,
        sensor=filtrax.DirectSensor(noise(np.sqrt(np.diagonal(system.R)))),
    )
    moments = (jnp.asarray(array, jnp.float32) for array in (system.mean, system.covariance))
    prior = filtrax.Gaussian(*moments)
    filt = filtrax.ExtendedKalmanFilter()
    beliefs = filtrax.run(filt, model, prior, jnp.asarray(readings, jnp.float32)).beliefs
    stds = np.sqrt((np.asarray(beliefs.factor, float) ** 2).sum(-1))
    return np.asarray(beliefs.mean, float), stds


def readings_of(system: System, seed: int) -> np.ndarray:
    """Readings drawn from the system, rounded to float32; the state starts within 1 of the mean."""
    rng = np.random.default_rng(seed)
    state = system.mean + rng.normal(size=len(system.mean))
    readings = []
    for _ in range(STEPS):
        state = system.F @ state + np.sqrt(system.Q) @ rng.normal(size=len(state))
        readings.append(system.H @ state + rng.normal(size=len(system.H)))
    return np.asarray(readings, np.float32).astype(float)


def rounded(system: System) -> System:
    """The system with all its numbers rounded to float32."""
    arrays = dataclasses.asdict(system)
    return System(**{name: np.asarray(a, np.float32).astype(float) for name, a in arrays.items()})


def worst(form, system: System, readings: np.ndarray) -> str:
    """The largest errors of mean and standard deviation."""
    means, stds = reference(system, readings)
    own_means, own_stds = form(system, readings)
    of_mean = np.abs(own_means - means) / stds
    of_std = np.abs(own_stds / stds - 1)
    if not (np.isfinite(of_mean).all() and np.isfinite(of_std).all()):
        return "not finite"
    return f"{of_mean.max():.2g} / {of_std.max():.2g}"


def main() -> None:
    """Prints a table: the largest error of the mean in s.d. / relative error of the s.d."""
    print("| Case | covariance | factor |\n|---|---|---|")
    for name, system in cases().items():
        system = rounded(system)
        readings = readings_of(system, seed=1)
        row = [worst(form, system, readings) for form in (covariance_form, root_form)]
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
