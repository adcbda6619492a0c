"""A Kalman filter in float64 NumPy, written from the textbook, to compare with.

It leaves out unseen components by deleting their rows, and inverts matrices outright: slow, plain
and independent of the code under test.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LinearSystem:
    """x' = F x + G u + q,  z = H x + r,  with a prior N(mean, covariance)."""

    F: np.ndarray
    G: np.ndarray
    H: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def random_system(rng: np.random.Generator, states: int, observations: int) -> LinearSystem:
    """A random stable system with full, well-conditioned covariances."""
    dynamics = rng.normal(size=(states, states))
    dynamics *= 0.95 / np.abs(np.linalg.eigvals(dynamics)).max()
    return LinearSystem(
        F=dynamics,
        G=rng.normal(size=(states, 2)),
        H=rng.normal(size=(observations, states)),
        Q=random_covariance(rng, states),
        R=random_covariance(rng, observations),
        mean=rng.normal(size=states),
        covariance=random_covariance(rng, states),
    )


def random_covariance(rng: np.random.Generator, size: int) -> np.ndarray:
    factor = rng.normal(size=(size, size))
    return factor @ factor.T / size + 0.2 * np.eye(size)


def simulate(
    system: LinearSystem, rng: np.random.Generator, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Controls, states and observations."""
    controls = rng.normal(size=(steps, 2))
    state = rng.multivariate_normal(system.mean, system.covariance)
    process_noise = rng.multivariate_normal(np.zeros(len(state)), system.Q, steps)
    sensor_noise = rng.multivariate_normal(np.zeros(len(system.R)), system.R, steps)
    states = []
    for control, noise in zip(controls, process_noise, strict=True):
        state = system.F @ state + system.G @ control + noise
        states.append(state)
    states = np.array(states)
    return controls, states, states @ system.H.T + sensor_noise


def kalman(
    system: LinearSystem, controls: np.ndarray, observations: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, covariances and log-likelihoods ln p(z_t | z_1 .. z_{t-1}) of what was seen."""
    mean, covariance = system.mean, system.covariance
    means, covariances, log_likelihoods = [], [], []
    for control, observation, mask in zip(controls, observations, seen, strict=True):
        mean = system.F @ mean + system.G @ control
        covariance = system.F @ covariance @ system.F.T + system.Q
        log_likelihood = 0.0
        if mask.any():
            H, R = system.H[mask], system.R[np.ix_(mask, mask)]
            innovation = observation[mask] - H @ mean
            S = H @ covariance @ H.T + R
            gain = covariance @ H.T @ np.linalg.inv(S)
            mean = mean + gain @ innovation
            kept = np.eye(len(mean)) - gain @ H
            covariance = kept @ covariance @ kept.T + gain @ R @ gain.T
            quadratic = innovation @ np.linalg.inv(S) @ innovation
            log_determinant = np.linalg.slogdet(2 * np.pi * S)[1]
            log_likelihood = -0.5 * (quadratic + log_determinant)
        means.append(mean)
        covariances.append(covariance)
        log_likelihoods.append(log_likelihood)
    return np.array(means), np.array(covariances), np.array(log_likelihoods)
