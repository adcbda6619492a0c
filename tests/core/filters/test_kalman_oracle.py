"""Kalman filters against a float64 NumPy Kalman filter on random linear systems."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.filters import filter_trajectory
from filtrax.trajectory import Trajectory
from oracles.kalman import kalman, random_system, simulate
from systems import kalman_filters, linear_model

SIZES = [(1, 1), (2, 1), (4, 2), (6, 6), (10, 6)]
STEPS, SYSTEMS = 12, 8
FILTERS = kalman_filters()


def batch(sizes, *, masked):
    """Several systems of one size as batched models and trajectories, with the oracle's answers."""
    rng = np.random.default_rng(sum(sizes))
    models, trajectories, answers = [], [], []
    for i in range(SYSTEMS):
        system = random_system(rng, *sizes)
        controls, states, observations = simulate(system, rng, STEPS)
        seen = np.ones(observations.shape, bool)
        if masked and i % 2:
            seen = rng.random(observations.shape) < 0.6
            seen[STEPS // 2] = False
        answers.append(kalman(system, controls, observations, seen))
        readings = np.where(seen, observations, np.nan)
        observed = jnp.asarray(seen) if masked else None
        model, prior = linear_model(system)
        inputs, readings, states = map(jnp.asarray, (controls, readings, states))
        models.append(model)
        known = {"inputs": inputs, "states": states, "observed": observed}
        trajectories.append(Trajectory(prior.mean, prior.covariance, readings, **known))
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    return jax.tree.map(stack, *models), jax.tree.map(stack, *trajectories), answers


def check_against_kalman(filt, models, trajectories, answers):
    @jax.jit
    @jax.vmap
    def run(model, trajectory, key):
        return filter_trajectory(filt, model, trajectory, key=key)

    result = run(models, trajectories, jr.split(jr.key(0), SYSTEMS))
    beliefs, info = result.beliefs, result.info
    for i, (means, covariances, log_likelihoods) in enumerate(answers):
        np.testing.assert_allclose(beliefs.mean[i], means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(beliefs.covariance[i], covariances, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(info.log_likelihood[i], log_likelihoods, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.log_likelihood[i], log_likelihoods.sum(), rtol=1e-9)
    assert info.finite.all()


CASES = [(name, sizes) for name in ("ekf", "ukf", "mcukf") for sizes in SIZES]


@pytest.mark.parametrize(("name", "sizes"), [*CASES, ("iterated_ekf", (4, 2))], ids=str)
def test_equals_the_kalman_filter_with_and_without_masks(name, sizes):
    """Rejects a gain without Q (D1), a wrong mask, a wrong determinant, lost inputs."""
    check_against_kalman(FILTERS[name], *batch(sizes, masked=True))


@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_no_mask_is_a_mask_that_sees_everything(name):
    check_against_kalman(FILTERS[name], *batch((4, 2), masked=False))


@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_equals_the_kalman_filter_on_the_unrolled_path(name, unrolled_algebra):
    """The scalar code that a GPU runs for small matrices, here on the CPU."""
    check_against_kalman(FILTERS[name], *batch((6, 5), masked=True))


@pytest.mark.parametrize("scaling", [(1e-1, 0.0, 2.0), (1.0, -1.0, 0.0), (0.5, 3.0, 1.0)], ids=str)
def test_any_scaling_is_exact_on_linear_models(scaling):
    """Rejects weights that do not sum to one and offsets that do not match them."""
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(*scaling))
    check_against_kalman(filt, *batch((4, 2), masked=True))


def test_learned_scaling_starts_where_it_is_told_to():
    scaling = filtrax.LearnedScaling(4, alpha=0.5, kappa=3.0, beta=1.0)
    points = filtrax.UnscentedKalmanFilter(scaling).points(4, float, key=jr.key(0))
    fixed = filtrax.UnscentedKalmanFilter(filtrax.Scaling(0.5, 3.0, 1.0))
    for found, expected in zip(
        jax.tree.leaves(points),
        jax.tree.leaves(fixed.points(4, float, key=jr.key(0))),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
