"""Trajectories: which state a sub-sequence starts from, and what padding says of itself."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax import DirectSensor, Trajectory, constant_noise, stack_sensors
from filtrax.sensors import sense
from filtrax.trajectory import (
    known_states,
    pad,
    perturb,
    random_subsequence,
    split,
    stack,
    subsequence,
)

STEPS = 6


def trajectory(steps=STEPS, **arguments):
    """Step t has state (10 + t, 20 + t), input t and reading 100 + t."""
    time = np.arange(steps, dtype=float)
    return Trajectory(
        initial=[9.0, 19.0],
        initial_covariance=np.diag([4.0, 9.0]),
        readings=jnp.asarray(100 + time[:, None]),
        inputs={"u": jnp.asarray(time)},
        states=jnp.asarray(np.stack([10 + time, 20 + time], 1)),
        context=jnp.asarray(7.0),
        **arguments,
    )


def test_a_subsequence_starts_at_the_state_before_it():
    # Rejects a start at states[start], and inputs or readings that are shifted by one.
    whole, cut = trajectory(), jax.jit(subsequence, static_argnums=2)
    for start in range(STEPS - 2):
        for part in (subsequence(whole, start, 3), cut(whole, jnp.asarray(start), 3)):
            np.testing.assert_array_equal(part.initial, [9.0 + start, 19.0 + start])
            steps = np.arange(start, start + 3)
            np.testing.assert_array_equal(part.inputs["u"], steps)
            np.testing.assert_array_equal(part.readings[:, 0], 100 + steps)
            np.testing.assert_array_equal(part.states[:, 0], 10 + steps)
            np.testing.assert_array_equal(part.initial_covariance, np.diag([4.0, 9.0]))
            assert part.context == 7.0


def test_a_subsequence_takes_its_masks_along():
    time = np.arange(STEPS)
    observed = jnp.asarray(time % 2 == 0)
    labelled = jnp.asarray(np.stack([time > 1, time > 2], 1))
    part = subsequence(trajectory(observed=observed, labelled=labelled), 2, 3)
    np.testing.assert_array_equal(part.observed, [True, False, True])
    np.testing.assert_array_equal(part.labelled, [[True, False], [True, True], [True, True]])


@pytest.mark.parametrize(
    ("start", "length", "message"),
    [
        (0, 7, "`length` must be between 1 and the 6 steps"),
        (0, 0, "`length` must be between 1"),
        (4, 3, "`start` must be between 0 and 3"),
        (-1, 3, "`start` must be between 0"),
    ],
)
def test_a_subsequence_that_does_not_fit_raises(start, length, message):
    with pytest.raises(ValueError, match=message):
        subsequence(trajectory(), start, length)


def test_random_subsequences_reach_all_starts_but_those_after_an_unknown_state():
    # States 1 and 2 are not fully labelled, so starts 2 and 3 have nothing to begin with.
    labelled = np.ones((STEPS, 2), bool)
    labelled[1] = False
    labelled[2, 1] = False
    whole = trajectory(labelled=jnp.asarray(labelled))
    whole = Trajectory(
        whole.initial,
        whole.initial_covariance,
        whole.readings,
        inputs=whole.inputs,
        states=jnp.where(whole.labelled, whole.states, jnp.nan),
        labelled=whole.labelled,
    )
    draw = jax.jit(jax.vmap(lambda key: random_subsequence(whole, 2, key=key)))
    parts = draw(jr.split(jr.key(0), 3000))
    starts, counts = np.unique(np.asarray(parts.inputs["u"][:, 0]), return_counts=True)
    np.testing.assert_array_equal(starts, [0, 1, 4])
    # Uniform: each count is binomial with p = 1/3.
    assert (np.abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()
    assert jnp.isfinite(parts.initial).all()
    np.testing.assert_array_equal(parts.initial[:, 0], 9 + parts.inputs["u"][:, 0])


def test_undefined_components_are_zero_and_unlabelled_but_hinder_no_start():
    # Rejects starts at the beginning only, and a start at what the data have in its place.
    whole = trajectory(undefined=jnp.asarray([False, True]))
    states, labels = whole.known_states()
    np.testing.assert_array_equal(states[:, 1], np.zeros(STEPS))
    np.testing.assert_array_equal(labels, np.tile([True, False], (STEPS, 1)))
    assert whole.complete().all()
    draw = jax.jit(jax.vmap(lambda key: random_subsequence(whole, 2, key=key)))
    parts = draw(jr.split(jr.key(0), 200))
    starts = np.asarray(parts.inputs["u"][:, 0])
    np.testing.assert_array_equal(np.unique(starts), np.arange(STEPS - 1))
    expected = np.where(starts == 0, 19.0, 0.0)
    np.testing.assert_array_equal(parts.initial, np.stack([9 + starts, expected], 1))
    # What is unknown is something else: it still hinders a start.
    labelled = jnp.asarray(np.arange(STEPS) != 2)
    assert trajectory(labelled=labelled, undefined=whole.undefined).complete().sum() == 5


def test_stacked_trajectories_have_masks_of_undefined_components_alike():
    stacked = stack([trajectory(), trajectory(undefined=jnp.asarray([True, False]))])
    np.testing.assert_array_equal(stacked.undefined, [[False, False], [True, False]])
    assert stack([trajectory(), trajectory()]).undefined is None


def test_a_random_subsequence_of_full_length_is_the_whole():
    part = random_subsequence(trajectory(), STEPS, key=jr.key(0))
    np.testing.assert_array_equal(part.states, trajectory().states)
    np.testing.assert_array_equal(part.initial, trajectory().initial)


def test_perturbed_initial_states_are_drawn_from_the_prior():
    count = 20_000
    draw = jax.jit(jax.vmap(lambda key: perturb(trajectory(), key=key)))
    drawn = draw(jr.split(jr.key(0), count))
    samples, covariance = np.asarray(drawn.initial), np.diag([4.0, 9.0])
    assert (np.abs(samples.mean(0) - [9, 19]) < 5 * np.sqrt(np.asarray([4, 9]) / count)).all()
    bound = 5 * np.sqrt((np.outer([4, 9], [4, 9]) + covariance**2) / count)
    assert (np.abs(np.cov(samples.T) - covariance) < bound).all()
    np.testing.assert_array_equal(drawn.initial_covariance[0], covariance)


def test_padding_is_neither_observed_nor_labelled():
    padded = pad(trajectory(), 8)
    expected = np.arange(8) < STEPS
    np.testing.assert_array_equal(padded.observed, expected)
    np.testing.assert_array_equal(padded.labelled, expected)
    np.testing.assert_array_equal(padded.states[:STEPS], trajectory().states)
    assert padded.num_steps == 8
    assert padded.context == 7.0
    again = pad(padded, 9)
    np.testing.assert_array_equal(again.observed, np.arange(9) < STEPS)


def test_padding_keeps_the_masks_that_were_there():
    observed = jnp.asarray([[True], [False]] * 3)
    labelled = jnp.asarray([True, False] * 3)
    padded = pad(trajectory(observed=observed, labelled=labelled), 7)
    np.testing.assert_array_equal(padded.observed, [[True], [False]] * 3 + [[False]])
    np.testing.assert_array_equal(padded.labelled, [True, False] * 3 + [False])


def test_padding_cannot_shorten():
    with pytest.raises(ValueError, match="`num_steps` must be at least the 6 steps"):
        pad(trajectory(), 5)


def _one_step(readings):
    return Trajectory(jnp.zeros(1), jnp.eye(1), readings)


def test_a_padded_trajectory_of_stacked_sensors_can_be_sensed(key):
    one = DirectSensor(constant_noise([1.0]))
    column = jnp.ones((1, 1))
    padded = pad(_one_step((column, column)), 2)
    for step, seen in enumerate((True, False)):
        reading, observed = jax.tree.map(lambda a, t=step: a[t], (padded.readings, padded.observed))
        measurement = sense(stack_sensors(one, one), reading, observed, None, None, key=key)
        np.testing.assert_array_equal(measurement.seen(), [seen] * 2)


def test_a_padded_trajectory_of_nested_stacks_can_be_sensed(key):
    one = DirectSensor(constant_noise([1.0]))
    column = jnp.ones((1, 1))
    padded = pad(_one_step(((column, column), column)), 2)
    sensor = stack_sensors(stack_sensors(one, one), one)
    for step, seen in enumerate((True, False)):
        reading, observed = jax.tree.map(lambda a, t=step: a[t], (padded.readings, padded.observed))
        measurement = sense(sensor, reading, observed, None, None, key=key)
        np.testing.assert_array_equal(measurement.seen(), [seen] * 3)


def test_stacking_pads_to_the_longest_and_marks_it():
    data = stack([trajectory(3), trajectory(6), trajectory(3)])
    assert data.states.shape == (3, 6, 2)
    assert data.inputs["u"].shape == (3, 6)
    np.testing.assert_array_equal(np.sum(data.observed, 1), [3, 6, 3])
    np.testing.assert_array_equal(np.sum(data.labelled, 1), [3, 6, 3])
    np.testing.assert_array_equal(data.states[0, :3], trajectory(3).states)


def test_stacking_equal_lengths_adds_nothing():
    data = stack([trajectory(), trajectory()])
    assert data.observed is None
    assert data.labelled is None
    with pytest.raises(ValueError, match="at least one trajectory"):
        stack([])


def test_stacking_makes_masks_alike_without_changing_what_they_say():
    by_step = jnp.asarray([True, False] * 3)
    by_component = jnp.asarray([[True, False]] * 3 + [[False, False]] * 3)
    data = stack([trajectory(labelled=by_component), trajectory(labelled=by_step), trajectory()])
    np.testing.assert_array_equal(data.labelled[0], by_component)
    np.testing.assert_array_equal(data.labelled[1], np.repeat(by_step[:, None], 2, 1))
    assert data.labelled[2].all()
    assert data.observed is None


def test_a_split_is_shuffled_disjoint_and_complete():
    data = Trajectory(
        initial=np.arange(20.0).reshape(10, 2),
        initial_covariance=np.tile(np.eye(2), (10, 1, 1)),
        readings=np.tile(100 + np.arange(10.0)[:, None, None], (1, STEPS, 1)),
    )
    parts = split(data, (5, 3, 2), key=jr.key(0))
    assert [part.initial.shape[0] for part in parts] == [5, 3, 2]
    chosen = np.concatenate([np.asarray(part.initial[:, 0]) / 2 for part in parts])
    np.testing.assert_array_equal(np.sort(chosen), np.arange(10))
    assert (chosen != np.arange(10)).any()
    readings = np.concatenate([np.asarray(part.readings[:, 0, 0]) for part in parts])
    np.testing.assert_array_equal(readings, 100 + chosen)


@pytest.mark.parametrize("sizes", [(5, 6), (0, 3), ()])
def test_a_split_that_does_not_fit_raises(sizes):
    with pytest.raises(ValueError, match="`sizes` must be positive and sum to at most 10"):
        split(stack([trajectory()] * 10), sizes, key=jr.key(0))


def test_known_states_are_zero_where_they_are_not_labelled():
    states = jnp.asarray([[1.0, jnp.nan], [jnp.nan, jnp.nan], [5.0, 6.0]])
    for labelled in ([[True, False], [False, False], [True, True]],):
        known, labels = known_states(states, jnp.asarray(labelled))
        np.testing.assert_array_equal(known, [[1.0, 0.0], [0.0, 0.0], [5.0, 6.0]])
        np.testing.assert_array_equal(labels, labelled)
    _, labels = known_states(states, jnp.asarray([True, False, True]))
    np.testing.assert_array_equal(labels, [[True] * 2, [False] * 2, [True] * 2])
    assert known_states(states, None)[1].all()


def test_a_trajectory_without_states_says_so_where_they_are_needed():
    unlabelled = Trajectory(jnp.zeros(2), jnp.eye(2), jnp.zeros((4, 1)))
    with pytest.raises(ValueError, match="`states` of the trajectory is None"):
        subsequence(unlabelled, 0, 2)
    assert pad(unlabelled, 5).states is None
