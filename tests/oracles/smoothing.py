"""Smoothers in float64 NumPy: the textbook's recursion, and one large Gaussian.

Both are written for clarity and independent of the code under test. The large Gaussian is the joint
distribution of all states, conditioned on all readings at once, so that it needs no recursion.
"""

import itertools

import numpy as np
from scipy.linalg import block_diag

from oracles.kalman import LinearSystem, kalman
from oracles.switching import SwitchingSystem, interacting, moments


def rauch_tung_striebel(system: LinearSystem, controls, observations, seen):
    """Means, covariances and Cov(x_{t-1}, x_t) of states 0 to T given all readings."""
    means, covariances, _ = kalman(system, controls, observations, seen)
    means = np.concatenate([system.mean[None], means])
    covariances = np.concatenate([system.covariance[None], covariances])
    smoothed, spread, cross = means.copy(), covariances.copy(), []
    for t in reversed(range(len(controls))):
        predicted = system.F @ means[t] + system.G @ controls[t]
        covariance = system.F @ covariances[t] @ system.F.T + system.Q
        gain = covariances[t] @ system.F.T @ np.linalg.inv(covariance)
        smoothed[t] = means[t] + gain @ (smoothed[t + 1] - predicted)
        spread[t] = covariances[t] + gain @ (spread[t + 1] - covariance) @ gain.T
        cross.append(gain @ spread[t + 1])
    return smoothed, spread, np.array(cross[::-1])


def large_gaussian(system: LinearSystem, controls, observations, seen):
    """The same from the joint distribution of all states, and the likelihood of what was seen."""
    return large_gaussian_of([system] * len(controls), controls, observations, seen)


def large_gaussian_of(systems: list[LinearSystem], controls, observations, seen):
    """The same for a system that is another one in each step."""
    size, steps = len(systems[0].mean), len(controls)
    mean, joint = [systems[0].mean], np.zeros((size * (steps + 1),) * 2)
    joint[:size, :size] = systems[0].covariance
    for t, system in enumerate(systems):
        mean.append(system.F @ mean[-1] + system.G @ controls[t])
        old, new = slice(0, size * (t + 1)), slice(size * (t + 1), size * (t + 2))
        last = slice(size * t, size * (t + 1))
        joint[old, new] = joint[old, last] @ system.F.T
        joint[new, old] = joint[old, new].T
        joint[new, new] = system.F @ joint[last, last] @ system.F.T + system.Q
    H = block_diag(*(system.H for system in systems))[seen.ravel()]
    H = np.concatenate([np.zeros((len(H), size)), H], axis=1)
    R = block_diag(*(system.R for system in systems))[np.ix_(seen.ravel(), seen.ravel())]
    mean = np.concatenate(mean)
    innovation = observations.ravel()[seen.ravel()] - H @ mean
    S = H @ joint @ H.T + R
    gain = np.linalg.solve(S, H @ joint).T
    quadratic = innovation @ np.linalg.solve(S, innovation)
    log_likelihood = -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * S)[1])
    mean, joint = mean + gain @ innovation, joint - gain @ H @ joint
    blocks = joint.reshape(steps + 1, size, steps + 1, size)
    covariances = np.array([blocks[t, :, t] for t in range(steps + 1)])
    cross = np.array([blocks[t, :, t + 1] for t in range(steps)])
    return mean.reshape(steps + 1, size), covariances, cross, log_likelihood


def kim(system: SwitchingSystem, controls, observations, seen):
    """Weights, means and covariances of the modes for states 0 to T (Kim & Nelson 1999, 5.3)."""
    count, first = len(system.modes), system.modes[0]
    start = system.initial, np.stack([first.mean] * count), np.stack([first.covariance] * count)
    *filtered, _ = interacting(system, controls, observations, seen)
    before = [np.concatenate([a[None], b]) for a, b in zip(start, filtered, strict=True)]
    found = [tuple(values[-1] for values in before)]
    for t in reversed(range(len(controls))):
        weights, means, covariances = (values[t] for values in before)
        after = found[-1]
        joint = np.zeros((count, count))
        pairs = {}
        for j, mode in enumerate(system.modes):
            mixing = weights * system.transitions[:, j]
            joint[:, j] = after[0][j] * mixing / mixing.sum()
            for i in range(count):
                predicted = mode.F @ means[i] + mode.G @ controls[t]
                covariance = mode.F @ covariances[i] @ mode.F.T + mode.Q
                gain = covariances[i] @ mode.F.T @ np.linalg.inv(covariance)
                mean = means[i] + gain @ (after[1][j] - predicted)
                spread = covariances[i] + gain @ (after[2][j] - covariance) @ gain.T
                pairs[i, j] = mean, spread
        merged = []
        for i in range(count):
            shares = joint[i] / joint[i].sum()
            columns = [
                np.array(values)
                for values in zip(*(pairs[i, j] for j in range(count)), strict=True)
            ]
            merged.append(moments(shares, *columns))
        found.append((joint.sum(1), *(np.array(values) for values in zip(*merged, strict=True))))
    return [np.array(values) for values in zip(*found[::-1], strict=True)]


def all_mode_sequences(system: SwitchingSystem, controls, observations, seen):
    """The exact smoothed moments: a smoother for every sequence of modes.

    Weights of sequences, their modes 0 to T, means and covariances of states 0 to T, and all
    Cov(x_{t-1}, x_t).
    """
    parts = []
    for modes in itertools.product(range(len(system.modes)), repeat=len(controls) + 1):
        probability = system.initial[modes[0]]
        for before, after in itertools.pairwise(modes):
            probability *= system.transitions[before, after]
        varying = [system.modes[mode] for mode in modes[1:]]
        means, covariances, cross, log_likelihood = large_gaussian_of(
            varying, controls, observations, seen
        )
        parts.append((probability * np.exp(log_likelihood), modes, means, covariances, cross))
    weights, *others = (np.array(values) for values in zip(*parts, strict=True))
    return weights / weights.sum(), *others
