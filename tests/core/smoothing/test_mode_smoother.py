"""Smoothing of switching systems: the textbook's recursion, and all sequences of modes."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from oracles.smoothing import all_mode_sequences, kim
from oracles.switching import moments, simulate
from systems import (
    MANOEUVRES,
    beacon_prior,
    beacon_trajectory,
    linear_model,
    switching_beacon_model,
    switching_model,
)

IMM = filtrax.IMMFilter()


def smoothed(system, controls, observations, seen, filt=IMM):
    model, prior = switching_model(system)
    readings = jnp.asarray(np.where(seen, observations, np.nan))
    known = {"inputs": jnp.asarray(controls), "observed": jnp.asarray(seen)}
    return filtrax.smooth(filt, model, prior, readings, **known)


def exact_moments(system, controls, observations, seen):
    """Smoothed mean and covariance of all states, and the weights of modes."""
    weights, modes, means, covariances, cross = all_mode_sequences(
        system, controls, observations, seen
    )
    each = [moments(weights, means[:, t], covariances[:, t]) for t in range(means.shape[1])]
    chances = np.stack([(weights[:, None] * (modes == k)).sum(0) for k in range(2)], axis=1)
    mean, covariance = (np.array(values) for values in zip(*each, strict=True))
    offsets = means - mean
    crosses = np.einsum("n,ntij->tij", weights, cross)
    crosses += np.einsum("n,nti,ntj->tij", weights, offsets[:, :-1], offsets[:, 1:])
    return mean, covariance, chances, crosses


def problem(steps, seed=0, masked=True):
    rng = np.random.default_rng(seed)
    controls, _, _, observations = simulate(MANOEUVRES, rng, steps)
    seen = np.ones(observations.shape, bool)
    if masked:
        seen[steps // 2] = False
    return MANOEUVRES, controls, observations, seen


@pytest.mark.parametrize("inner", ["ekf", pytest.param("ukf", marks=pytest.mark.long)])
def test_equals_the_textbook_recursion(inner):
    """Rejects pairs that are swapped, weights of the wrong step, and merged moments too few."""
    filters = {"ekf": filtrax.ExtendedKalmanFilter(), "ukf": filtrax.UnscentedKalmanFilter()}
    given = problem(12)
    found = smoothed(*given, filtrax.IMMFilter(filters[inner]))
    weights, means, covariances = kim(*given)
    for belief, own in ((found.initial, 0), (found.beliefs, slice(1, None))):
        np.testing.assert_allclose(jnp.exp(belief.log_weights), weights[own], atol=1e-9)
        np.testing.assert_allclose(belief.components.mean, means[own], atol=1e-9)
        np.testing.assert_allclose(belief.components.covariance, covariances[own], atol=1e-9)


def test_is_exact_after_one_step():
    """All its approximations begin with the second step, those of pairs included."""
    given = problem(1, masked=False)
    found = smoothed(*given)
    mean, covariance, chances, cross = exact_moments(*given)
    space = switching_model(MANOEUVRES)[0].state_space
    first, last = found.initial.moments(space), found.beliefs
    np.testing.assert_allclose(first.mean, mean[0], atol=1e-10)
    np.testing.assert_allclose(first.covariance, covariance[0], atol=1e-10)
    np.testing.assert_allclose(jnp.exp(found.initial.log_weights), chances[0], atol=1e-10)
    np.testing.assert_allclose(jnp.exp(last.log_weights[0]), chances[1], atol=1e-10)
    np.testing.assert_allclose(found.cross_covariances, cross, atol=1e-10)


@pytest.mark.long
def test_is_closer_to_all_sequences_of_modes_than_the_filter():
    """Rejects a backward pass that leaves modes as they were."""
    errors = {"filter": [], "smoother": []}
    space = switching_model(MANOEUVRES)[0].state_space
    for seed in range(4):
        given = problem(8, seed, masked=seed % 2 == 0)
        found = smoothed(*given)
        model, prior = switching_model(MANOEUVRES)
        readings = jnp.asarray(np.where(given[3], given[2], np.nan))
        filtered = filtrax.run(
            IMM, model, prior, readings, inputs=given[1], observed=jnp.asarray(given[3])
        )
        mean, _, chances, _ = exact_moments(*given)
        for name, beliefs in (("filter", filtered.beliefs), ("smoother", found.beliefs)):
            means = jax.vmap(lambda belief: belief.moments(space).mean)(beliefs)
            weights = np.exp(beliefs.log_weights[:, 1])
            both = np.abs(means - mean[1:]).mean(), np.abs(weights - chances[1:, 1]).mean()
            errors[name].append(both)
    ratio = np.mean(errors["smoother"], axis=0) / np.mean(errors["filter"], axis=0)
    assert (ratio < 0.6).all(), ratio


@pytest.mark.long
def test_identical_modes_are_one_smoother():
    system = dataclasses.replace(MANOEUVRES, modes=MANOEUVRES.modes[:1] * 2)
    _, controls, observations, seen = problem(10)
    found = smoothed(system, controls, observations, seen)
    model, prior = linear_model(system.modes[0])
    readings = jnp.asarray(np.where(seen, observations, np.nan))
    known = {"inputs": jnp.asarray(controls), "observed": jnp.asarray(seen)}
    single = filtrax.smooth(filtrax.ExtendedKalmanFilter(), model, prior, readings, **known)
    for mode in range(2):
        means = found.beliefs.components.mean[:, mode]
        np.testing.assert_allclose(means, single.beliefs.mean, atol=1e-9)
    np.testing.assert_allclose(found.cross_covariances, single.cross_covariances, atol=1e-9)


@pytest.mark.long
def test_gradients_equal_finite_differences():
    trajectory = beacon_trajectory(5)

    @jax.jit
    def value(means):
        model, prior = switching_beacon_model(), beacon_prior()
        prior = filtrax.Gaussian(prior.mean + means, prior.covariance)
        found = filtrax.smooth(IMM, model, prior, trajectory.readings, inputs=trajectory.inputs)
        leaves = found.beliefs.components.mean, found.beliefs.log_weights, found.cross_covariances
        leaves += (found.beliefs.components.covariance, found.initial.components.mean)
        return sum((jnp.sin(jnp.arange(1.0, a.size + 1)) * a.ravel()).sum() for a in leaves)

    at = jnp.asarray([0.05, 0.1, -0.1])
    gradient = jax.grad(value)(at)
    for number, step in enumerate(1e-6 * np.eye(3)):
        difference = (value(at + step) - value(at - step)) / 2e-6
        np.testing.assert_allclose(gradient[number], difference, rtol=1e-5)


def test_draws_have_the_exact_moments_after_one_step():
    """Rejects draws that do not weigh modes by how likely they lead to the state."""
    given = problem(1, masked=False)
    system, controls, observations, _ = given
    model, prior = switching_model(system)
    known = {"inputs": jnp.asarray(controls), "num_paths": 40_000, "key": jr.key(0)}
    paths = filtrax.sample_path(IMM, model, prior, jnp.asarray(observations), **known)
    mean, covariance, _, cross = exact_moments(*given)
    both = np.stack([paths.initial, paths.states[:, 0]], axis=1)
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert (np.abs(both.mean(0) - mean) < 4 * std / 200).all()
    np.testing.assert_allclose(both.std(0), std, rtol=0.03)
    offsets = both - mean
    pairs = np.einsum("ni,nj->ij", offsets[:, 0], offsets[:, 1]) / len(both)
    np.testing.assert_allclose(pairs, cross[0], atol=0.03)


@pytest.mark.long
def test_draws_of_several_steps_are_close_to_the_exact_moments():
    given = problem(4, masked=False)
    system, controls, observations, _ = given
    model, prior = switching_model(system)
    known = {"inputs": jnp.asarray(controls), "num_paths": 20_000, "key": jr.key(0)}
    paths = filtrax.sample_path(IMM, model, prior, jnp.asarray(observations), **known)
    mean, covariance, _, _ = exact_moments(*given)
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))[1:]
    # The beliefs of the filter, one Gaussian for each mode, are approximations.
    assert (np.abs(paths.states.mean(0) - mean[1:]) < 0.15 * std).all()
    np.testing.assert_allclose(paths.states.std(0), std, rtol=0.5)
