"""Smoothed beliefs against NumPy's on random linear systems."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.smoothing import smooth_trajectory
from filtrax.trajectory import Trajectory
from oracles.kalman import random_system, simulate
from oracles.smoothing import large_gaussian, rauch_tung_striebel
from systems import kalman_filters, linear_model

STEPS, SYSTEMS = 12, 6
FILTERS = kalman_filters()


def problems(sizes, steps=STEPS):
    """Random systems with masks per step and per component, as models and as the oracle's."""
    rng = np.random.default_rng(sum(sizes))
    for number in range(SYSTEMS):
        system = random_system(rng, *sizes)
        controls, _, observations = simulate(system, rng, steps)
        seen = np.ones(observations.shape, bool)
        if number % 2:
            seen = rng.random(observations.shape) < 0.6
            seen[steps // 2] = False
            seen[-1] = number % 4 == 1
        yield system, controls, np.where(seen, observations, np.nan), seen


def batched(sizes):
    models, trajectories = [], []
    for system, controls, readings, seen in problems(sizes):
        model, prior = linear_model(system)
        known = {"inputs": jnp.asarray(controls), "observed": jnp.asarray(seen)}
        trajectory = Trajectory(prior.mean, prior.covariance, jnp.asarray(readings), **known)
        models.append(model)
        trajectories.append(trajectory)
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    return jax.tree.map(stack, *models), jax.tree.map(stack, *trajectories)


def smoothed_by(filt, sizes, smoother=None):
    @jax.jit
    @jax.vmap
    def run(model, trajectory, key):
        return smooth_trajectory(filt, model, trajectory, key=key, smoother=smoother)

    return run(*batched(sizes), jr.split(jr.key(0), SYSTEMS))


def check(smoothed, sizes, tolerance=1e-9):
    close = {"rtol": tolerance, "atol": tolerance}
    for number, problem in enumerate(problems(sizes)):
        own = jax.tree.map(lambda leaf, number=number: leaf[number], smoothed)
        for means, covariances, cross, *others in (
            rauch_tung_striebel(*problem),
            large_gaussian(*problem),
        ):
            np.testing.assert_allclose(own.initial.mean, means[0], **close)
            np.testing.assert_allclose(own.initial.covariance, covariances[0], **close)
            np.testing.assert_allclose(own.beliefs.mean, means[1:], **close)
            np.testing.assert_allclose(own.beliefs.covariance, covariances[1:], **close)
            np.testing.assert_allclose(own.cross_covariances, cross, **close)
            if others:
                np.testing.assert_allclose(own.log_likelihood, others[0], **close)
        assert own.info.finite.all()


CASES = [("ekf", (4, 2)), ("ukf", (4, 2))]
LONG = [
    ("ekf", (1, 1)),
    ("ekf", (6, 6)),
    ("mcukf", (4, 2)),
    ("iterated_ekf", (4, 2)),
    ("ekf", (10, 6)),
    ("ukf", (6, 6)),
]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG)],
    ids=str,
)
def test_equals_two_numpy_smoothers_with_random_masks(name, sizes):
    """Rejects a lost mask, a pair that is shifted by a step, and a lost initial state."""
    check(smoothed_by(FILTERS[name], sizes), sizes)
