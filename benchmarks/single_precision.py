"""Compares filters in float32 with float64 on the same numbers, where single precision is hard.

    python benchmarks/single_precision.py                    # 10,000 steps, some minutes
    python benchmarks/single_precision.py --write FILE       # replaces the table in a page

Linear systems with two, four and six states: a sensor that is 10⁴ times as exact as the prior or
10⁴ times less, priors up to 10¹² times the variance of the readings, directions that nothing is
ever seen of without process noise, and states that are up to 10⁶ standard deviations away from
zero. The error of a step is the largest difference of a mean in standard deviations of float64. It
is wrong if that is above 0.01, and flagged if `Info.finite` or `Info.resolved` is False.
"""

import argparse
import dataclasses
import re
from pathlib import Path

import belief_forms
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from belief_forms import System

import filtrax
from filtrax.filters import filter_trajectory

WRONG = 0.01
"""The error in standard deviations from which on a step is wrong."""


class Linear(eqx.Module):
    """x ↦ A x, as a process or as an observation."""

    matrix: jax.Array

    def __call__(self, state, inputs):
        """Returns A x."""
        return self.matrix @ state


@dataclasses.dataclass(frozen=True)
class Case:
    """A system, and how many decimal digits its largest ratio of variances has."""

    group: str
    ratio: float
    system: System


def damped_motion(ratio: float, correlation: float) -> System:
    """Damped motion along two axes, whose positions are seen; noise enters the acceleration."""
    both = lambda matrix: np.kron(np.eye(2), matrix)  # noqa: E731
    step, damping = 0.1, 0.95
    Q = np.outer([step**2 / 2, step], [step**2 / 2, step])
    F, P = [[damping, step], [0.0, damping]], [[1.0, correlation], [correlation, 1.0]]
    H, R = both(np.array([[1.0, 0.0]])), ratio**2 * np.eye(2)
    return System(both(np.array(F)), H, both(Q), R, np.zeros(4), both(np.array(P)))


def cases() -> list[Case]:
    """All systems of the grid."""
    priors = (1.0, 1e4, 1e6, 1e8, 1e9, 1e10, 1e12)
    stds, oscillators = (1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e4), belief_forms.oscillators
    found = []
    for correlation in (0.0, 1 - 1e-6, 1.0):
        for std in stds:
            ratio = max(std**2, std**-2)
            group = "s.d. of readings 10⁻⁴ to 10⁴ of the prior's"
            found.append(Case(group, ratio, damped_motion(std, correlation)))
    for ratio in priors:
        two, six = oscillators(1, 1, 0.1, ratio, 0.0), oscillators(3, 1, 0.01, ratio, 0.0)
        hidden = belief_forms.unobserved(4, ratio)
        found.append(Case("wide prior, two states", ratio, two))
        found.append(Case("wide prior, six states, one seen", ratio, six))
        found.append(Case("Q = 0, half of four states unobserved", ratio, hidden))
    for mean in (1e2, 1e3, 1e4, 1e5, 1e6):
        group = "states of 10² to 10⁶ s.d."
        found.append(Case(group, mean**2, oscillators(1, 1, 0.1, 1.0, mean)))
    return found


