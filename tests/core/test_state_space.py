"""The state-space model: draws of `simulate`, parts that are bound, and checks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax import (
    DirectSensor,
    Features,
    Gaussian,
    Measurement,
    ResidualProcess,
    Space,
    StateSpaceModel,
    constant_noise,
    heteroscedastic_noise,
    simulate,
)
from filtrax.state_space import check_model

A = np.asarray([[0.9, 0.2], [-0.1, 0.8]])
B = np.asarray([1.0, -2.0])
Q = np.asarray([[0.5, 0.2], [0.2, 0.3]])
H = np.asarray([[1.0, 0.5]])
R = 0.4


def linear_model(**parts):
    parts = {
        "state_space": Space(("x", "v")),
        "observation_space": Space(("z",)),
        "process": lambda state, inputs: jnp.asarray(A) @ state + jnp.asarray(B) * inputs,
        "process_noise": constant_noise(Q),
        "observe": lambda state, inputs: jnp.asarray(H) @ state,
        "sensor": DirectSensor(constant_noise([[R]])),
    } | parts
    return StateSpaceModel(**parts)


PRIOR = Gaussian([1.0, -1.0], [[1.0, 0.3], [0.3, 0.5]])


def assert_moments(samples, mean, covariance):
    """Sample mean and covariance within five standard errors."""
    count, variances = len(samples), np.diagonal(covariance)
    assert (np.abs(samples.mean(0) - mean) < 5 * np.sqrt(variances / count)).all()
    bound = 5 * np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert (np.abs(np.cov(samples.T) - covariance) < bound).all()


def test_simulated_states_and_readings_have_the_moments_of_the_model(key):
    # The joint moments of two steps reject inputs that act late, readings of the state
    # before, process noise that is left out or drawn twice, and correlated draws.
    inputs = jnp.asarray([3.0, -1.0])
    draw = jax.jit(jax.vmap(lambda key: simulate(linear_model(), PRIOR, inputs=inputs, key=key)))
    drawn = draw(jr.split(key, 20_000))
    samples = np.concatenate(
        [np.asarray(drawn.states).reshape(-1, 4), np.asarray(drawn.readings).reshape(-1, 2)], 1
    )
    mean_1 = A @ np.asarray(PRIOR.mean) + 3.0 * B
    mean_2 = A @ mean_1 - 1.0 * B
    first = A @ np.asarray(PRIOR.covariance) @ A.T + Q
    second = A @ first @ A.T + Q
    states = np.block([[first, first @ A.T], [A @ first, second]])
    both = np.kron(np.eye(2), H)
    covariance = np.block(
        [[states, states @ both.T], [both @ states, both @ states @ both.T + R * np.eye(2)]]
    )
    mean = np.concatenate([mean_1, mean_2, H @ mean_1, H @ mean_2])
    assert_moments(samples, mean, covariance)
    np.testing.assert_array_equal(drawn.initial[0], PRIOR.mean)
    np.testing.assert_array_equal(drawn.initial_covariance[0], PRIOR.covariance)


def test_simulated_process_noise_depends_on_the_state_before_the_step(key):
    noise = heteroscedastic_noise(lambda state, inputs: state * inputs, [0.0, 0.0])
    model = linear_model(process=lambda state, inputs: 0 * state, process_noise=noise)
    prior = Gaussian([2.0, 3.0], np.zeros((2, 2)))
    inputs = jnp.asarray([5.0])
    draw = jax.jit(jax.vmap(lambda key: simulate(model, prior, inputs=inputs, key=key)))
    states = np.asarray(draw(jr.split(key, 20_000)).states[:, 0])
    assert_moments(states, np.zeros(2), np.diag([100.0, 225.0]))


def test_simulated_angles_are_wrapped(key):
    model = linear_model(
        state_space=Space(("x", "v"), angles={"v": 360.0}),
        process=lambda state, inputs: state + jnp.asarray([0.0, 100.0]),
    )
    states = jax.jit(lambda key: simulate(model, PRIOR, num_steps=50, key=key).states)(key)
    assert (states[:, 1] >= -180).all()
    assert (states[:, 1] < 180).all()
    assert states[:, 1].min() < -50
    assert states[:, 1].max() > 50


def test_simulate_needs_either_inputs_or_a_number_of_steps(key):
    for arguments in ({}, {"inputs": jnp.zeros(3), "num_steps": 3}):
        with pytest.raises(ValueError, match="either `inputs` or `num_steps`"):
            simulate(linear_model(), PRIOR, key=key, **arguments)


class _Heavy(eqx.Module):
    mass: jax.Array

    def bind(self, context):
        return _Heavy(self.mass * context)

    def __call__(self, state, inputs):
        return state / self.mass


def test_bind_hands_the_context_to_each_part_that_wants_it():
    model = linear_model(process=_Heavy(jnp.asarray(2.0)), observe=_Heavy(jnp.asarray(5.0)))
    bound = model.bind(jnp.asarray(10.0))
    assert bound.process.mass == 20.0
    assert bound.observe.mass == 50.0
    assert bound.process_noise is model.process_noise
    assert bound.sensor is model.sensor
    assert bound.state_space is model.state_space
    assert model.process.mass == 2.0
    assert model.bind(None) is model


def test_simulate_binds_the_context_and_keeps_it(key):
    model = linear_model(
        process=_Heavy(jnp.asarray(1.0)),
        process_noise=constant_noise([0.0, 0.0]),
    )
    prior = Gaussian([8.0, 16.0], np.zeros((2, 2)))
    drawn = simulate(model, prior, num_steps=2, context=jnp.asarray(2.0), key=key)
    np.testing.assert_allclose(drawn.states, [[4.0, 8.0], [2.0, 4.0]])
    assert drawn.context == 2.0


def test_a_residual_process_adds_the_networks_output_in_natural_units():
    features = Features(Space(("x", "v")), scale={"x": 10.0, "v": 2.0})
    seen = []

    def network(features):
        seen.append(np.asarray(features))
        return jnp.asarray([0.5, -1.0])

    process = ResidualProcess(network, features)
    inputs = {"a": jnp.asarray([[7.0]]), "b": jnp.asarray(8.0)}
    after = process(jnp.asarray([30.0, 4.0]), inputs)
    np.testing.assert_allclose(seen[0], [3.0, 2.0, 7.0, 8.0])
    np.testing.assert_allclose(after, [35.0, 2.0])
    np.testing.assert_allclose(process(jnp.asarray([30.0, 4.0]), None), [35.0, 2.0])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"process": lambda x, u: x[:1]}, r"process\(state, inputs\)` must have shape \(2,\)"),
        ({"process_noise": constant_noise([1.0] * 3)}, r"process_noise.*\(2, 2\), got \(3, 3\)"),
        (
            {"observe": lambda x, u: x},
            r"observe\(state, inputs\)` must have shape \(1,\), got \(2,\)",
        ),
        ({"state_space": Space(("x",))}, r"`prior.mean` must have shape \(1,\), got \(2,\)"),
        ({"observation_space": Space(("y", "z"))}, r"measurement` must have shape \(2,\)"),
    ],
)
def test_parts_that_do_not_agree_are_named_with_both_shapes(parts, message):
    measurement = Measurement(jnp.zeros(1), jnp.eye(1))
    with pytest.raises(ValueError, match=message):
        check_model(linear_model(**parts), PRIOR, jnp.asarray(0.0), measurement)
