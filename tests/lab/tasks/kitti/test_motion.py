"""States from poses: on a circle everything is known, and real poses must drive themselves."""

import numpy as np
import pytest

from filtrax.lab.tasks.kitti.motion import mirrored, states, steps, wrap_degrees
from filtrax.lab.tasks.kitti.recordings.files import has_times, pose_names, read_path
from kitti_data import REAL_NAMES, poses_at

FRAMES = [4541, 1101, 4661, 801, 271, 2761, 1101, 1101, 4071, 1591, 1201]


@pytest.fixture(scope="module")
def circle():
    """A left turn on a circle of 20 m, 15 degrees a frame, more than once around, uneven times."""
    heading = 15.0 * np.arange(40)
    turned = np.radians(heading)
    x, y = 20 * np.sin(turned), 20 * (1 - np.cos(turned))
    times = np.cumsum(np.random.default_rng(0).uniform(0.09, 0.12, 40))
    return x, y, heading, times


def test_states_on_a_circle_are_exact(circle):
    # Rejects mirrored axes, radians, the paper's constant step, and jumps of the angle.
    x, y, heading, times = circle
    found = states(poses_at(x, y, heading), times)
    np.testing.assert_allclose(found[:, 0], x, atol=1e-12)
    np.testing.assert_allclose(found[:, 1], y, atol=1e-12)
    # Half a turn may come out on either side of the cut.
    np.testing.assert_allclose(wrap_degrees(found[:, 2] - heading), 0.0, atol=1e-9)
    assert (found[:, 2] >= -180).all()
    assert (found[:, 2] < 180).all()
    chord = 2 * 20 * np.sin(np.radians(7.5))
    np.testing.assert_allclose(found[:-1, 3], chord / np.diff(times), rtol=1e-9)
    np.testing.assert_allclose(found[:-1, 4], 15.0 / np.diff(times), rtol=1e-9)
    assert np.isnan(found[-1, 3:]).all()


def test_aligned_velocities_are_those_of_the_step_before(circle):
    x, y, heading, times = circle
    poses = poses_at(x, y, heading)
    forward, aligned = states(poses, times), states(poses, times, "aligned")
    np.testing.assert_array_equal(aligned[:, :3], forward[:, :3])
    np.testing.assert_array_equal(aligned[1:, 3:], forward[:-1, 3:])
    assert np.isnan(aligned[0, 3:]).all()
    with pytest.raises(ValueError, match=r"got .*'foward'.* Did you mean 'forward'"):
        states(poses, times, "foward")


def test_the_mirrored_drive_has_mirrored_states(circle):
    x, y, heading, times = circle
    found = mirrored(states(poses_at(x, y, heading), times))
    expected = states(poses_at(x, -y, -heading), times)
    assert (found[:, 2] < 180).all()
    np.testing.assert_allclose(wrap_degrees(found[:, 2] - expected[:, 2]), 0.0, atol=1e-9)
    others = [0, 1, 3, 4]
    np.testing.assert_allclose(found[:, others], expected[:, others], atol=1e-9)
    assert found[5, 1] < 0 < found[5, 3]


def test_mirroring_knows_batches_and_half_turns():
    state = np.array([1.0, 2.0, -180.0, 3.0, -4.0])
    np.testing.assert_array_equal(
        mirrored(np.stack([[state, -state]])),
        [[[1.0, -2.0, -180.0, 3.0, 4.0], [-1.0, 2.0, -180.0, -3.0, -4.0]]],
    )


def test_steps_lead_to_their_frame():
    np.testing.assert_array_equal(steps(np.array([1.0, 1.5, 3.5])), [np.nan, 0.5, 2.0])


def test_angles_are_wrapped_to_a_half_open_range():
    tiny = np.nextafter(-180.0, -200.0)
    found = wrap_degrees([180.0, -180.0, 540.0, 190.0, -190.0, 0.0, tiny])
    np.testing.assert_allclose(found[:6], [-180.0, -180.0, -180.0, -170.0, 170.0, 0.0])
    assert -180 <= found[6] < 180


def test_a_single_frame_has_no_velocity():
    assert np.isnan(states(poses_at([1.0], 0.0, 0.0), np.zeros(1))[0, 3:]).all()


def test_real_poses_drive_themselves(real_poses):
    """A car moves where it looks, so headings and speeds lead from frame to frame.

    Rejects a heading of the other sign: its error is as large as the way itself, where the right
    one leaves 2 % (a car's camera does not sit on its rear axle).
    """
    assert [name for name in pose_names(real_poses) if name in REAL_NAMES] == REAL_NAMES
    fastest = {}
    for name, num_frames in zip(REAL_NAMES, FRAMES, strict=True):
        poses, times = read_path(real_poses, name)
        assert len(poses) == num_frames
        found = states(poses, times)
        durations = steps(times)[1:, None]
        middle = np.radians(found[:-1, 2:3] + found[:-1, 4:] * durations / 2)
        way = durations * found[:-1, 3:4]
        moved = found[:-1, :2] + way * np.concatenate([np.cos(middle), np.sin(middle)], axis=1)
        errors = np.linalg.norm(moved - found[1:, :2], axis=1)
        assert errors.sum() < 0.025 * way.sum()
        fastest[name] = np.median(found[:-1, 3])
        if has_times(real_poses, name):
            assert 0.1035 < durations.mean() < 0.1043
    assert max(fastest, key=lambda name: fastest[name]) == "01"
    assert fastest["01"] > 20
