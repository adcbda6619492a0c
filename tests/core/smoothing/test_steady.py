"""Constant gains of long series against gains that are computed in every step."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax.smoothing import RauchTungStriebel, SteadyState
from oracles.kalman import random_system, simulate
from systems import beacon_model, beacon_prior, beacon_trajectory, linear_model

EKF = filtrax.ExtendedKalmanFilter()


def problem(steps=400, gap=slice(250, 253), seed=0):
    rng = np.random.default_rng(seed)
    system = random_system(rng, 3, 2)
    controls, _, readings = simulate(system, rng, steps)
    seen = np.ones(readings.shape, bool)
    seen[gap] = False
    model, prior = linear_model(system)
    known = {"inputs": jnp.asarray(controls), "observed": jnp.asarray(seen)}
    return (model, prior, jnp.asarray(np.where(seen, readings, np.nan))), known


def test_equals_the_smoother_to_rounding_and_says_where_it_stopped():
    """With a gap: rejects gains that are kept where something else is observed."""
    arguments, known = problem()
    found = filtrax.smooth(EKF, *arguments, **known, smoother=SteadyState())
    expected = filtrax.smooth(EKF, *arguments, **known, smoother=RauchTungStriebel())
    np.testing.assert_allclose(found.beliefs.mean, expected.beliefs.mean, atol=1e-12)
    np.testing.assert_allclose(found.beliefs.covariance, expected.beliefs.covariance, atol=1e-13)
    np.testing.assert_allclose(found.cross_covariances, expected.cross_covariances, atol=1e-13)
    np.testing.assert_allclose(found.initial.mean, expected.initial.mean, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-13)
    frozen = np.asarray(found.frozen)
    assert not frozen[:5].any()
    assert frozen[150:250].all()
    assert not frozen[250:256].any()
    assert frozen[-50:].all()
    assert expected.frozen is None


@pytest.mark.long
def test_has_the_gradient_of_the_smoother():
    (model, prior, readings), known = problem(120, slice(60, 62))

    def value(model, smoother):
        found = filtrax.smooth(EKF, model, prior, readings, **known, smoother=smoother)
        return found.log_likelihood + (found.beliefs.mean**2).sum() + found.beliefs.covariance.sum()

    found = eqx.filter_grad(value)(model, SteadyState())
    expected = eqx.filter_grad(value)(model, RauchTungStriebel())
    for left, right in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


def test_models_that_change_are_refused():
    trajectory = beacon_trajectory(3)
    arguments = (EKF, beacon_model(), beacon_prior(), trajectory.readings)
    with pytest.raises(ValueError, match="`SteadyState` smooths models whose gains can become"):
        filtrax.smooth(*arguments, inputs=trajectory.inputs, smoother=SteadyState())
    (model, prior, readings), known = problem(5, slice(0, 0))
    changing = dataclasses.replace(model, observe=lambda state, inputs: inputs[0] * state[:2])
    with pytest.raises(ValueError, match="independent of `inputs`"):
        filtrax.smooth(EKF, changing, prior, readings, **known, smoother=SteadyState())
