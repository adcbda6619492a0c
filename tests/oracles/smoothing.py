"""Smoothers in float64 NumPy: the textbook's recursion, and one large Gaussian.

Both are written for clarity and independent of the code under test. The large Gaussian is the joint
distribution of all states, conditioned on all readings at once, so that it needs no recursion.
"""

import numpy as np

from oracles.kalman import LinearSystem, kalman


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
    size, steps = len(system.mean), len(controls)
    mean, covariance = [system.mean], system.covariance
    joint = np.zeros((size * (steps + 1),) * 2)
    joint[:size, :size] = covariance
    for t in range(steps):
        mean.append(system.F @ mean[-1] + system.G @ controls[t])
        old, new = slice(0, size * (t + 1)), slice(size * (t + 1), size * (t + 2))
        last = slice(size * t, size * (t + 1))
        joint[old, new] = joint[old, last] @ system.F.T
        joint[new, old] = joint[old, new].T
        joint[new, new] = system.F @ joint[last, last] @ system.F.T + system.Q
    H = np.kron(np.eye(steps + 1)[1:], system.H)[seen.ravel()]
    R = np.kron(np.eye(steps), system.R)[np.ix_(seen.ravel(), seen.ravel())]
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
