"""Switching linear systems in float64 NumPy: the textbook IMM, and the exact Gaussian sum.

The Gaussian sum has one Kalman filter for every sequence of modes, so its size is exponential in
the number of steps. Both are written from the textbook (Bar-Shalom, Li & Kirubarajan 2001, section
11.6), in probabilities and not in logarithms.
"""

import dataclasses
import itertools

import numpy as np

from oracles.kalman import LinearSystem, kalman


@dataclasses.dataclass(frozen=True)
class SwitchingSystem:
    """Linear systems that share their prior, a transition matrix and initial probabilities."""

    modes: tuple[LinearSystem, ...]
    transitions: np.ndarray
    initial: np.ndarray


def simulate(system: SwitchingSystem, rng: np.random.Generator, steps: int):
    """Controls, modes, states and observations."""
    count, first = len(system.modes), system.modes[0]
    mode = rng.choice(count, p=system.initial)
    state = rng.multivariate_normal(first.mean, first.covariance)
    controls, modes, states, observations = rng.normal(size=(steps, 2)), [], [], []
    for control in controls:
        mode = rng.choice(count, p=system.transitions[mode])
        now = system.modes[mode]
        noise = rng.multivariate_normal(np.zeros(len(state)), now.Q)
        state = now.F @ state + now.G @ control + noise
        error = rng.multivariate_normal(np.zeros(len(now.R)), now.R)
        modes.append(mode)
        states.append(state)
        observations.append(now.H @ state + error)
    return controls, np.array(modes), np.array(states), np.array(observations)


def moments(weights, means, covariances):
    mean = weights @ means
    offsets = means - mean
    spread = np.einsum("i,ij,ik->jk", weights, offsets, offsets)
    return mean, np.einsum("i,ijk->jk", weights, covariances) + spread


def one_step(mode: LinearSystem, mean, covariance, control, observation, mask):
    start = dataclasses.replace(mode, mean=mean, covariance=covariance)
    means, covariances, log_likelihoods = kalman(
        start, control[None], observation[None], mask[None]
    )
    return means[0], covariances[0], log_likelihoods[0]


def interacting(system: SwitchingSystem, controls, observations, seen):
    """Weights, means and covariances of the modes, and the likelihoods, after each step."""
    count, first = len(system.modes), system.modes[0]
    weights = system.initial
    means, covariances = np.stack([first.mean] * count), np.stack([first.covariance] * count)
    found = []
    for inputs in zip(controls, observations, seen, strict=True):
        predicted = weights @ system.transitions
        steps = []
        for j in range(count):
            mixing = weights * system.transitions[:, j] / predicted[j]
            steps.append(one_step(system.modes[j], *moments(mixing, means, covariances), *inputs))
        means, covariances = np.stack([s[0] for s in steps]), np.stack([s[1] for s in steps])
        joint = predicted * np.exp([s[2] for s in steps])
        weights = joint / joint.sum()
        found.append((weights, means, covariances, np.log(joint.sum())))
    return [np.array(values) for values in zip(*found, strict=True)]


def gaussian_sum(system: SwitchingSystem, controls, observations, seen):
    """The exact posterior after the last step.

    Weights, means and covariances of all sequences of modes, the last mode of each, and the
    likelihood of everything that was observed.
    """
    first, parts = system.modes[0], []
    for start in range(len(system.modes)):
        for sequence in itertools.product(range(len(system.modes)), repeat=len(controls)):
            probability, before = system.initial[start], start
            mean, covariance, log_likelihood = first.mean, first.covariance, 0.0
            for mode, *inputs in zip(sequence, controls, observations, seen, strict=True):
                probability *= system.transitions[before, mode]
                mean, covariance, added = one_step(system.modes[mode], mean, covariance, *inputs)
                log_likelihood, before = log_likelihood + added, mode
            parts.append((probability * np.exp(log_likelihood), mean, covariance, before))
    joint, means, covariances, last = (np.array(values) for values in zip(*parts, strict=True))
    return joint / joint.sum(), means, covariances, last, np.log(joint.sum())
