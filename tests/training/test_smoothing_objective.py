"""Training through a smoother, and of a filter on a smoother's labels."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax.smoothing import RauchTungStriebel, self_label
from filtrax.training import smoothing
from filtrax.trajectory import pad
from systems import beacon_model, beacon_prior, beacon_trajectory

EKF = filtrax.ExtendedKalmanFilter()
SPACE = beacon_model().state_space


@eqx.filter_jit
def value(objective, trajectory):
    progress = jnp.zeros(())
    return objective(EKF, beacon_model(), trajectory, progress, jr.key(0))


def test_is_the_mean_loss_of_the_path():
    """With gaps in the labels: rejects losses of the filter's beliefs."""
    trajectory = beacon_trajectory(6)
    labels = jnp.asarray([1, 1, 0, 1, 1, 0], bool)
    trajectory = dataclasses.replace(trajectory, labelled=labels)
    found = filtrax.smooth(
        EKF, beacon_model(), beacon_prior(), trajectory.readings, inputs=trajectory.inputs
    )
    nll = jax.vmap(lambda belief, state: filtrax.losses.nll(belief, state, SPACE))
    each = np.asarray(nll(found.beliefs, trajectory.states))
    np.testing.assert_allclose(value(smoothing(), trajectory), each[labels].mean(), rtol=1e-9)


@pytest.mark.long
def test_the_end_is_the_last_labelled_step_and_passes_change_the_path():
    labels = jnp.asarray([1, 1, 0, 1, 1, 0], bool)
    trajectory = dataclasses.replace(beacon_trajectory(6), labelled=labels)
    arguments = (EKF, beacon_model(), beacon_prior(), trajectory.readings)
    found = filtrax.smooth(*arguments, inputs=trajectory.inputs)
    belief = jax.tree.map(lambda leaf: leaf[4], found.beliefs)
    end = value(smoothing(endpoint=True), trajectory)
    expected = filtrax.losses.nll(belief, trajectory.states[4], SPACE)
    np.testing.assert_allclose(end, expected, rtol=1e-9)
    padded = value(smoothing(endpoint=True), pad(trajectory, 8))
    np.testing.assert_allclose(padded, end, rtol=1e-8)
    passes = value(smoothing(smoother=RauchTungStriebel(passes=3)), trajectory)
    assert abs(passes - value(smoothing(), trajectory)) > 1e-6


def data(count, steps=30):
    trajectories = [beacon_trajectory(steps, seed) for seed in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trajectories)


@pytest.mark.long
def test_training_through_the_smoother_finds_the_noise():
    """Rejects a gradient that does not pass the backward loop."""
    model = beacon_model(process_std=(0.4, 0.4, 0.2), sensor_std=(0.2, 0.1))
    known = {"objective": smoothing(), "train": ("model.process_noise",)}
    known |= {"optimizer": optax.adam(3e-2), "num_steps": 150, "batch_size": 8}
    _, trained, history = filtrax.fit(EKF, model, data(16), **known, key=jr.key(0))
    assert history.loss[-20:].mean() < history.loss[:5].mean() - 0.5
    np.testing.assert_allclose(jnp.abs(trained.process_noise.std), [0.1, 0.1, 0.05], rtol=0.4)


@pytest.mark.long
def test_labels_are_smoothed_means_and_known_states_stay():
    trajectory = beacon_trajectory(5)
    unlabelled = dataclasses.replace(trajectory, states=None)
    arguments = (beacon_prior(), trajectory.readings)
    found = filtrax.smooth(EKF, beacon_model(), *arguments, inputs=trajectory.inputs)
    labelled = self_label(EKF, beacon_model(), unlabelled)
    np.testing.assert_allclose(labelled.states, found.beliefs.mean, rtol=1e-12)
    assert labelled.labelled.all()
    partly = dataclasses.replace(trajectory, labelled=jnp.arange(5) == 2)
    mixed = self_label(EKF, beacon_model(), partly)
    np.testing.assert_array_equal(mixed.states[2], trajectory.states[2])
    np.testing.assert_allclose(mixed.states[3], found.beliefs.mean[3], rtol=1e-12)


@pytest.mark.long
def test_labels_that_are_not_sure_are_left_out_of_each_sequence():
    trajectory = dataclasses.replace(beacon_trajectory(5), states=None)
    arguments = (beacon_prior(), trajectory.readings)
    found = filtrax.smooth(EKF, beacon_model(), *arguments, inputs=trajectory.inputs)
    std = np.sqrt(np.diagonal(found.beliefs.covariance, axis1=1, axis2=2))
    limit = np.median(std, axis=0)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), trajectory)
    few = self_label(EKF, beacon_model(), both, largest_std=jnp.asarray(limit))
    np.testing.assert_array_equal(few.labelled, np.stack([std <= limit] * 2))
    np.testing.assert_allclose(few.states[1], found.beliefs.mean, rtol=1e-12)


@pytest.mark.long
def test_a_filter_learns_its_sensor_noise_from_smoothed_labels():
    """No true state is used: the learned noise must still be closer to the truth than the start."""
    model = beacon_model(sensor_std=(0.5, 0.3))
    unlabelled = dataclasses.replace(data(16), states=None)
    labelled = self_label(EKF, model, unlabelled)
    known = {"objective": filtrax.training.sensor_nll, "train": ("model.sensor.noise",)}
    known |= {"optimizer": optax.adam(3e-2), "num_steps": 200, "batch_size": 8}
    _, trained, _ = filtrax.fit(EKF, model, labelled, **known, key=jr.key(0))
    error = jnp.abs(jnp.log(jnp.abs(trained.sensor.noise.std) / jnp.asarray([0.2, 0.1])))
    assert (error < 0.25).all()
