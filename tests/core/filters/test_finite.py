"""`Info.finite`, and covariances that a filter keeps semidefinite or says it has lost."""

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
    inputs, readings = jnp.zeros((STEPS, 1), dtype), jnp.asarray(readings, dtype)
    filt = as_float32(filt) if dtype == jnp.float32 else filt
    result = filtrax.run(
        filt, model, prior, readings, inputs=inputs, observed=observed, key=jr.key(0)
    )
    return jax.vmap(lambda belief: belief.moments(model.state_space))(result.beliefs), result.info


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


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("seed", [2, 5])
def test_a_covariance_that_grows_unseen_stays_semidefinite(name, seed):
    """Rejects F P Fᵀ + Q of a covariance: in single precision it is indefinite after some steps."""
    beliefs, info = run(FILTERS[name], growing(seed), jnp.float32, np.zeros(STEPS, bool))
    assert lowest_eigenvalues(beliefs.covariance).min() > -10
    assert info.finite.all()


def test_a_negative_weight_that_leaves_no_covariance_is_reported():
    """Rejects a clamp where sigma points subtract more than there is, and a silent NaN."""
    model, prior = linear_model(system())
    model = dataclasses.replace(model, process=lambda x, _: 3.0 * x**2)
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(kappa=-2.5))
    result = filtrax.run(filt, model, prior, jnp.zeros((3, 1)))
    assert not result.info.finite.any()
    assert not jnp.isfinite(result.beliefs.covariance).all((1, 2)).any()
    kept = dataclasses.replace(filt, drop_negative_centre=True)
    assert filtrax.run(kept, model, prior, jnp.zeros((1, 1))).info.finite.all()


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
    """Rejects a mixture that asks whether the weights are finite, and not each component."""
    model, prior = linear_model(system())
    chances = filtrax.Transitions(np.full((2, 2), 0.5))
    process = filtrax.SwitchingProcess(model.process, (filtrax.Mode(), filtrax.Mode()), chances)
    model, filt = dataclasses.replace(model, process=process), filtrax.IMMFilter()
    predicted = filt.predict(model, filt.init(model, prior), jnp.zeros(1))
    measurement = filtrax.Measurement(jnp.zeros(1), jnp.eye(1))
    for entry in (1.0, jnp.nan):
        roots = predicted.each.factor.at[1, 2, 2].multiply(entry)
        changed = eqx.tree_at(lambda p: p.each.factor, predicted, roots)
        _, info = eqx.filter_jit(filt.update)(model, changed, measurement, jnp.zeros(1))
        assert info.finite == (entry == 1.0)


def roots_in(jaxpr):
    own = sum(equation.primitive.name == "filtrax_square_root" for equation in jaxpr.eqns)
    return own + sum(roots_in(sub) for sub in subjaxprs(jaxpr))


def test_no_step_takes_the_root_of_a_covariance():
    """Rejects a belief that is squared and factorized again, in `run` or in its gradient."""
    model, prior = as_float32(linear_model(system()))
    zeros = jnp.zeros((4, 1), jnp.float32)

    def total(covariance):
        data = filtrax.Trajectory(prior.mean, covariance, zeros, inputs=zeros)
        result = filter_trajectory(filtrax.ExtendedKalmanFilter(), model, data)
        return result.beliefs.mean.sum() + result.beliefs.covariance.sum()

    traced = jax.make_jaxpr(jax.value_and_grad(total))(prior.covariance)
    used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))[0]
    assert roots_in(used) == 1  # that of the prior