def factor(covariance: np.ndarray) -> np.ndarray:
    """A square root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.clip(values, 0.0, None))


def draw(system: System, seed: int, steps: int) -> np.ndarray:
    """Readings drawn from a system, rounded to float32."""
    rng = np.random.default_rng(seed)
    Q, R, size = factor(system.Q), factor(system.R), len(system.mean)
    state, readings = system.mean + rng.normal(size=size), []
    for _ in range(steps):
        state = system.F @ state + Q @ rng.normal(size=size)
        readings.append(system.H @ state + R @ rng.normal(size=len(system.H)))
    return np.asarray(readings, np.float32).astype(float)


def build(system: System, dtype: type, modes: int) -> tuple[filtrax.StateSpaceModel, tuple]:
    """Model and moments of the prior in one type, all rounded to float32; modes differ in R."""
    noise = filtrax.constant_noise
    process = Linear(jnp.asarray(system.F))
    if modes > 1:
        stay = filtrax.Transitions(jnp.asarray([[0.95, 0.05], [0.05, 0.95]]))
        kinds = (filtrax.Mode(), filtrax.Mode(sensor_noise=noise(9 * system.R)))
        process = filtrax.SwitchingProcess(process, kinds, stay)
    model = filtrax.StateSpaceModel(
        process=process,
        process_noise=noise(system.Q),
        observe=Linear(jnp.asarray(system.H)),
        sensor=filtrax.DirectSensor(noise(system.R)),
    )
    numbers = (model, (jnp.asarray(system.mean), jnp.asarray(system.covariance)))
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32).astype(dtype), numbers)


FILTERS = {
    "EKF": filtrax.ExtendedKalmanFilter(),
    "UKF": filtrax.UnscentedKalmanFilter(),
    "MCUKF": filtrax.MonteCarloUnscentedKalmanFilter(),
    "IMM": filtrax.IMMFilter(),
}


def filtered(name: str, systems: list[System], readings: list[np.ndarray], dtype: type):
    """Means, standard deviations and flags of all steps of systems of one size."""
    built = [build(system, dtype, 2 if name == "IMM" else 1) for system in systems]
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    models = jax.tree.map(stack, *(model for model, _ in built))
    moments = jax.tree.map(stack, *(moments for _, moments in built))

    @jax.jit
    @jax.vmap
    def run(model, moments, readings):
        mean, covariance = moments
        trajectory = filtrax.Trajectory(mean, covariance, readings)
        key = jr.key(0) if name == "MCUKF" else None
        result = filter_trajectory(FILTERS[name], model, trajectory, key=key, info=True)
        space, info = model.state_space, result.info
        assert info.resolved is not None
        good = info.finite & info.resolved
        beliefs = jax.vmap(lambda belief: belief.moments(space))(result.beliefs)
        return beliefs.mean, jnp.sqrt((beliefs.factor**2).sum(-1)), good

    answer = run(models, moments, jnp.asarray(np.stack(readings), dtype))
    return [np.asarray(array) for array in answer]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The errors of one filter on one system, and which steps it has flagged."""

    case: Case
    name: str
    error: np.ndarray
    flagged: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Steps whose error is above `WRONG`, or no number."""
        return ~(self.error <= WRONG)

    @property
    def verdict(self) -> str:
        """The outcome: right, flagged, or one of two faults."""
        if not self.wrong.any():
            return "false alarm" if self.flagged.any() else "right"
        return "wrong in silence" if (self.wrong & ~self.flagged).any() else "flagged"


def outcomes(name: str, steps: int, seed: int = 1) -> list[Outcome]:
    """The outcomes of one filter on all systems of the grid."""
    sizes: dict[tuple[int, int], list[Case]] = {}
    for case in cases():
        sizes.setdefault(case.system.H.shape, []).append(case)
    found = []
    for alike in sizes.values():
        systems = [case.system for case in alike]
        readings = [draw(system, seed, steps) for system in systems]
        means, _, flags = filtered(name, systems, readings, np.float32)
        exact = "EKF" if name in ("UKF", "MCUKF") else name  # which agree on linear systems
        right, stds, _ = filtered(exact, systems, readings, np.float64)
        with np.errstate(invalid="ignore"):
            errors = (np.abs(means.astype(float) - right) / stds).max(-1)
        each = zip(alike, errors, flags, strict=True)
        found += [Outcome(case, name, error, ~flag) for case, error, flag in each]
    return found


def table(found: list[Outcome]) -> str:
    """One row for each group of cases: right, flagged, false alarms, silent, and worst errors."""
    lines = ["| Case | Filter | Right | Flagged | False alarm | Silent | Worst silent error |"]
    lines.append("|---|---|---|---|---|---|---|")
    groups = dict.fromkeys((outcome.case.group, outcome.name) for outcome in found)
    for group, name in groups:
        for wide in (False, True):
            alike = [o for o in found if (o.case.group, o.name) == (group, name)]
            alike = [o for o in alike if (o.case.ratio > 1e8) == wide]
            if not alike:
                continue
            verdicts = [outcome.verdict for outcome in alike]
            kinds = ("right", "flagged", "false alarm", "wrong in silence")
            counts = " | ".join(str(verdicts.count(kind)) for kind in kinds)
            silent = [o for o in alike if o.verdict == "wrong in silence"]
            worst = max((float(np.nanmax(o.error[~o.flagged])) for o in silent), default=0.0)
            bound = "above 10⁸" if wide else "to 10⁸"
            shown = f"{worst:.2g} s.d." if silent else "–"
            lines.append(f"| {group}, {bound} | {name} | {counts} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the table, and each case that is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--filters", nargs="*", default=list(FILTERS))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = [o for name in arguments.filters for o in outcomes(name, arguments.steps)]
    for o in found:
        worst, first = np.nanmax(o.error), int(np.argmax(o.wrong)) if o.wrong.any() else -1
        print(
            f"{o.name:6} {o.case.group:45} {o.case.ratio:8.0e} {o.verdict:17} worst {worst:.2g}, "
            f"first wrong {first}, flagged {int(o.flagged.sum())}",
            flush=True,
        )
    text = table(found)
    print(text)
    if arguments.write is not None:
        begin, end = "<!-- single precision -->", "<!-- end of single precision -->"
        page = arguments.write.read_text()
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        page = re.sub(pattern, lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)
        arguments.write.write_text(page)


if __name__ == "__main__":
    main()
