"""The sensor whose encoder is optical flow: what it says, how sure it is, and how it trains."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.experiments.building import build_ensemble, build_stages
from filtrax.experiments.filters import Ekf, Lstm, Particle
from filtrax.experiments.settings import Experiment, StageSettings
from filtrax.tasks.kitti import Augmentation, KittiModel, camera, flow
from filtrax.tasks.kitti.flow_encoder import FEATURES, FlowEncoder, features
from filtrax.tasks.kitti.model import build_model
from filtrax.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.tasks.kitti.streets import Street
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
    return FlowEncoder()(jnp.asarray(1), context, key=jax.random.key(0))


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


CALLS = []


def quick_estimate(previous, current):
    """In place of flow: numbers that depend on both images, for a program of few operations."""
    CALLS.append(previous.shape)
    mean = jnp.stack([previous.mean(), current.mean()]) / 255
    motion = jnp.concatenate([mean, jnp.tile(mean, 2) / 100])
    return flow.Estimate(motion, 0.01 + motion**2, mean[0], mean[1], mean[0])


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
def test_flow_is_computed_once_and_what_is_learned_of_it_trains(filt, changes, monkeypatch):
    # Rejects images that stay in memory, and heads of another number of features.
    monkeypatch.setattr(flow, "estimate", quick_estimate)
    task = tiny_task(velocities="aligned")
    model = dataclasses.replace(SETTINGS, process="analytical", **changes)
    stage = StageSettings(num_epochs=1, length=2, frames_per_batch=8, warmup_steps=1)
    experiment = Experiment(num_seeds=2, task=task, model=model, filter=filt, stages=(stage,))
    data, validation = task.data("train"), task.data("validation")
    both = build_ensemble(experiment, data)
    arguments = (*both, data, validation, task.perturbations(), [0, 1])
    training = Training(build_stages([experiment], 0), *arguments)
    assert training.readings.shape == (2, *data.states.shape[:2], len(FEATURES))
    assert "frames" not in first_set(training.data).context
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
    sentence = r'must change nothing with model.sensor = "flow".*gain=0.2.*task.mirrored'
    with pytest.raises(ValueError, match=sentence):
        build_model(task, SETTINGS, 3, key=jax.random.key(0))
