"""Evaluation of ensembles against single runs of the filter."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import small_training as small
from filtrax import Gaussian, run, sensors
from filtrax.losses import nll, squared_error
from filtrax.metrics import mean_distance, mean_nll
from filtrax.novelty import GuardedSensor, Novelty
from filtrax.training import evaluation
from filtrax.training.evaluation import ObjectiveScore, evaluate, in_chunks, tracking
from filtrax.training.objectives import sensor_nll

pytestmark = pytest.mark.xdist_group("ensembles")

KEYS = jr.split(jr.key(3), 3)


@pytest.fixture(scope="module")
def scores():
    """With chunks of two of five sequences, so that the last one overlaps the one before."""
    del small.ENCODED[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "SEQUENCES_AT_ONCE", 2)
        found = evaluate(
            tracking(nll), *small.ensemble(), small.VALIDATION, small.PERTURBATIONS, KEYS
        )
    # One trace, or none after other tests: the sensor is outside of the perturbations.
    assert len(small.ENCODED) <= 1
    return found


def test_scores_have_axes_of_members_perturbations_and_trajectories(scores):
    assert scores["loss"].shape == scores["distance"].shape == (3, 2, 5)
    assert len(np.unique(scores["loss"])) == 30


def test_scores_are_those_of_single_runs_from_perturbed_starts(scores):
    # Rejects perturbations that are not added, mixed up axes, and chunks out of order.
    data, space = small.VALIDATION, small.build(jr.key(0))[1].state_space
    for index in (0, 2):
        filt, model = small.member(small.ensemble(), index)
        for p, n in ((0, 0), (1, 2), (1, 4), (0, 3)):
            prior = Gaussian(data.initial[n] + small.PERTURBATIONS[p], data.initial_covariance[n])
            beliefs = run(filt, model, prior, data.readings[n]).beliefs
            expected = mean_distance(beliefs, data.states[n], space)
            np.testing.assert_allclose(scores["distance"][index, p, n], expected, rtol=1e-9)
            expected = mean_nll(beliefs, data.states[n], space)
            np.testing.assert_allclose(scores["loss"][index, p, n], expected, rtol=1e-9)


def test_another_score_needs_no_other_program_of_the_encoder(scores):
    del scores, small.ENCODED[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "SEQUENCES_AT_ONCE", 2)
        inputs = (*small.ensemble(), small.VALIDATION, small.PERTURBATIONS, KEYS)
        evaluate(tracking(squared_error), *inputs)
    assert not small.ENCODED


def test_given_readings_replace_those_of_the_data_for_each_member():
    # Rejects features of the first member for all.
    model = small.ensemble()[1]
    features = evaluation.encode(model, small.VALIDATION, KEYS)
    assert features.shape == (3, 5, small.NUM_STEPS, 4)
    matrix = model.sensor.encoder.matrix
    expected = np.tanh(np.einsum("mfr,ntr->mntf", matrix, small.VALIDATION.readings))
    np.testing.assert_allclose(features, expected, rtol=1e-12)
    given = evaluation.with_encoder(model, evaluation.PrecomputedFeatures())
    filt, score = small.ensemble()[0], ObjectiveScore(sensor_nll)
    arguments = (small.VALIDATION, small.PERTURBATIONS, KEYS)
    cached = evaluate(score, filt, given, *arguments, readings=features)
    direct = evaluate(score, filt, model, *arguments)
    np.testing.assert_allclose(cached["loss"], direct["loss"], rtol=1e-9)


def test_numbers_of_a_score_are_those_of_the_member():
    class Constant(eqx.Module):
        value: jax.Array

        def __call__(self, filt, model, trajectory, key):
            del filt, model, key
            return self.value + 0 * trajectory.initial.sum()

    score = Constant(jnp.asarray([1.0, 2.0, 3.0]))
    found = evaluate(score, *small.ensemble(), small.VALIDATION, small.PERTURBATIONS, KEYS)
    np.testing.assert_array_equal(found[:, 0, 0], [1, 2, 3])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_chunks_make_a_whole(count):
    sizes = []

    def double(inputs, factor):
        sizes.append(inputs[0].shape[0])
        return {"a": factor * inputs[0], "b": inputs[1]}

    inputs = (jnp.arange(count), jnp.arange(2 * count).reshape(count, 2))
    outputs = in_chunks(double, inputs, 2, size=3)
    np.testing.assert_array_equal(outputs["a"], 2 * np.arange(count))
    np.testing.assert_array_equal(outputs["b"], inputs[1])
    assert set(sizes) == {min(3, count)}  # one program


def test_arrays_of_numpy_are_cut_before_they_are_moved_to_a_device():
    images, numbers = np.arange(14).reshape(7, 2), jnp.arange(7)
    seen = []
    in_chunks(lambda inputs: seen.append(inputs) or inputs[1], (images, numbers), size=3)
    assert all(np.shares_memory(chunk, images) for chunk, _ in seen)
    for chunk, part in seen:
        np.testing.assert_array_equal(chunk, images[np.asarray(part)])


@pytest.mark.parametrize("share", [1, 8])
@pytest.mark.parametrize(("frames", "expected"), [(None, 64), (0, 1), (60, 3), (10**9, 64)])
def test_an_encoder_bounds_the_images_that_all_members_see_at_once(
    frames, expected, share, monkeypatch
):
    # On a CPU, as here, they are an eighth; a GPU has more memory.
    bound = frames if frames is None else share * frames
    monkeypatch.setattr(small.Encoder, "frames_at_once", bound, raising=False)
    if share == 1:
        monkeypatch.setattr(sensors.jax, "default_backend", lambda: "gpu")
    assert len(KEYS) * small.NUM_STEPS == 18
    model = small.ensemble()[1]
    found = evaluation.sequences_at_once(model, small.VALIDATION, KEYS)
    assert found == expected
    # Rejects all images at once because the encoder is behind a guard.
    guarded = dataclasses.replace(model, sensor=GuardedSensor(model.sensor, Novelty.blank(4)))
    assert evaluation.sequences_at_once(guarded, small.VALIDATION, KEYS) == expected


def test_only_labelled_steps_and_components_are_scored():
    labels = np.ones((5, small.NUM_STEPS, 2), bool)
    labels[:, 2:] = False
    labels[:, 1, 1] = False
    states = np.where(labels, small.VALIDATION.states, np.nan)
    data = dataclasses.replace(
        small.VALIDATION, states=jnp.asarray(states), labelled=jnp.asarray(labels)
    )
    found = evaluate(tracking(nll), *small.ensemble(), data, small.PERTURBATIONS[:1], KEYS)
    filt, model = small.member(small.ensemble(), 1)
    prior = Gaussian(data.initial[0], data.initial_covariance[0])
    beliefs = run(filt, model, prior, data.readings[0]).beliefs
    errors = np.asarray(beliefs.mean - small.VALIDATION.states[0])
    expected = (np.hypot(*errors[0]) + abs(errors[1, 0])) / 2
    np.testing.assert_allclose(found["distance"][1, 0, 0], expected, rtol=1e-9)
