"""Matrix products of filters are computed in full precision, whatever a device does by default."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import filtrax
from oracles.kalman import LinearSystem, kalman, simulate
from systems import (
    all_filters,
    as_float32,
    beacon_model,
    beacon_prior,
    beacon_trajectory,
    linear_model,
)

FILTERS = {name: filt for name, filt in all_filters().items() if name != "lstm"}


def products(jaxpr):
    """All matrix products in a program, the ones inside of loops and branches included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize("name", FILTERS)
def test_every_product_of_a_filter_and_its_loss_asks_for_full_precision(name):
    """Rejects products with the ten-bit mantissa that GPUs take for float32 by default."""
    filt, model, trajectory = as_float32((FILTERS[name], beacon_model(), beacon_trajectory(3)))
    loss = filtrax.losses.mixture_nll if name.startswith("pf") else filtrax.losses.mixed
    objective = filtrax.training.filtering(loss)
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)

    def value(parameters):
        model = eqx.combine(parameters, rest)
        return objective(filt, model, trajectory, jnp.asarray(0.0, jnp.float32), jr.key(0))

    program = jax.make_jaxpr(jax.value_and_grad(value))(parameters)
    found = list(products(program.jaxpr))
    assert len(found) >= 4
    for equation in found:
        assert equation.params["precision"] is not None, equation
        assert all(p == jax.lax.Precision.HIGHEST for p in equation.params["precision"])


class Wide(eqx.Module):
    """A network of somebody else's, whose products have no precision of their own."""

    first: jax.Array
    second: jax.Array

    def __call__(self, features):
        return self.second @ jnp.tanh(self.first @ features)


class Still(eqx.Module):
    """A process that adds what a network says of the state."""

    network: eqx.Module

    def __call__(self, state, inputs):
        return state + self.network(state)


def precisions(process):
    """Precisions that products with 32 rows ask for, in a run and its gradient."""
    model = as_float32(dataclasses.replace(beacon_model(), process=process))
    trajectory = as_float32(beacon_trajectory(3))
    prior = as_float32(beacon_prior())
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)

    def total(parameters):
        ekf, own = filtrax.ExtendedKalmanFilter(), eqx.combine(parameters, rest)
        result = filtrax.run(ekf, own, prior, trajectory.readings, inputs=trajectory.inputs)
        return result.log_likelihood

    program = jax.make_jaxpr(jax.value_and_grad(total))(parameters)
    wide = [e for e in products(program.jaxpr) if any(32 in v.aval.shape for v in e.invars)]
    assert len(wide) > 3
    return {equation.params["precision"] for equation in wide}


FULL = (jax.lax.Precision.HIGHEST,) * 2


def test_networks_that_ask_for_it_multiply_as_their_device_does():
    """Rejects `precise` around a filter that makes a process network's products `HIGHEST`."""
    matrices = np.random.default_rng(0).normal(size=(2, 32, 3)) / 10
    network = Wide(jnp.asarray(matrices[0]), jnp.asarray(matrices[1].T))
    assert precisions(Still(filtrax.fast(network))).isdisjoint({FULL})
    perceptron = filtrax.networks.Perceptron((3, 32, 3), key=jr.key(0))

    assert precisions(Still(perceptron)).isdisjoint({FULL})
    assert precisions(Still(network)) == {FULL}  # who asks for nothing has full precision


def test_a_position_of_ten_kilometres_is_exact_to_a_hundredth_of_its_deviation():
    """Rejects products of ten bits, by which such a position is off by metres on a GPU."""
    system = LinearSystem(
        F=np.asarray([[1.0, 0.1], [0.0, 0.99]]),
        G=np.zeros((2, 2)),
        H=np.asarray([[1.0, 0.0]]),
        Q=np.diag([0.01, 0.01]),
        R=np.eye(1),
        mean=np.asarray([1e4, 10.0]),
        covariance=np.eye(2),
    )
    controls, _, readings = simulate(system, np.random.default_rng(0), 100)
    readings = np.asarray(readings, np.float32).astype(float)
    means, covariances, _ = kalman(system, controls, readings, np.ones(readings.shape, bool))
    model, prior = as_float32(linear_model(system))
    arrays = (jnp.asarray(array, jnp.float32) for array in (readings, controls))
    readings, inputs = arrays
    result = filtrax.run(filtrax.ExtendedKalmanFilter(), model, prior, readings, inputs=inputs)
    stds = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    assert (np.abs(np.asarray(result.beliefs.mean, float) - means) < 0.01 * stds).all()


@pytest.mark.parametrize("ratio", [1e4, 1e8])
def test_what_is_never_observed_stays_uncertain(ratio):
    """Rejects rounding that counts as a reading of a direction which no sensor sees.

    Four constants without process noise, of which two combinations are read 1,000 times.
    """
    mixing = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    matrix = np.eye(2, 4) @ mixing
    readings = np.random.default_rng(1).normal(size=(1000, 2))

    def stds(dtype):
        seen = jnp.asarray(matrix, dtype)
        model = filtrax.StateSpaceModel(
            process=lambda state, inputs: state,
            process_noise=filtrax.constant_noise(jnp.zeros(4, dtype)),
            observe=lambda state, inputs: seen @ state,
            sensor=filtrax.DirectSensor(filtrax.constant_noise(jnp.ones(2, dtype))),
        )
        prior = filtrax.Gaussian(jnp.zeros(4, dtype), ratio * jnp.eye(4, dtype=dtype))
        ekf = filtrax.ExtendedKalmanFilter()
        beliefs = filtrax.run(ekf, model, prior, jnp.asarray(readings, dtype)).beliefs
        return np.linalg.norm(np.asarray(beliefs.factor, float), axis=-1)

    np.testing.assert_allclose(stds(jnp.float32), stds(jnp.float64), rtol=1e-3)
