import jax
import numpy as np
import pytest

from filtrax.tasks.kitti.flow import estimate_motion
from filtrax.tasks.kitti.image_filters import blurred, halved, sampled
from filtrax.tasks.kitti.motion import states, steps
from filtrax.tasks.kitti.streets import Street, drive_path

GRAY = np.asarray([0.299, 0.587, 0.114], np.float32)


def test_images_are_sampled_linearly_and_go_on_beyond_their_edge(key):
    image = jax.random.uniform(key, (4, 5), dtype=np.float32)
    rows, columns = np.float32([1.25, 0.0, -3.0]), np.float32([2.5, 3.0, 1.0])
    values = sampled(image, jax.numpy.asarray(rows), jax.numpy.asarray(columns))
    corners = np.asarray(image)[1:3, 2:4]
    first = 0.75 * corners[0].mean() + 0.25 * corners[1].mean()
    np.testing.assert_allclose(values, [first, image[0, 3], image[0, 1]], rtol=1e-5)


def test_blur_and_half_the_size_keep_the_mean(key):
    image = jax.random.uniform(key, (9, 7), dtype=np.float32)
    point = jax.numpy.zeros((31, 31), np.float32).at[15, 15].set(1.0)
    spread = np.asarray(blurred(point, 2.0))
    assert spread.sum() == pytest.approx(1.0, abs=1e-5)
    offsets = np.arange(31) - 15
    assert (spread * offsets[:, None] ** 2).sum() == pytest.approx(4.0, rel=0.1)
    np.testing.assert_allclose(halved(image)[1, 2], image[2:4, 4:6].mean(), rtol=1e-5)


@pytest.mark.long
def test_speed_and_rate_are_read_off_generated_images():
    poses, times = drive_path(2, 400)
    truth = states(poses, times, "aligned")[:, 3:]
    # The fastest, the sharpest to both sides, and others.
    last = np.unique([*np.argsort(truth[1:, 0])[[-1, 100]], *np.argsort(truth[1:, 1])[[0, -1]]]) + 1
    last = np.concatenate([last, [50, 150, 250, 350]])
    frames = np.stack([last - 1, last], -1).ravel()
    images = Street.along(poses, times).draw("image_2", (50, 150), frames).astype(np.float32) @ GRAY
    previous, current = images[::2], images[1::2]
    durations = steps(times)[last].astype(np.float32)
    speed, rate = estimate_motion(previous, current, steps=durations)
    # A motion to the other side is one of mirrored images; here it must be of the right sign.
    np.testing.assert_allclose(rate, truth[last, 1], atol=2.5)
    np.testing.assert_allclose(speed, truth[last, 0], atol=1.5)
    assert np.abs(truth[last, 1]).max() > 15


@pytest.mark.long
def test_recorded_images_tell_the_motion_too(real_drive):
    last = np.arange(100, 2900, 175)
    images = np.asarray(next(iter(real_drive.cameras.values())), np.float32).mean(-1)
    durations = steps(real_drive.times)[last].astype(np.float32)
    motion = estimate_motion(images[last - 1], images[last], steps=durations)
    truth = states(real_drive.poses, real_drive.times, "aligned")[last, 3:]
    errors = np.abs(np.stack([np.asarray(part) for part in motion], -1) - truth)
    assert np.median(errors[:, 0]) < 1.2
    assert np.median(errors[:, 1]) < 1.2
