"""Terms of pretraining: against NumPy, on measurements that are given, and on one that is made."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_pushing
from filtrax.lab.tasks.pushing import PushingModel
from filtrax.lab.tasks.pushing.encoders import PushingEncoder
from filtrax.lab.tasks.pushing.pretraining import TERMS
from filtrax.lab.tasks.pushing.render import OBJECT_LABEL
from filtrax.lab.tasks.pushing.scenes import image_of
from filtrax.sensors import Measurement, NetworkSensor, Precomputed, PrecomputedFeatures

TASK = tiny_pushing.TASK
STEPS = TASK.num_steps
RNG = np.random.default_rng(0)
KNOWN = TASK.build(PushingModel("analytical", "paper", "reference"), key=jax.random.key(0))
MODEL = dataclasses.replace(KNOWN, sensor=Precomputed(KNOWN.sensor))


def measured(trajectory, values):
    """The trajectory with measurements of these values."""
    covariances = jnp.tile(jnp.eye(8), (STEPS, 1, 1))
    losses = {"pixel": jnp.arange(8.0), "segmentation": jnp.ones(8)}
    measurements = Measurement(
        jnp.asarray(values), covariances, observed=jnp.ones(STEPS, bool), losses=losses
    )
    return dataclasses.replace(trajectory, readings=measurements)


def value(name, trajectory):
    arguments = (None, MODEL, trajectory, jnp.asarray(0.0), jax.random.key(0))
    return float(TERMS[name](*arguments))


def true_observations(trajectory):
    return np.concatenate([trajectory.states[:, :3], trajectory.states[:, 5:]], 1)


@pytest.mark.parametrize("number", [0, 1])
def test_terms_of_the_observation_are_means_of_what_they_say(number):
    # Object 1 is a circle, whose rotation counts nowhere.
    trajectory = tiny_pushing.sequence(number)
    true = true_observations(trajectory)
    touching = true[:, 7] == 1
    assert 0 < touching.sum() < STEPS
    values = true + RNG.normal(size=true.shape)
    values[:, 7] = RNG.uniform(0.1, 0.9, STEPS)
    given = measured(trajectory, values)
    counts = np.ones((STEPS, 8), bool)
    counts[:, 3:7] = touching[:, None]
    counts[:, 2] = number != 1
    expected = np.where(counts, (values - true) ** 2, 0.0).sum(-1).mean()
    np.testing.assert_allclose(value("observation", given), expected)
    chances = np.where(touching, values[:, 7], 1 - values[:, 7])
    np.testing.assert_allclose(value("contact", given), -np.log(chances).mean())
    ours, theirs = values[touching, 5:7], true[touching, 5:7]
    cosines = (ours * theirs).sum(-1) / np.hypot(*ours.T) / np.hypot(*theirs.T)
    angles = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    np.testing.assert_allclose(value("normal", given), angles.sum() / STEPS, rtol=1e-6)
    assert value("pixel", given) == 3.5
    turned = values.copy()
    turned[:2, 2] = [190.0, -200.0]
    expected = (10.0**2 + 20.0**2) / STEPS
    np.testing.assert_allclose(value("rotation_range", measured(trajectory, turned)), expected)


def test_terms_have_finite_gradients_where_normals_and_chances_vanish():
    trajectory = tiny_pushing.sequence(0)
    values = jnp.zeros((STEPS, 8))

    def total(values):
        given = measured(trajectory, values)
        arguments = (None, MODEL, given, jnp.asarray(0.0), jax.random.key(0))
        return sum(TERMS[name](*arguments) for name in ("observation", "normal", "contact"))

    assert jnp.isfinite(jax.grad(total)(values)).all()


def test_the_process_error_is_that_of_single_steps():
    trajectory = tiny_pushing.sequence(0)
    states, pushes = trajectory.states, trajectory.inputs
    expected = []
    for before, after, push in zip(states[:-1], states[1:], pushes[1:], strict=True):
        expected.append(float(((MODEL.process(before, push) - after) ** 2).sum()))
    np.testing.assert_allclose(value("process", trajectory), np.mean(expected), rtol=1e-6)


def test_a_term_that_needs_images_says_so_where_there_are_none():
    given = measured(tiny_pushing.sequence(0), np.zeros((STEPS, 8)))
    readings = dataclasses.replace(given.readings, losses=None)
    with pytest.raises(ValueError, match="'pixel' needs a sensor whose encoder is trained"):
        value("pixel", dataclasses.replace(given, readings=readings))


@pytest.mark.long
def test_the_sensor_says_how_well_it_finds_the_object():
    trajectory = tiny_pushing.sequence(0)
    sensor = TASK.build(PushingModel("analytical", "paper"), key=jax.random.key(1)).sensor
    assert isinstance(sensor, NetworkSensor)
    assert isinstance(sensor.encoder, PushingEncoder)
    reading = jax.tree.map(lambda leaf: leaf[5], trajectory.readings)
    context = trajectory.context

    @jax.jit
    def look(reading):
        features = sensor.encoder(reading, None, context)
        first = sensor.encoder.see(context["first"], context)
        images = (image_of(reading, context, TASK.camera), first)
        found = sensor.encoder.network.locate(first)
        kept = dataclasses.replace(sensor, encoder=PrecomputedFeatures())(features, None, None)
        return sensor(reading, None, context), features, found, images, kept

    measurement, features, (logits, pixel), images, kept = jax.tree.map(np.asarray, look(reading))
    places = ((features.pixel, reading["pose"]), (pixel, context["first"]["pose"]))
    distances = [
        ((256 / 64 * (place - TASK.camera.project_position(pose[:2]))) ** 2).sum()
        for place, pose in places
    ]
    np.testing.assert_allclose(measurement.losses["pixel"], sum(distances), rtol=1e-6)
    entropy = 0.0
    for scores, image in zip((features.logits, logits), images, strict=True):
        scores = np.asarray(jax.image.resize(jnp.asarray(scores), (48, 64), "linear"))
        shown = image.segmentation == OBJECT_LABEL
        entropy += np.log1p(np.exp(np.where(shown, -scores, scores))).sum()
    np.testing.assert_allclose(measurement.losses["segmentation"], entropy, rtol=1e-6)
    # The same measurement is made of features that were kept, which show no images.
    np.testing.assert_allclose(kept.value, measurement.value)
    assert kept.losses is None
