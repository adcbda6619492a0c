"""The interacting filter where numbers are hard: angles, modes without probability, gradients."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import filtrax
from filtrax import IMMFilter, Mode, SwitchingProcess, Transitions
from filtrax.filters import filter_trajectory
from filtrax.filters.interacting import mix
from oracles.switching import simulate
from systems import (
    MANOEUVRES,
    POLAR,
    POSE,
    as_float32,
    beacon_model,
    beacon_trajectory,
    switching_beacon_model,
    switching_model,
)


def assert_close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_mixes_angles_the_short_way_round():
    """Headings 0.2 apart across the seam: their plain mean would point backwards."""
    means = jnp.asarray([[0.0, 0.0, jnp.pi - 0.1], [1.0, 0.0, 0.1 - jnp.pi]])
    components = filtrax.Gaussian(means, 0.01 * jnp.stack([jnp.eye(3)] * 2))
    belief = filtrax.GaussianMixture(components, jnp.log(jnp.asarray([0.5, 0.5])))
    chances = Transitions(np.full((2, 2), 0.5))
    stay = SwitchingProcess(lambda x, u: x, (Mode(),) * 2, chances)
    model = dataclasses.replace(beacon_model(), process=stay)

    @jax.jit
    def mixed(belief):
        predicted = IMMFilter().predict(model, belief, jnp.zeros(2), key=jr.key(0))
        return belief.moments(POSE), predicted.belief.components.mean

    found, means = mixed(belief)
    expected = jnp.asarray([0.5, 0.0, jnp.pi])
    assert_close(POSE.difference(found.mean, expected), 0.0, 1e-12)
    assert_close(found.covariance[2, 2], 0.01 + 0.1**2)
    assert_close(found.covariance[0, 2], 0.5 * 0.1)
    for mean in means:  # both modes start from the mixture
        assert_close(POSE.difference(mean, expected), 0.0, 1e-12)


def test_innovations_of_angles_are_averaged_across_half_a_turn():
    """Two modes that expect bearings on both sides of the one opposite to the reading."""
    bearings = jnp.asarray([0.1, -0.1])
    modes = tuple(Mode(observe=lambda x, u, b=b: jnp.stack([x[0], b])) for b in bearings)
    process = SwitchingProcess(lambda x, u: x, modes, Transitions([[0.75, 0.25]] * 2))
    model = dataclasses.replace(beacon_model(), process=process)
    filt, prior = IMMFilter(), filtrax.Gaussian(jnp.zeros(3), 0.04 * jnp.eye(3))
    belief = filt.init(model, prior, key=jr.key(0))
    reading = POLAR.wrap(jnp.asarray([0.0, jnp.pi]))
    measurement = filtrax.Measurement(reading, 0.01 * jnp.eye(2))
    step = eqx.filter_jit(filt.step)
    _, info = step(model, belief, measurement, jnp.zeros(2), key=jr.key(0))
    expected = 0.75 * 0.1 - 0.25 * 0.1
    assert_close(POLAR.difference(reading, info.innovation)[1], expected, 1e-12)
    variance = 0.75 * 0.1**2 + 0.25 * 0.1**2 - expected**2
    assert_close(info.innovation_covariance[1, 1], 0.01 + variance, 1e-12)


def test_mixing_has_finite_values_and_gradients_where_modes_cannot_be_reached():
    """Rejects 0 / 0 in the mixing weights of a mode that has no probability, and its gradient."""
    log_weights = jnp.asarray([0.0, -jnp.inf, -jnp.inf])
    log_matrix = jnp.log(jnp.asarray([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]))

    def total(log_weights, log_matrix):
        weights, mixing = mix(log_weights, log_matrix)
        return jnp.exp(weights) @ jnp.arange(3.0) + (jnp.exp(mixing) ** 2).sum()

    weights, mixing = jax.jit(mix)(log_weights, log_matrix)
    np.testing.assert_allclose(jnp.exp(weights), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(jnp.exp(mixing), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    for gradient in jax.jit(jax.grad(total, (0, 1)))(log_weights, log_matrix):
        assert jnp.isfinite(gradient).all()
    spoilt = jnp.asarray([jnp.nan, 0.0, 0.0])  # of a filter that diverged, which must not be hidden
    assert jnp.isnan(jax.jit(mix)(spoilt, log_matrix)[0]).any()


def test_gradients_are_finite_where_a_mode_has_no_probability_left():
    """A mode 10⁵ nats behind, in single precision: exp of its log weight is zero."""
    line = filtrax.Space(("x",))
    noise = filtrax.constant_noise([0.01])
    far = Mode(observe=lambda x, u: x + 15.0)
    model = filtrax.StateSpaceModel(
        SwitchingProcess(lambda x, u: 0.9 * x, (Mode(), far), Transitions(np.eye(2))),
        noise,
        lambda x, u: x,
        filtrax.DirectSensor(noise),
        state_space=line,
        observation_space=line,
    )
    trajectory = filtrax.Trajectory(
        jnp.zeros(1), 1e-4 * jnp.eye(1), jnp.zeros((4, 1)), states=jnp.zeros((4, 1))
    )
    model, trajectory = as_float32((model, trajectory))

    def losses(model):
        result = filter_trajectory(IMMFilter(), model, trajectory)
        beliefs = result.beliefs
        density = jax.vmap(lambda b, x: b.log_density(x, line))(beliefs, trajectory.states)
        nll = jax.vmap(lambda b, x: filtrax.losses.nll(b, x, line))(beliefs, trajectory.states)
        return density.sum() + nll.sum() + result.log_likelihood, beliefs.log_weights[-1]

    (value, log_weights), gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(losses, has_aux=True)
    )(model)
    assert log_weights[1] < -1e5
    assert jnp.exp(log_weights[1]) == 0
    assert jnp.isfinite(value)
    for leaf in jax.tree.leaves(gradient):
        assert jnp.isfinite(leaf).all()


class SmoothHead(eqx.Module):
    weight: jax.Array

    def __call__(self, state, inputs):
        return jnp.tanh(self.weight @ jnp.concatenate([state, inputs]))


@pytest.mark.parametrize("name", ["linear", pytest.param("beacon", marks=pytest.mark.long)])
def test_gradients_equal_finite_differences(name):
    """Through mixing, transitions that depend on the state, and every part of a mode.

    Rejects a cut gradient, and a NaN that leaks from a masked reading.
    """
    if name == "beacon":
        model, trajectory = switching_beacon_model(), beacon_trajectory(4)
        seen = jnp.asarray([[1, 1], [1, 0], [0, 0], [1, 1]], bool)
    else:
        model, prior = switching_model(MANOEUVRES)
        arrays = simulate(MANOEUVRES, np.random.default_rng(1), 4)
        controls, _, states, readings = map(jnp.asarray, arrays)
        trajectory = filtrax.Trajectory(
            prior.mean, prior.covariance, readings, inputs=controls, states=states
        )
        seen = jnp.asarray([[1], [1], [0], [1]], bool)
    readings = jnp.where(seen, trajectory.readings, jnp.nan)
    trajectory = dataclasses.replace(trajectory, readings=readings, observed=seen)
    inputs = model.state_space.size + 2
    head = SmoothHead(jnp.asarray(np.random.default_rng(0).normal(size=(4, inputs))))
    chances = filtrax.LearnedTransitions([[0.7, 0.3], [0.4, 0.6]], head=head)
    model = eqx.tree_at(lambda m: m.process.transitions, model, chances)
    parameters, rest = eqx.partition((model, trajectory.initial), eqx.is_inexact_array)
    start, unravel = ravel_pytree(parameters)

    def total(vector):
        """The losses and the likelihood, with weights that let none hide behind another."""
        model, initial = eqx.combine(unravel(vector), rest)
        moved = dataclasses.replace(trajectory, initial=initial)
        result = filter_trajectory(IMMFilter(), model, moved)

        def terms(belief, state):
            nll = filtrax.losses.nll(belief, state, model.state_space)
            return 1.3 * nll + 0.7 * belief.log_density(state, model.state_space)

        scores = jax.vmap(terms)(result.beliefs, trajectory.states)
        return scores.sum() + 2 * result.log_likelihood

    value_and_gradient = jax.jit(jax.value_and_grad(total))
    _, gradient = value_and_gradient(start)
    assert jnp.abs(ravel_pytree(unravel(gradient)[0].process.transitions)[0]).min() > 0
    step, rng = 1e-5, np.random.default_rng(0)
    for direction in rng.normal(size=(6, start.size)):
        ahead, behind = (value_and_gradient(start + sign * step * direction)[0] for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-5, atol=1e-5)
