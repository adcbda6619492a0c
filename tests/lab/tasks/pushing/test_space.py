"""Orientations up to the symmetry of an object, which is another one in every sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.shapes import SYMMETRY
from filtrax.lab.tasks.pushing.space import (
    BOUNDS,
    RANGE_SCALES,
    STATE,
    observation_features,
    observation_space,
    observe,
    state_features,
    state_space,
)

PERIODS = sorted(set(SYMMETRY.values()))
TURNING = [period for period in PERIODS if period > 0]
STATES = np.random.default_rng(0).normal(size=(40, 10)) * [90, 90, 300, 20, 40, 90, 90, 1, 1, 1]
STATES[:, 2] += np.tile([0.0, 30.0, -45.0, 90.0, 180.0], 8)


def bound(period, part=None):
    return (state_space() if part is None else part).bind({"period": jnp.asarray(period)})


@jax.jit
@jax.vmap
def wrap(period, states):
    return jax.vmap(bound(period).wrap)(states)


@jax.jit
@jax.vmap
def differences(period, states):
    return jax.vmap(bound(period).difference)(states, states[::-1])


def for_all_periods(function):
    states = np.broadcast_to(STATES, (len(PERIODS), *STATES.shape))
    return dict(zip(PERIODS, np.asarray(function(np.asarray(PERIODS), states)), strict=True))


def test_wrapped_states_are_in_their_bounds_and_stay_as_they_are():
    # Rejects the same period for all objects, and bounds of other components.
    wrapped = for_all_periods(wrap)
    again = wrap(np.asarray(PERIODS), np.stack(list(wrapped.values())))
    np.testing.assert_array_equal(again, list(wrapped.values()))
    for period, states in wrapped.items():
        assert (np.abs(states[:, 2]) <= period / 2).all()
        for name, (lower, upper) in BOUNDS.items():
            given = STATES[:, STATE.index(name)]
            np.testing.assert_array_equal(
                states[:, STATE.index(name)], np.clip(given, lower, upper)
            )
        free = [0, 1, 5, 6, 7, 8]
        np.testing.assert_array_equal(states[:, free], STATES[:, free])


@pytest.mark.parametrize("period", TURNING)
def test_wrapping_turns_by_whole_symmetries_as_the_reference_does(period):
    # sgn(θ) (|θ| mod P), then into [-P/2, P/2].
    theta = STATES[:, 2]
    rest = np.sign(theta) * (np.abs(theta) % period)
    expected = np.where(rest > period / 2, rest - period, rest)
    expected = np.where(expected < -period / 2, expected + period, expected)
    difference = np.abs(for_all_periods(wrap)[period][:, 2] - expected)
    # Both ends of the interval are the same.
    assert (np.minimum(difference, np.abs(difference - period)) < 1e-9).all()


def test_differences_are_short_turns_and_otherwise_plain():
    # Rejects plain subtraction, and bounds that differences do not have.
    for period, found in for_all_periods(differences).items():
        plain = STATES - STATES[::-1]
        others = [i for i in range(10) if i != 2]
        np.testing.assert_array_equal(found[:, others], plain[:, others])
        assert (np.abs(found[:, 2]) <= period / 2).all()
        if period:
            turns = (plain[:, 2] - found[:, 2]) / period
            np.testing.assert_allclose(turns, np.round(turns), atol=1e-9)


def test_the_orientation_of_a_circle_is_zero_in_everything():
    weights = jnp.full(40, 1 / 40)

    @jax.jit
    def results(points):
        space = bound(0.0)
        mean = lambda points: space.mean(points, weights)  # noqa: E731
        pair = (space.wrap(points[3]), space.difference(points[3], points[4]))
        return (*pair, mean(points)), jax.grad(lambda points: mean(points).sum())(points)

    vectors, gradient = results(jnp.asarray(STATES))
    for vector in vectors:
        assert vector[2] == 0
        assert np.isfinite(vector).all()
    np.testing.assert_array_equal(gradient[:, 2], 0)
    np.testing.assert_allclose(gradient[:, 0], weights)


@jax.jit
def error_of_the_mean(period, offsets, shift, weights, referred):
    """What the mean of turned points differs by from the turned mean."""
    space = bound(period)
    points = jnp.zeros((3, 10)).at[:, 2].set(period * (offsets + shift))
    points = jax.vmap(space.wrap)(points)
    about = space.mean(points, weights, points[0])
    mean = jnp.where(referred, about, space.mean(points, weights))
    expected = jnp.zeros(10).at[2].set(period * (weights @ offsets + shift))
    return space.difference(mean, expected)[2]


@pytest.mark.parametrize("period", TURNING)
def test_means_are_circular_and_turn_with_the_points(period):
    # Rejects linear means, which are off by up to half a period.
    offsets = np.asarray([-0.1, 0.05, 0.15])
    for shift in (0.0, 0.45, -0.5, 7.3):
        for weights, referred in (([0.2, 0.5, 0.3], False), ([-1.0, 1.5, 0.5], True)):
            error = error_of_the_mean(period, offsets, shift, np.asarray(weights), referred)
            np.testing.assert_allclose(error, 0, atol=1e-9)


def test_an_unbound_space_turns_by_a_full_circle_and_networks_see_scaled_numbers():
    features = state_features(unseen=("l",))
    turned = jnp.asarray(STATES[0]).at[2].set(200.0)
    assert features.space.wrap(turned)[2] == state_space().wrap(turned)[2] == -160
    assert features.size == 9
    # What networks see does not depend on the sequence, though the space of their features does.
    for period in (0.0, 90.0):
        of_sequence = bound(period, features)
        assert of_sequence.space.wrap(turned)[2] == (20 if period else 0)
        seen = of_sequence(jnp.asarray(STATES[0]))
        np.testing.assert_allclose(seen, np.delete(STATES[0] / features.scale, 3))
    wider = state_features(RANGE_SCALES)(jnp.ones(10))
    np.testing.assert_allclose(wider, 1 / np.asarray([RANGE_SCALES[name] for name in STATE]))


def test_observations_are_states_without_friction():
    state = jnp.arange(10.0)
    np.testing.assert_array_equal(observe(state, None), [0, 1, 2, 5, 6, 7, 8, 9])
    space = observation_space()
    assert [STATE[int(i)] for i in observe(state, None)] == list(space.names)
    wrapped = bound(60.0, space).wrap(jnp.asarray([500.0, 0, 40.0, 0, 0, 2.0, 0, 1.5]))
    np.testing.assert_array_equal(wrapped, [500.0, 0, -20.0, 0, 0, 2.0, 0, 1.0])
    scales = np.asarray(observation_features().scale)
    np.testing.assert_array_equal(scales, observe(jnp.asarray(state_features().scale), None))
