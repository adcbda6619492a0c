"""Baselines without learning, or with a single fitted number.

All estimate velocities for each step of a window. Poses follow from the equations of motion, and
are scored as those of filters.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from filtrax.lab.tasks.kitti.motion import wrap_degrees
from filtrax.lab.tasks.kitti.windows import Window
from filtrax.metrics import end_errors
from filtrax.trajectory import Trajectory

Speeds = Float[np.ndarray, "n t 2"]
"""Speeds in m/s and heading rates in degrees per second, for each step of n windows."""


def constant_velocity(data: Trajectory) -> Speeds:
    """Keeps the initial speed and heading rate."""
    initial = np.asarray(data.initial, float)
    num_steps = data.inputs.shape[1]
    return np.repeat(initial[:, None, 3:], num_steps, axis=1)


def mean_speed(data: Trajectory, speed: float) -> Speeds:
    """Drives straight on with one speed for all windows."""
    return np.tile([speed, 0.0], (*data.inputs.shape[:2], 1))


def optical_flow(windows: Sequence[Window], num_steps: int) -> Speeds:
    """Estimates velocities from optical flow, without learning (`filtrax.lab.tasks.kitti.flow`).

    Frames that several windows share are processed once.
    """
    estimates = {key: _flow_of(*key, windows, num_steps) for key in _sources(windows)}
    velocities = np.empty((len(windows), num_steps, 2))
    for number, window in enumerate(windows):
        first, found = estimates[window.track.drive.name, window.camera]
        part = found[window.start - first : window.start - first + num_steps]
        velocities[number] = part * [1.0, -1.0] if window.mirrored else part
    return velocities


def _sources(windows: Sequence[Window]) -> set[tuple[str, str]]:
    return {(window.track.drive.name, window.camera) for window in windows}


def _flow_of(
    name: str, camera: str, windows: Sequence[Window], num_steps: int
) -> tuple[int, Float[np.ndarray, "n 2"]]:
    """Returns the first frame of a drive's windows, and the velocities from it to the last one."""
    # Imported here, because other baselines do not need it.
    from filtrax.lab.tasks.kitti.flow import estimate_motion

    mine = [w for w in windows if (w.track.drive.name, w.camera) == (name, camera)]
    first = min(window.start for window in mine)
    stop = max(window.start for window in mine) + num_steps + 1
    drive = mine[0].track.drive
    images = np.asarray(drive.cameras[camera][first:stop], np.float32).mean(-1)
    steps = np.diff(drive.times[first:stop]).astype(np.float32)
    motions = estimate_motion(images[:-1], images[1:], steps=steps)
    return first, np.stack([np.asarray(part, float) for part in motions], -1)


def dead_reckoning(data: Trajectory, velocities: Speeds) -> Float[np.ndarray, "n t 5"]:
    """Integrates velocities from the initial pose to states.

    x⁺ = x + v cos(θ) Δt, y⁺ = y + v sin(θ) Δt, θ⁺ = θ + θ̇ Δt, with v and θ̇ of the step itself.
    """
    initial = np.asarray(data.initial, float)
    steps = np.asarray(data.inputs, float)[:, :, 0]
    turned = np.cumsum(velocities[..., 1] * steps, axis=1)
    heading = initial[:, None, 2] + turned
    before = np.radians(np.concatenate([initial[:, None, 2], heading[:, :-1]], axis=1))
    moved = velocities[..., 0] * steps
    x = initial[:, None, 0] + np.cumsum(moved * np.cos(before), axis=1)
    y = initial[:, None, 1] + np.cumsum(moved * np.sin(before), axis=1)
    return np.concatenate([np.stack([x, y, wrap_degrees(heading)], axis=-1), velocities], axis=-1)


def scores(data: Trajectory, velocities: Speeds) -> dict[str, Float[np.ndarray, " n"]]:
    """Returns the errors of the final pose per metre driven, and the mean distance of states."""
    states = np.asarray(data.states, float)
    difference = states - dead_reckoning(data, velocities)
    difference[..., 2] = wrap_degrees(difference[..., 2])
    translation, rotation = end_errors(data.initial, states, difference)
    return {
        "translation_error": translation,
        "rotation_error": rotation,
        "distance": np.sqrt((difference**2).sum(-1)).mean(-1),
    }
