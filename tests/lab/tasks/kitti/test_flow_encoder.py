"""The sensor whose encoder is optical flow: what it says, how sure it is, and how it trains."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.config.filters import Ekf, Lstm, Particle
from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments.building import build_ensemble, build_stages
from filtrax.lab.tasks.kitti import Augmentation, KittiModel, camera, flow, flow_encoder
from filtrax.lab.tasks.kitti.flow_encoder import FEATURES, FlowEncoder, features
from filtrax.lab.tasks.kitti.model import build_model
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.lab.tasks.kitti.streets import Street
from filtrax.sensors import Measurement
from filtrax.training.data_sets import first_set
from filtrax.training.ensembles import Training
from kitti_data import poses_at
from tiny_kitti import tiny_task

SIZE = (25, 75)
SETTINGS = KittiModel(sensor="flow", sensor_noise="heteroscedastic")


@pytest.fixture(scope="module")
def frames():
    """A street from a car that goes 0.8 m a step, turning left, in colour."""
    heading = np.asarray([0.0, 1.5, 3.5])
    poses = poses_at(0.8 * np.arange(3), 0.0, heading)
    return Street.along(poses, 0.1 * np.arange(3)).draw("image_2", SIZE)


@eqx.filter_jit
def encode(frames, mirrored):
    context = {"frames": frames, "mirrored": mirrored}
    return FlowEncoder()(jnp.asarray(1), None, context)


@pytest.fixture(scope="module")
def encoded(frames):
    return np.asarray(encode(frames, jnp.asarray(False)))


def test_the_first_features_are_what_optical_flow_tells(frames, encoded):
    # Rejects other frames, another order of them, and a gray that is not the mean of the colours.
    gray = frames.astype(np.float32).mean(-1)
    told = flow.estimate_motion(gray[1], gray[2], steps=jnp.asarray(MEAN_STEP))
    np.testing.assert_allclose(10 * encoded[:2], np.stack(told), rtol=1e-3)
    assert encoded.shape == (len(FEATURES),)
    assert 10 * encoded[1] > 5  # 2 degrees to the left in a tenth of a second


def test_before_training_the_sensor_says_what_flow_says_with_the_noise_of_the_settings(encoded):
    model = build_model(tiny_task(image_size=SIZE), SETTINGS, 3, key=jax.random.key(0))
    head, noise = model.sensor.head, model.sensor.noise
    np.testing.assert_allclose(head(jnp.asarray(encoded)), 10 * encoded[:2], rtol=1e-12)
    variances = np.diag(noise.covariance(jnp.asarray(encoded)))
    np.testing.assert_allclose(variances, [100, 100], rtol=0.1)
    last = lambda head: head.network.network.layers[-1].bias  # noqa: E731
    moved = eqx.tree_at(last, head, jnp.asarray([0.1, -0.2]))
    np.testing.assert_allclose(moved(jnp.asarray(encoded)), 10 * encoded[:2] + [1.0, -2.0])


def test_a_mirrored_window_has_the_motion_that_is_seen_in_flipped_images(
    frames, encoded, monkeypatch
):
    # With the centre of the lens in the middle of the image, flipping it is exact. Rejects a wrong
    # sign of any feature.
    middle = (camera.FULL_SIZE[1] - 1) / 2
    monkeypatch.setattr(camera, "FULL_CENTRE", (middle, camera.FULL_CENTRE[1]))
    gray = jnp.asarray(frames, jnp.float32).mean(-1)
    look = jax.jit(lambda gray, mirrored: features(flow.estimate(gray[1], gray[2]), mirrored))
    flipped = look(gray[:, :, ::-1], jnp.asarray(False))
    mirrored = look(gray, jnp.asarray(True))
    np.testing.assert_allclose(flipped, mirrored, atol=0.01)
    odd = [feature.sign < 0 for feature in FEATURES.values()]
    assert np.abs(np.asarray(mirrored)[odd]).min() > 0.03
    monkeypatch.undo()
    signs = np.where(odd, -1.0, 1.0)
    np.testing.assert_allclose(encode(frames, jnp.asarray(True)), signs * encoded, rtol=1e-6)


def test_noisy_images_are_said_to_tell_less(frames):
    gray = jnp.asarray(frames, jnp.float32).mean(-1)
    noise = 20 * jax.random.normal(jax.random.key(1), gray[2].shape, jnp.float32)
    look = jax.jit(flow.estimate)
    clean, noisy = look(gray[1], gray[2]), look(gray[1], gray[2] + noise)
    assert (noisy.stds[:2] > 1.2 * clean.stds[:2]).all()
    assert noisy.remaining > 1.2 * clean.remaining
    assert noisy.road + noisy.free < clean.road + clean.free <= 1


def test_a_data_set_has_the_features_of_its_readings_and_each_pair_of_images_is_seen_once(
    quick_flow, monkeypatch
):
    # Rejects pairs of other frames, windows that are not mirrored, and a look at every window.
    looked = []
    original = flow_encoder._looked_at
    monkeypatch.setattr(
        flow_encoder, "_looked_at", lambda pairs: looked.append(len(pairs)) or original(pairs)
    )
    monkeypatch.setattr(flow_encoder, "PAIRS_AT_ONCE", 5)
    data = tiny_task(windows_per_variant=6, mirrored=True).data("train")
    encoder = FlowEncoder()
    found = np.asarray(encoder.encode_all(data))
    one = lambda context, reading: encoder(reading, None, context)  # noqa: E731
    each = jax.vmap(jax.vmap(one, in_axes=(None, 0)))(data.context, data.readings)
    np.testing.assert_allclose(found, each, atol=2e-5, rtol=1e-6)
    assert np.unique(data.context["mirrored"]).size == 2
    windows = [*np.asarray(data.context["frames"])]
    pairs = {(a.tobytes(), b.tobytes()) for w in windows for a, b in itertools.pairwise(w)}
    assert looked == [5] * -(-len(pairs) // 5)
    assert len(pairs) < found.shape[0] * found.shape[1] / 2
    np.testing.assert_array_equal(encoder.encode_all(data), found)
    assert len(looked) == -(-len(pairs) // 5)  # and never again


def test_of_readings_that_are_a_part_of_a_window_those_are_encoded(quick_flow):
    data = tiny_task().data("train")
    part = dataclasses.replace(data, readings=data.readings[:, 2:])
    encode_all = FlowEncoder().encode_all
    np.testing.assert_array_equal(encode_all(part), encode_all(data)[:, 2:])


def test_a_normalized_likelihood_sees_how_far_a_particle_is_from_what_flow_tells():
    settings = dataclasses.replace(SETTINGS, likelihood="normalized")
    task = tiny_task(image_size=SIZE)
    likelihood = build_model(task, settings, 3, key=jax.random.key(0)).likelihood
    features = jax.random.normal(jax.random.key(1), (len(FEATURES),))
    measurement = Measurement(jnp.zeros(2), jnp.eye(2), features=features)
    expected = 10 * features[:2] + jnp.asarray([0.5, -2.0])  # m/s, degrees per second
    network = likelihood.network.network
    told = network(jnp.concatenate([features, jnp.asarray([1.0, -2.0])]))
    np.testing.assert_allclose(
        likelihood(expected, measurement, None, task.observation_space), told[0], rtol=1e-5
    )


CALLS = []


def quick_estimate(previous, current):
    """In place of flow: numbers that depend on both images, for a program of few operations."""
    CALLS.append(previous.shape)
    mean = jnp.stack([previous.mean(), current.mean()]) / 255
    motion = jnp.concatenate([mean, jnp.tile(mean, 2) / 100])
    return flow.Estimate(motion, 0.01 + motion**2, mean[0], mean[1], mean[0])


@pytest.fixture
def quick_flow(monkeypatch):
    """What was compiled and found with one estimate is not what the other one tells."""
    compiled = flow_encoder._looked_at
    compiled.clear_cache()
    monkeypatch.setattr(flow_encoder, "_known", {})
    monkeypatch.setattr(flow, "estimate", quick_estimate)
    yield
    compiled.clear_cache()


@pytest.mark.parametrize(
    ("filt", "changes"),
    [
        (Ekf(), {}),
        pytest.param(
            Particle(num_particles=5), {"likelihood": "normalized"}, marks=pytest.mark.long
        ),
        pytest.param(Lstm(hidden_size=4), {}, marks=pytest.mark.long),
    ],
    ids=["ekf", "particle", "lstm"],
)
def test_flow_is_computed_once_and_what_is_learned_of_it_trains(filt, changes, quick_flow):
    # Rejects images that stay in memory, heads of another number of features, drives that may not
    # be turned although that leaves their images alone, and a long time without a word.
    task = tiny_task(velocities="aligned", augmentation=Augmentation(turn=180.0))
    model = dataclasses.replace(SETTINGS, process="analytical", **changes)
    stage = StageSettings(num_epochs=1, length=2, frames_per_batch=8, warmup_steps=1)
    experiment = Experiment(num_seeds=2, task=task, model=model, filter=filt, stages=(stage,))
    data, validation = task.data("train"), task.data("validation")
    both = build_ensemble(experiment, data)
    arguments = (*both, data, validation, task.perturbations(), [0, 1])
    said = []
    training = Training(build_stages([experiment], 0), *arguments, tell=said.append)
    assert len(said) == 1
    assert training.readings.shape == (2, *data.states.shape[:2], len(FEATURES))
    assert "frames" not in first_set(training.course.data).context
    del CALLS[:]
    ensemble, record = training.epoch(training.begin()[0])
    assert not CALLS
    assert np.isfinite(record.loss).all()
    assert np.isfinite(record.validation["loss"]).all()
    trained = training.best(ensemble)[1]
    before, after = (jax.tree.leaves(m.sensor.head) for m in (both[1], trained))
    assert isinstance(trained.sensor.encoder, FlowEncoder)
    assert any((a != b).any() for a, b in zip(before, after, strict=True) if eqx.is_array(a))


def test_images_that_change_each_time_are_refused():
    task = tiny_task(augmentation=Augmentation(gain=0.2))
    sentence = r'must not change images with model.sensor = "flow".*gain=0.2.*task.mirrored'
    with pytest.raises(ValueError, match=sentence):
        build_model(task, SETTINGS, 3, key=jax.random.key(0))
