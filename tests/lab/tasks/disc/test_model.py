"""The networks of the disc task: their sizes and where they start."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.lab.tasks.disc import DiscModel, DiscTask
from filtrax.lab.tasks.disc.keypoints import keypoint_value, proportional_noise
from filtrax.lab.tasks.disc.physics import process
from filtrax.networks import KeypointNetwork
from filtrax.training.parts import trainable

SMALL = DiscTask(
    num_distractors=2, image_size=42, num_steps=3, num_train=1, num_validation=1, num_test=1
)


def build(task=SMALL, **settings):
    return task.build(DiscModel(**settings), key=jr.key(0))


@pytest.mark.parametrize(("size", "encoder"), [(120, 7336), (100, 7336 - 16 * 72)])
def test_networks_have_the_papers_sizes(size, encoder):
    # 976 + 2600 + 3216 + 544 in the encoder and 66 in the value head of full images.
    shapes = eqx.filter_eval_shape(build, DiscTask(image_size=size), likelihood="learned")
    numbers = {
        name: sum(
            int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(part) if hasattr(leaf, "shape")
        )
        for name, part in {
            "encoder": shapes.sensor.encoder,
            "value": shapes.sensor.head,
            "process": shapes.process,
            "likelihood": shapes.likelihood,
        }.items()
    }
    assert numbers == {"encoder": encoder, "value": 66, "process": 6692, "likelihood": 21121}


@pytest.mark.parametrize(
    ("covariance", "dependence", "sensor"),
    [
        ("diagonal", "constant", "paper"),
        ("full", "heteroscedastic", "paper"),
        ("full", "heteroscedastic", "keypoints"),
    ],
)
def test_noise_starts_where_the_settings_say(covariance, dependence, sensor):
    # The last layers start close to zero, not at it, so that heads are almost exact.
    settings = DiscModel(
        sensor=sensor,
        covariance=covariance,
        process_noise=dependence,
        sensor_noise=dependence,
        process_std=4.0,
        sensor_std=20.0,
    )
    reading = jnp.asarray([[60, 50], [20, 30], [70, 80]], jnp.int16)
    context = {name: jnp.asarray([7, 4, 2], jnp.int8) for name in ("radii", "colors")}
    state = jnp.asarray([10.0, -20.0, 3.0, 4.0])

    @jax.jit
    def start(key):
        model = SMALL.build(settings, key=key)
        measured = model.sensor(reading, None, context)
        noise = model.process_noise.covariance(state, None)
        parts = (measured.value, measured.covariance, measured.features)
        return parts, noise, model.observe(state, None), model.process(state, None)

    (value, covariances, features), noise, seen, moved = start(jr.key(0))
    tolerance = 1e-9 if dependence == "constant" else 1.0
    np.testing.assert_allclose(noise, 16 * np.eye(4), atol=tolerance * 4)
    np.testing.assert_allclose(covariances, 400 * np.eye(2), atol=tolerance * 20)
    assert (value.shape, features.shape) == ((2,), (32,))
    np.testing.assert_array_equal(seen, state[:2])
    np.testing.assert_allclose(moved, state, atol=1.0)


def test_the_analytical_process_is_the_one_that_moves_the_discs():
    assert eqx.filter_eval_shape(build, process="analytical").process is process


@pytest.mark.parametrize(
    "settings",
    [{"process_std": 0.0, "process_floor": 0.0}, {"sensor_std": 0.5}, {"sensor_floor": -1.0}],
)
def test_standard_deviations_under_their_floor_are_refused(settings):
    part = next(iter(settings)).partition("_")[0]
    with pytest.raises(ValueError, match=rf"{part}_std must be positive and at least {part}_floor"):
        DiscModel(**settings)


def test_the_value_of_the_keypoint_sensor_starts_at_its_first_point():
    value = keypoint_value(32, key=jr.key(0))
    features = jnp.linspace(-1, 1, 32)
    np.testing.assert_allclose(value(features), features[:2], atol=0.02)
    network = eqx.filter_eval_shape(build, sensor="keypoints").sensor.encoder.network
    assert isinstance(network, KeypointNetwork)


@pytest.mark.parametrize("floor", [0.0, 0.25])
def test_a_proportional_noise_is_its_formula(floor):
    output = jnp.asarray([0.3, -1.0, 0.7])
    noise = proportional_noise(lambda features: output, jnp.asarray([2.0, 3.0]), floor)
    stds = np.sqrt(np.asarray([4.0, 9.0]) - floor) * np.exp([0.3, -1.0])
    factor = np.diag(stds) @ np.asarray([[1, 0], [0.7, 1]])
    expected = factor @ factor.T + floor * np.eye(2)
    covariance, drawn = jax.jit(lambda: (noise.covariance(None), noise(None)))()
    np.testing.assert_allclose(covariance, expected, rtol=1e-12)
    np.testing.assert_allclose(drawn @ drawn.T, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "task",
    [
        SMALL,
        dataclasses.replace(SMALL, noise="heteroscedastic", position_std=0.5),
        dataclasses.replace(SMALL, noise="correlated"),
    ],
)
def test_the_true_noise_is_that_of_the_data_in_all_zones_and_is_not_trained(task):
    model = build(task, process_noise="true", process="analytical", sensor="reference")
    states = jnp.zeros((6, 4)).at[:, 1].set(jnp.asarray([0.0, 20.0, 20.1, -40.0, -40.1, 90.0]))

    @jax.jit
    @jax.vmap
    def all_covariances(state):
        factor, noise = model.process_noise(state, None), model.process_noise
        true = task.process_noise.covariance(state, None)
        return true, noise.covariance(state, None), factor @ factor.T

    expected, covariances, products = all_covariances(states)
    np.testing.assert_allclose(covariances, expected, atol=1e-9)
    np.testing.assert_allclose(products, expected, atol=1e-9)
    with pytest.raises(ValueError, match="no parameters to train"):
        trainable(None, model, ["model"])


def test_a_learned_likelihood_of_the_reference_sensor_is_refused():
    with pytest.raises(ValueError, match="likelihood must be"):
        DiscModel(sensor="reference", likelihood="learned")
