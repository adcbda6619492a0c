"""The models of the KITTI task: networks by their numbers, motion by its equations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax._given import parameters
from filtrax.lab.tasks.kitti import KittiModel, KittiTask
from filtrax.lab.tasks.kitti import model as model_parts
from filtrax.lab.tasks.kitti.encoders import KittiEncoder
from filtrax.lab.tasks.kitti.model import build_model
from filtrax.lab.tasks.kitti.network import MotionNetwork, size_after_convolutions
from filtrax.lab.tasks.kitti.process import motion
from filtrax.noise import FixedNoise
from filtrax.sensors import Measurement
from tiny_kitti import SIZE

TASK = KittiTask(image_size=SIZE)
STATE = jnp.asarray([120.0, -40.0, 171.0, 9.0, -12.0])
STEP = jnp.asarray([0.11])


def model_shapes(channels=3, task=TASK, **settings):
    """A model without its numbers."""
    build = lambda: build_model(task, KittiModel(**settings), channels, key=jax.random.key(0))  # noqa: E731
    return eqx.filter_eval_shape(build)


def count(part):
    """How many numbers may be trained."""
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    blank = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if is_shape(leaf) else leaf  # noqa: E731
    part = jax.tree.map(blank, part)
    trained = eqx.filter(part, parameters(part))
    return sum(leaf.size for leaf in jax.tree.leaves(trained))


def test_the_sensor_has_as_many_parameters_as_the_papers():
    model = model_shapes(task=KittiTask())
    assert count(model.sensor.encoder) + count(model.sensor.head) == 532_514
    assert size_after_convolutions((50, 150)) == (16, 15)
    # Gray images have one channel, and their difference another one.
    gray = model_shapes(1, KittiTask())
    assert count(gray.sensor.encoder) == count(model.sensor.encoder) - 7 * 7 * 4 * 16


def test_process_noise_and_likelihood_have_as_many_parameters_as_the_papers():
    noises = {"process_noise": "heteroscedastic", "sensor_noise": "heteroscedastic"}
    model = model_shapes(likelihood="learned", **noises)
    assert count(model.process) == 6757
    assert count(model.likelihood) == 33_409
    assert count(model.process_noise) == (2 * 32 + 32) + (32 * 32 + 32) + (32 * 5 + 5) + 5
    assert count(model.sensor.noise) == 128 * 2 + 2 + 2
    full = model_shapes(covariance="full", **noises)
    assert count(full.process_noise) - count(model.process_noise) == (32 + 2) * 10
    everything = model_shapes(position_input=True, **noises)
    assert count(everything.process) - count(model.process) == 2 * 32
    assert count(everything.process_noise) - count(model.process_noise) == 4 * 32


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match=r"at least 19 x 35 pixels .* got 19 x 34"):
        model_shapes(task=KittiTask(image_size=(19, 34)))


def numpy_network(network, image):
    """The convolutions as loops."""
    network, signal = jax.tree.map(np.asarray, network), image
    strides = ((1, 1), (1, 2), (1, 2), (2, 2))
    for kernel, bias, norm, (down, along) in zip(
        network.kernels, network.biases, network.norms, strides, strict=True
    ):
        size = kernel.shape[0]
        rows = (signal.shape[0] - size) // down + 1
        columns = (signal.shape[1] - size) // along + 1
        output = np.zeros((rows, columns, 16))
        for i, j in np.ndindex(rows, columns):
            patch = signal[down * i : down * i + size, along * j : along * j + size]
            output[i, j] = np.maximum(np.einsum("abc,abcd->d", patch, kernel) + bias, 0)
        spread = np.sqrt(output.var(-1, keepdims=True) + 1e-3)
        signal = (output - output.mean(-1, keepdims=True)) / spread * norm.gain + norm.offset
    signal = signal.ravel()
    for layer in network.dense.layers:
        signal = np.maximum(layer.weight @ signal + layer.bias, 0)
    return signal


@pytest.fixture(scope="module")
def encoder():
    network = MotionNetwork((*SIZE, 6), dropout=0.3, key=jax.random.key(1))
    norms = jax.tree.map(lambda leaf: 1.5 * leaf + 0.2, network.norms)
    return KittiEncoder(eqx.tree_at(lambda n: n.norms, network, norms))


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 256, (4, *SIZE, 3), np.uint8)


@eqx.filter_jit
def encode(encoder, reading, frames, mirrored, key):
    context = {"frames": frames, "mirrored": mirrored}
    return encoder(reading, None, context, key=key)


def test_the_encoder_sees_the_present_image_and_what_has_changed(encoder, frames, key):
    # Rejects a difference of other frames or with the other sign, sums of bytes that overflow,
    # and a mirror that turns the image upside down.
    tested = eqx.nn.inference_mode(encoder)
    numbers = frames.astype(float)
    image = np.concatenate([numbers[2] - [89, 94, 93], numbers[2] - numbers[1]], -1) / 64
    for mirrored, expected in ((False, image), (True, image[:, ::-1])):
        features = encode(tested, jnp.asarray(1), frames, jnp.asarray(mirrored), key)
        np.testing.assert_allclose(features, numpy_network(tested.network, expected), rtol=1e-8)


def test_with_bfloat16_the_features_are_the_same_but_for_rounding(frames, key):
    def features_of(precision):
        network = MotionNetwork((*SIZE, 6), dropout=0.3, precision=precision, key=key)
        tested = eqx.nn.inference_mode(KittiEncoder(network))
        return encode(tested, jnp.asarray(1), frames, jnp.asarray(False), key)

    exact, features = features_of("full"), features_of("bfloat16")
    assert features.dtype == exact.dtype
    assert 1e-5 < np.abs(features - exact).max() / np.abs(exact).max() < 0.05


def test_dropout_is_in_training_alone(encoder, frames, key):
    arguments = (jnp.asarray(0), frames, jnp.asarray(False))
    other = jax.random.key(7)
    assert not np.allclose(encode(encoder, *arguments, key), encode(encoder, *arguments, other))
    tested = eqx.nn.inference_mode(encoder)
    np.testing.assert_array_equal(
        encode(tested, *arguments, key), encode(tested, *arguments, other)
    )


def test_the_jacobian_of_the_equations_of_motion():
    # Rejects radians where degrees are meant, and a time step that is not that of the input.
    x, y, heading, speed, rate = np.asarray(STATE)
    dt, f = 0.11, np.pi / 180
    cosine, sine = np.cos(f * heading), np.sin(f * heading)
    moved = [x + speed * cosine * dt, y + speed * sine * dt, heading + rate * dt, speed, rate]
    np.testing.assert_allclose(motion(STATE, STEP), moved)
    expected = np.eye(5)
    expected[0, 2:4] = -sine * speed * dt * f, cosine * dt
    expected[1, 2:4] = cosine * speed * dt * f, sine * dt
    expected[2, 4] = dt
    np.testing.assert_allclose(jax.jacobian(motion)(STATE, STEP), expected, atol=1e-15)


def test_a_learned_process_sees_speed_rate_and_direction_but_not_where_it_is(key):
    features = TASK.state_features
    process = model_parts._process(features, KittiModel(), key=key)
    heading = np.radians(171.0)
    inputs = jnp.asarray([0.9, -1.2, np.cos(heading), np.sin(heading)])
    change = np.asarray(process.network(inputs)) * [1, 1, 1, 10, 10]
    np.testing.assert_allclose(process(STATE, STEP), STATE + change * (0.11 / 0.1037), rtol=1e-12)
    elsewhere = STATE + jnp.asarray([1e3, -5e3, 360.0, 0.0, 0.0])
    moved = eqx.filter_jit(process)(elsewhere, STEP) - elsewhere
    np.testing.assert_allclose(moved, process(STATE, STEP) - STATE, atol=1e-9)
    assert features.size == 4


def test_learned_noise_sees_speed_and_rate_alone(key):
    settings = KittiModel(process_noise="heteroscedastic")
    noise = model_parts._process_noise(TASK.state_features, settings, key=key)
    covariance = eqx.filter_jit(noise.covariance)
    start = [0.01, 0.01, 0.01, 100.0, 100.0]
    np.testing.assert_allclose(np.diag(covariance(STATE, STEP)), start, rtol=0.1)
    turned = STATE + jnp.asarray([1e3, -5e3, 77.0, 0.0, 0.0])
    np.testing.assert_array_equal(covariance(turned, STEP), covariance(STATE, STEP))
    faster = STATE + jnp.asarray([0.0, 0.0, 0.0, 5.0, 0.0])
    assert (covariance(faster, STEP) != covariance(STATE, STEP)).any()


def test_noise_that_is_fixed_is_what_it_says_and_not_trained(key):
    hand = KittiModel(
        process_noise="fixed",
        process_stds=(0.01, 0.01, 0.001, 0.1, 0.4),
        sensor_noise="fixed",
        sensor_stds=(0.6, 0.6),
    )
    noises = [
        model_parts._process_noise(TASK.state_features, hand, key=key),
        model_parts._sensor_noise(TASK.observation_features, hand, key=key),
    ]
    assert all(isinstance(noise, FixedNoise) for noise in noises)
    variances = np.diag(noises[0].covariance(STATE, STEP))
    np.testing.assert_allclose(variances, [1e-4, 1e-4, 1e-6, 0.01, 0.16])
    np.testing.assert_allclose(np.diag(noises[1].covariance(None)), [0.36, 0.36])


def test_noise_before_the_motion_is_that_of_a_car_whose_velocities_change_first(key):
    # Rejects noise that is added after the motion, and one that goes another way than the car.
    settings = KittiModel(process="analytical", noise_enters="before", process_floors=(0.0,) * 5)
    noise = model_parts._process_noise(TASK.state_features, settings, key=key)
    stds = np.asarray(settings.process_stds)
    # By finite differences, about which the covariance is as exact as motion is linear.
    moved = lambda i, h: np.asarray(motion(STATE.at[i].add(h), STEP))  # noqa: E731
    columns = [(moved(i, 1e-4) - moved(i, -1e-4)) / 2e-4 * stds[i] for i in range(5)]
    factor = np.stack(columns, -1)
    np.testing.assert_allclose(noise(STATE, STEP), factor, atol=1e-7)
    np.testing.assert_allclose(noise.covariance(STATE, STEP), factor @ factor.T, atol=1e-5)
    # The heading takes part in what happens to the rate: 0.11 s of it.
    np.testing.assert_allclose(noise.covariance(STATE, STEP)[2, 4], 0.11 * 10.0**2)


@pytest.mark.parametrize(("enters", "lag"), [("before", 0), ("after", 1)])
def test_with_noise_before_the_motion_a_car_goes_with_the_velocity_of_the_step(enters, lag, key):
    # An exact sensor of aligned velocities: what is measured in a step moves the car in it, or
    # in the next one.
    settings = KittiModel(process="analytical", noise_enters=enters)
    model = filtrax.StateSpaceModel(
        motion,
        model_parts._process_noise(TASK.state_features, settings, key=key),
        model_parts.observe,
        filtrax.DirectSensor(filtrax.constant_noise(jnp.asarray([1e-3, 1e-3]))),
        state_space=TASK.state_space,
        observation_space=TASK.observation_space,
    )
    rates = np.asarray([0.0, 10.0, -20.0, 40.0])
    readings = jnp.stack([jnp.full(4, 8.0), jnp.asarray(rates)], -1)
    prior = filtrax.Gaussian(jnp.asarray([0.0, 0, 0, 8, 0]), jnp.diag(jnp.full(5, 1e-6)))
    filt, inputs = filtrax.ExtendedKalmanFilter(), jnp.full((4, 1), 0.1)
    beliefs = filtrax.run(filt, model, prior, readings, inputs=inputs).beliefs
    turned = 0.1 * np.cumsum(np.concatenate([np.zeros(lag), rates])[:4])
    np.testing.assert_allclose(beliefs.mean[:, 2], turned, atol=0.01)


def test_learned_likelihoods_see_particles_as_they_are_or_normalized():
    # Rejects a scale that is applied twice, and a rate that is centred at a speed.
    features, expected = jnp.linspace(-1.0, 1.0, 128), jnp.asarray([14.0, -6.0])
    measurement = Measurement(expected, jnp.eye(2), features=features)
    seen = {"learned": [14.0, -6.0], "normalized": [0.4, -0.6]}
    for kind, numbers in seen.items():
        settings = KittiModel(likelihood=kind)
        units = TASK.observation_features
        likelihood = model_parts._likelihood(units, settings, key=jax.random.key(0))
        network = likelihood.network if kind == "learned" else likelihood.network.network
        told = network(jnp.concatenate([features, jnp.asarray(numbers)]))
        score = likelihood(expected, measurement, None, TASK.observation_space)
        np.testing.assert_allclose(score, told[0], rtol=1e-10)


def test_angles_of_states_and_measurements_wrap():
    # Rejects a filter whose heading leaves its range, or an innovation the long way round.
    space = TASK.state_space
    near, beyond = jnp.asarray([0.0, 0, 179, 0, 170]), jnp.asarray([0.0, 0, -179, 0, -170])
    np.testing.assert_allclose(space.difference(near, beyond), [0, 0, -2, 0, -20])
    np.testing.assert_allclose(TASK.observation_space.difference(near[3:], beyond[3:]), [0, -20])
    model = filtrax.StateSpaceModel(
        motion,
        filtrax.constant_noise(jnp.full(5, 0.1)),
        lambda state, inputs: state[3:],
        filtrax.DirectSensor(filtrax.constant_noise(jnp.asarray([1.0, 1.0]))),
        state_space=space,
        observation_space=TASK.observation_space,
    )
    prior = filtrax.Gaussian(jnp.asarray([0.0, 0, 179, 5, 30]), jnp.eye(5) * 0.01)
    readings = jnp.tile(jnp.asarray([5.0, 30.0]), (3, 1))
    filt, inputs = filtrax.ExtendedKalmanFilter(), jnp.full((3, 1), 0.1)
    beliefs = filtrax.run(filt, model, prior, readings, inputs=inputs).beliefs
    np.testing.assert_allclose(beliefs.mean[:, 2], [-178, -175, -172], atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"process_stds": (0.1, 0.1, 0.001, 1.0, 1.0)},
            "process_stds must be positive and at least",
        ),
        ({"sensor_stds": (0.0, 1.0), "sensor_floors": (0.0, 0.0)}, "sensor_stds must be positive"),
        ({"sensor_floors": (-1.0, 0.1)}, "sensor_floors, which must not be negative"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"sensor": "flow", "precision": "bfloat16"}, 'precision must be "full" with sensor = "fl'),
        ({"noise_enters": "before"}, 'must have the equations of motion.* got process = "learned"'),
    ],
)
def test_settings_that_cannot_be_are_named(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        KittiModel(**settings)


def test_models_that_differ_in_start_values_alone_are_one_program():
    first = KittiModel()
    assert KittiModel(process_stds=(1.0,) * 5, sensor_stds=(1.0, 1.0)).program == first.program
    assert KittiModel(sensor_floors=(0.2, 0.1)).program != first.program
    assert KittiModel(dropout=0.1).program != first.program
