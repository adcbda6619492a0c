"""What `Info.finite` says of covariances: that they are some, not only that they are numbers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import subjaxprs
from jax.interpreters.partial_eval import dce_jaxpr

import filtrax
from filtrax.filters import filter_trajectory
from oracles.kalman import LinearSystem
from systems import as_float32, kalman_filters, linear_model

FILTERS = kalman_filters() | {"imm": filtrax.IMMFilter()}
STEPS = 100


def system(**parts):
    """Position, velocity and acceleration, of which the first is measured."""
    known = {
        "F": np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.1], [0.0, 0.0, 1.0]]),
        "G": np.zeros((3, 1)),
        "H": np.array([[1.0, 0.0, 0.0]]),
        "Q": 0.01 * np.eye(3),
        "R": np.eye(1),
        "mean": np.zeros(3),
        "covariance": np.eye(3),
    }
    return LinearSystem(**known | parts)


def run(filt, system, dtype, observed=None):
    model, prior = linear_model(system, dtype)
    readings = np.random.default_rng(0).normal(size=(STEPS, len(system.H)))
    arrays = jnp.zeros((STEPS, 1), dtype), jnp.asarray(readings, dtype)
    filt = as_float32(filt) if dtype == jnp.float32 else filt
    beliefs, info = filtrax.run_with_info(
        filt, model, prior, *arrays, observed=observed, key=jr.key(0)
    )
    return jax.vmap(lambda belief: belief.moments(model.state_space))(beliefs), info


def growing(seed, size=5):
    """One mode that grows by a tenth in each step, and others that fade."""
    modes = np.random.default_rng(seed).normal(size=(size, size))
    rates = np.linspace(0.3, 0.95, size)
    rates[0] = 1.1
    return system(
        F=modes @ np.diag(rates) @ np.linalg.inv(modes),
        G=np.zeros((size, 1)),
        H=np.eye(1, size),
        Q=0.01 * np.eye(size),
        mean=np.zeros(size),
        covariance=np.eye(size),
    )


def lowest_eigenvalues(covariances):
    """Those of correlations, in roundings."""
    covariances = np.asarray(covariances, np.float64)
    stds = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    correlations = covariances / (stds[:, :, None] * stds[:, None, :])
    return np.linalg.eigvalsh(correlations)[:, 0] / np.finfo(np.float32).eps


@pytest.mark.parametrize("name", ["ekf", "iterated_ekf", "imm"])
def test_a_covariance_that_became_indefinite_is_reported(name):
    """Rejects a check for finite numbers: all of them are."""
    beliefs, info = run(FILTERS[name], growing(2), jnp.float32, observed=np.zeros(STEPS, bool))
    assert jnp.isfinite(beliefs.mean).all()
    assert jnp.isfinite(beliefs.covariance).all()
    lowest = lowest_eigenvalues(beliefs.covariance)
    assert lowest.min() < -200
    assert not info.finite[lowest < -100].any()
    assert info.finite[lowest > -1].all()


@pytest.mark.parametrize("name", ["ukf", "mcukf"])
def test_sigma_points_keep_covariances_semidefinite_to_rounding(name):
    """Their covariances are sums of squares, also where the others are none any more."""
    beliefs, info = run(FILTERS[name], growing(2), jnp.float32, observed=np.zeros(STEPS, bool))
    assert lowest_eigenvalues(beliefs.covariance).min() > -10
    assert info.finite.all()


SEMIDEFINITE = {
    "singular process noise": system(
        Q=np.outer([1 / 6, 1 / 2, 1.0], [1 / 6, 1 / 2, 1.0]), covariance=np.ones((3, 3))
    ),
    "a component without variance": system(
        F=np.array([[0.9, 0.0, 0.1], [0.0, 1.0, 0.0], [0.0, 0.0, 0.8]]),
        Q=np.diag([0.1, 0.0, 0.1]),
        covariance=np.diag([1.0, 0.0, 1.0]),
    ),
    "an exact sensor": system(R=np.zeros((1, 1))),
    "an exact sensor of a combination": system(H=np.array([[0.3, 1.7, -0.6]]), R=np.zeros((1, 1))),
    "exact sensors": system(H=np.array([[0.3, 1.7, -0.6], [1.0, 0.0, 0.0]]), R=np.zeros((2, 2))),
    "a precise sensor": system(R=1e-8 * np.eye(1)),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", ["ekf", "ukf", "mcukf", "imm"])
def test_covariances_without_a_density_are_covariances(name, dtype):
    """Rejects a plain Cholesky factorization, which fails for half of the exact sensors' steps."""
    for case, each in SEMIDEFINITE.items():
        _, info = run(FILTERS[name], each, dtype)
        assert info.finite.all(), case


def test_one_mode_without_a_covariance_is_enough():
    """Rejects a mixture that asks for the finite numbers of its components alone."""
    model, prior = linear_model(system())
    chances = filtrax.Transitions(np.full((2, 2), 0.5))
    process = filtrax.SwitchingProcess(model.process, (filtrax.Mode(), filtrax.Mode()), chances)
    model, filt = dataclasses.replace(model, process=process), filtrax.IMMFilter()
    predicted = filt.predict(
        model, filt.init(model, prior, key=jr.key(0)), jnp.zeros(1), key=jr.key(0)
    )
    measurement = filtrax.Measurement(jnp.zeros(1), jnp.eye(1))
    for sign in (1.0, -1.0):
        covariances = predicted.each.covariance.at[1, 2, 2].multiply(sign)
        changed = eqx.tree_at(lambda p: p.each.covariance, predicted, covariances)
        belief, info = eqx.filter_jit(filt.update)(model, changed, measurement, key=jr.key(0))
        assert jnp.isfinite(belief.components.covariance).all()
        assert info.finite == (sign > 0)


def roots_in(jaxpr):
    own = sum(each.primitive.name == "filtrax_square_root" for each in jaxpr.eqns)
    return own + sum(roots_in(sub) for sub in subjaxprs(jaxpr))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_who_asks_for_no_diagnostics_does_not_pay_for_them(device, request):
    """Rejects a square root in `run` or in its gradient, which the extended filter never takes."""
    if device == "gpu":
        request.getfixturevalue("on_gpu")
    model, prior = as_float32(linear_model(system()))
    arrays = jnp.zeros((4, 1), jnp.float32), jnp.zeros((4, 1), jnp.float32)

    def beliefs(covariance):
        data = filtrax.Trajectory(prior.mean, covariance, *arrays)
        return filter_trajectory(filtrax.ExtendedKalmanFilter(), model, data, key=jr.key(0))

    def total(covariance):
        return beliefs(covariance)[0].mean.sum() + beliefs(covariance)[0].covariance.sum()

    def used(function):
        return roots_in(dce_jaxpr(jax.make_jaxpr(function)(prior.covariance).jaxpr, True)[0])

    assert used(lambda covariance: beliefs(covariance)[1].finite) == 1
    assert used(lambda covariance: beliefs(covariance)[0].covariance) == 0
    assert used(jax.grad(total)) == 0
