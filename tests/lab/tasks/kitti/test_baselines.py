"""Estimates without learning, on paths that are known."""

import numpy as np

from filtrax.lab.tasks.kitti import baselines, flow
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.windows import Cutting, trajectories
from kitti_data import poses_at

STEPS = 20


def circle(mirrored=False):
    """Windows of a drive around a circle of 1 m and 3 degrees to the left in each step of 0.1 s."""
    n = STEPS + 8
    heading = 3.0 * np.arange(n)
    direction = np.radians(heading)
    x = np.concatenate([[0.0], np.cumsum(np.cos(direction))[:-1]])
    y = np.concatenate([[0.0], np.cumsum(np.sin(direction))[:-1]])
    images = np.zeros((n, 6, 9, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(n)
    drive = Drive("00", poses_at(x, y, heading), 0.1 * np.arange(n), {"image_0": images})
    windows = [*Cutting(STEPS, "forward", 1, 3, 9, 0).regular(drive, mirrored=mirrored)]
    return windows, trajectories(windows, STEPS)


def test_constant_velocity_is_exact_on_a_circle_and_mean_speed_is_not():
    for mirrored in (False, True):
        _, data = circle(mirrored)
        exact = baselines.scores(data, baselines.constant_velocity(data))
        for numbers in exact.values():
            np.testing.assert_allclose(numbers, 0.0, atol=1e-5)
        straight = baselines.scores(data, baselines.mean_speed(data, 10.0))
        # After 20 steps of 3 degrees it is 60 degrees off, over 20 m.
        np.testing.assert_allclose(straight["rotation_error"], 3.0, rtol=1e-5)
        ends = np.asarray([np.exp(1j * np.radians(3 * k)) for k in range(STEPS)]).sum()
        np.testing.assert_allclose(straight["translation_error"], abs(ends - 20) / 20, rtol=1e-5)


def test_flow_is_asked_once_for_a_frame_and_mirrored_with_its_window(monkeypatch):
    # Rejects motions of the wrong frames, and of another order of images.
    asked = []

    def estimate(previous, current, *, steps):
        asked.append(len(previous))
        numbers = previous[:, 0, 0] * 54  # the mean of a channel alone is the channel
        assert (current[:, 0, 0] - previous[:, 0, 0] == 1).all()
        np.testing.assert_allclose(steps, 0.1, rtol=1e-5)
        return numbers / 54, np.full(len(previous), 30.0)

    monkeypatch.setattr(flow, "estimate_motion", estimate)
    windows, _ = circle(mirrored=True)
    found = baselines.optical_flow(windows, STEPS)
    assert asked == [STEPS + windows[-1].start]
    for window, velocities in zip(windows, found, strict=True):
        np.testing.assert_allclose(velocities[:, 0], window.start + np.arange(STEPS))
        np.testing.assert_allclose(velocities[:, 1], -30.0 if window.mirrored else 30.0)
