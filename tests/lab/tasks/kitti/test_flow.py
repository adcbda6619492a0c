import jax
import numpy as np
import pytest

from filtrax.lab.tasks.kitti.flow import estimate_motion, rough_distance
from filtrax.lab.tasks.kitti.flow.pairs import with_halfway
from filtrax.lab.tasks.kitti.flow.search import DISTANCES
from filtrax.lab.tasks.kitti.image_filters import blurred, halved, sampled
from filtrax.lab.tasks.kitti.motion import states, steps
from filtrax.lab.tasks.kitti.streets import Street, drive_path

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


def test_values_halfway_between_pixels_are_those_of_cubics():
    places = np.arange(6, dtype=np.float32)
    image = jax.numpy.asarray(np.stack([places**3 - 4 * places**2, places], -1))
    finer = np.asarray(with_halfway(image))
    np.testing.assert_array_equal(finer[::2], image)
    between = places[1:4] + 0.5
    np.testing.assert_allclose(finer[3:8:2, 0], between**3 - 4 * between**2, rtol=1e-5)
    np.testing.assert_allclose(finer[3:8:2, 1], between, rtol=1e-5)


def _poses(heading, distance):
    """Of a car with these headings, to the right, that goes so far in each step."""
    num_frames = len(heading)
    poses = np.zeros((num_frames, 3, 4))
    poses[:, 0, 0] = poses[:, 2, 2] = np.cos(heading)
    poses[:, 0, 2], poses[:, 2, 0] = np.sin(heading), -np.sin(heading)
    poses[:, 1, 1] = 1.0
    steps = distance * np.stack([np.sin(heading), np.cos(heading)], -1)
    poses[:, [0, 2], 3] = np.cumsum(steps, 0)
    return poses, 0.1 * np.arange(num_frames)


@pytest.mark.parametrize(("distance", "turn"), [(0.8, 0.0), (0.8, 0.05), (2.5, 0.0)])
def test_a_rough_look_tells_fast_drives_from_slow_ones_also_in_a_turn(distance, turn):
    poses, times = _poses(turn * np.arange(4), distance)
    images = Street.along(poses, times).draw("image_2", (50, 150)).astype(np.float32) @ GRAY
    found = np.asarray(jax.vmap(rough_distance)(images[:-1], images[1:]))
    one_step_of_the_grid = np.diff(DISTANCES[::2]).max()
    np.testing.assert_allclose(found, distance, atol=one_step_of_the_grid)


@pytest.mark.long
def test_turns_of_parts_of_a_pixel_are_read_off_a_straight_street():
    # At 14 m/s, each step turns by a twentieth of a pixel.
    heading = np.cumsum(np.random.default_rng(0).normal(0.0, 7e-4, 31))
    poses, times = _poses(heading, 1.4)
    images = Street.along(poses, times).draw("image_2", (50, 150)).astype(np.float32) @ GRAY
    durations = np.diff(times).astype(np.float32)
    _, rate = estimate_motion(images[:-1], images[1:], steps=durations)
    truth = states(poses, times, "aligned")[1:, 4]
    # It is 0.97. Were all pixels equally noisy, and images linear between pixels, it were 0.89.
    assert np.corrcoef(np.asarray(rate), truth)[0, 1] > 0.95


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
