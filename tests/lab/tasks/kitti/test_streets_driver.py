import numpy as np
import pytest

from filtrax.lab.tasks.kitti.motion import states
from filtrax.lab.tasks.kitti.streets.driver import drive_path


@pytest.fixture(scope="module")
def town():
    poses, times = drive_path(3, 2000)
    return poses, times, states(poses, times)[:-1]


def test_the_same_seed_drives_the_same_path_and_another_one_does_not():
    one, again, other = drive_path(1, 50), drive_path(1, 50), drive_path(2, 50)
    np.testing.assert_array_equal(one[0], again[0])
    np.testing.assert_array_equal(one[1], again[1])
    assert np.abs(one[0] - other[0]).max() > 0.1


def test_poses_are_planar_rotations_that_start_at_the_origin(town):
    poses, times, _ = town
    np.testing.assert_allclose(poses[0], np.eye(3, 4), atol=1e-12)
    products = poses[:, :, :3] @ np.swapaxes(poses[:, :, :3], 1, 2)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(3), products.shape), atol=1e-9)
    np.testing.assert_array_equal(poses[:, 1, 3], 0.0)
    assert times[0] == 0
    np.testing.assert_allclose(np.diff(times), 0.1037, atol=0.002)


def test_a_town_is_driven_as_kittis_drivers_do(town):
    _, times, motion = town
    speed, rate = motion[:, 3], np.abs(motion[:, 4])
    # The drives of towns among KITTI's have medians of 7 to 12 m/s and at most 16 m/s.
    assert 6 < np.median(speed) < 12
    assert speed.max() < 15
    assert 20 < np.quantile(rate, 0.97) < rate.max() < 42
    # Of the camera, which is in front of the axle that the limit holds for.
    assert (speed * np.radians(rate)).max() < 3.5
    gains = np.diff(speed) / np.diff(times)[1:]
    # The last centimetres before a stop are driven at one speed.
    assert -3.5 < gains.min() < gains.max() < 2.6


def test_a_car_that_stops_stands_still_and_goes_on(town):
    speed = town[2][:, 3]
    standing = np.flatnonzero(speed < 1e-6)
    assert len(standing) > 10
    assert speed[standing[-1] :].max() > 5


def test_a_highway_is_faster_and_straighter():
    poses, times = drive_path(3, 800, highway=True)
    motion = states(poses, times)[:-1]
    assert 22 < np.median(motion[:, 3]) < motion[:, 3].max() < 30
    assert np.quantile(np.abs(motion[:, 4]), 0.75) < 5


def test_the_rear_axle_moves_along_its_heading(town):
    poses, _, motion = town
    axle = poses[:, (0, 2), 3] - 0.95 * poses[:, (0, 2), 2]
    moved = np.diff(axle, axis=0)
    middle = poses[:-1, (0, 2), 2] + poses[1:, (0, 2), 2]
    aside = moved[:, 0] * middle[:, 1] - moved[:, 1] * middle[:, 0]
    assert np.abs(aside).max() < 0.01
    assert np.abs(motion[:, 4]).max() > 20


def test_no_frames_are_refused():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        drive_path(0, 0)
