"""A driver model: paths of straight streets, bends and turns at junctions, with realistic speeds.

A path is a sequence of sections with a curvature κ and a speed limit. The speed is the largest one
with

    v ≤ limit,    v² |κ| ≤ lateral acceleration,    v |κ| ≤ heading rate,

and dv²/ds ≤ 2 · acceleration, −dv²/ds ≤ 2 · braking. The limits were chosen such that speeds and
heading rates are distributed as in KITTI's drives.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from filtrax.lab.tasks.kitti.camera import CAMERA_TO_AXLE
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP

SPACING = 0.05
"""The distance between the points of a path, in metres."""

EASING = 7.0
"""The distance over which curvature changes smoothly, in metres."""

WANDERING = 30.0
"""The distance between random changes of steering and speed, in metres."""

LATERAL_ACCELERATION = 2.8
HEADING_RATE = np.radians(35.0)
ACCELERATION, BRAKING = 1.5, 1.9
STEP_STD = 0.0002
"""The standard deviation of the time between two frames, in seconds."""


@dataclasses.dataclass(frozen=True)
class _Section:
    """A section of a path: length (m), curvature (1/m), speed limit (m/s) and final stop (s)."""

    length: float
    curvature: float
    limit: float
    stop: float = 0.0


def drive_path(
    seed: int, num_frames: int, *, highway: bool = False
) -> tuple[Float[np.ndarray, "n 3 4"], Float[np.ndarray, " n"]]:
    """Draws poses and times of a drive, which starts at the origin.

    **Arguments:**

    - `seed`: the seed of the path.
    - `num_frames`: the number of poses.
    - `highway`: drive on a highway, fast and nearly straight after a ramp, instead of in a town.
    """
    if num_frames < 1:
        raise ValueError(f"`num_frames` must be positive, got {num_frames}.")
    rng = np.random.default_rng([seed, int(highway)])
    times = np.cumsum(rng.normal(MEAN_STEP, STEP_STD, num_frames).clip(0.5 * MEAN_STEP))
    times -= times[0]
    sections = _highway(rng, times[-1]) if highway else _town(rng, times[-1])
    curvature, limit, stops = _profile(sections, rng)
    along = _travel(curvature, limit, stops, times)
    return _poses(curvature, along), times


def _town(rng: np.random.Generator, duration: float) -> list[_Section]:
    """Draws crossing streets, which end in a turn or a bend, some with a stop."""
    sections, seconds = [], 0.0
    while seconds < duration + 20:
        limit = rng.uniform(7.5, 13.5)
        length = rng.uniform(30, 190)
        seconds += length / limit
        side = rng.choice([-1.0, 1.0])
        if rng.uniform() < 0.6:
            stop = rng.uniform(1, 8) if rng.uniform() < 0.2 else 0.0
            radius, angle = rng.uniform(8, 15), np.radians(rng.uniform(70, 105))
            turn = _Section(radius * angle, side / radius, limit)
        else:
            stop, radius = 0.0, rng.uniform(35, 140)
            turn = _Section(radius * np.radians(rng.uniform(15, 70)), side / radius, limit)
        sections += [_Section(length, 0.0, limit, stop), turn]
    return sections


def _highway(rng: np.random.Generator, duration: float) -> list[_Section]:
    """Draws a ramp, followed by long curves."""
    radius = rng.uniform(38, 55)
    side = rng.choice([-1.0, 1.0])
    sections = [
        _Section(rng.uniform(20, 60), 0.0, 15.0),
        _Section(radius * np.radians(rng.uniform(60, 130)), side / radius, 15.0),
    ]
    seconds = 0.0
    while seconds < duration + 20:
        limit, length = rng.uniform(24.5, 29.5), rng.uniform(150, 500)
        seconds += length / limit
        sections.append(_Section(length, rng.choice([-1, 0, 1]) / rng.uniform(400, 1500), limit))
    return sections


def _profile(
    sections: list[_Section], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
    """Returns curvature and speed limit at all points, and the seconds of stops by point."""
    counts = [max(int(section.length / SPACING), 1) for section in sections]
    curvature = np.repeat([section.curvature for section in sections], counts)
    limit = np.repeat([section.limit for section in sections], counts)
    ends = np.cumsum(counts) - 1
    stops = {
        int(end) - int(EASING / SPACING): section.stop
        for end, section in zip(ends, sections, strict=True)
        if section.stop > 0
    }
    # Add random deviations of steering and speed.
    points = np.arange(len(curvature))
    knots = np.arange(0, len(curvature) + WANDERING / SPACING, WANDERING / SPACING)
    wander = np.interp(points, knots, rng.normal(0, 0.02, len(knots)) / limit.mean())
    limit = limit * np.interp(points, knots, rng.uniform(0.85, 1.0, len(knots)))
    window = np.hanning(2 * int(EASING / SPACING) + 3)
    eased = np.convolve(
        np.pad(curvature, len(window) // 2, mode="edge"), window / window.sum(), "valid"
    )
    return eased + wander, limit, stops


def _travel(
    curvature: np.ndarray, limit: np.ndarray, stops: dict[int, float], times: np.ndarray
) -> np.ndarray:
    """Returns the distance along the path at all times, in metres."""
    bent = np.maximum(np.abs(curvature), 1e-9)
    squares = np.minimum(limit, HEADING_RATE / bent) ** 2
    squares = np.minimum(squares, LATERAL_ACCELERATION / bent)
    squares[[*stops]] = 0.0
    squares = _limited(squares, 2 * ACCELERATION * SPACING)
    squares = _limited(squares[::-1], 2 * BRAKING * SPACING)[::-1]
    speeds = np.sqrt(squares)
    durations = 2 * SPACING / (speeds[1:] + speeds[:-1])
    clock = np.concatenate([[0.0], np.cumsum(durations)])
    along = np.arange(len(clock)) * SPACING
    for place, wait in sorted(stops.items(), reverse=True):
        # Two times at the same place make a stop.
        clock = np.concatenate([clock[: place + 1], clock[place:] + wait])
        along = np.insert(along, place, along[place])
    return np.interp(times, clock, along)


def _limited(squares: np.ndarray, gain: float) -> np.ndarray:
    """Limits the growth of squared speeds from point to point."""
    ramp = gain * np.arange(len(squares))
    return np.minimum.accumulate(squares - ramp) + ramp


def _poses(curvature: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Returns poses of a camera in front of the rear axle, relative to the first one."""
    heading = np.concatenate([[0.0], np.cumsum(curvature) * SPACING])
    middle = (heading[1:] + heading[:-1]) / 2
    steps = SPACING * np.stack([np.sin(middle), np.cos(middle)], -1)
    path = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    metres = np.arange(len(heading)) * SPACING
    heading, x, z = (np.interp(along, metres, part) for part in (heading, *path.T))
    forward = np.stack([np.sin(heading), np.cos(heading)], -1)
    camera = np.stack([x, z], -1) + CAMERA_TO_AXLE * forward
    poses = np.zeros((len(along), 3, 4))
    poses[:, 0, 0], poses[:, 0, 2] = np.cos(heading), np.sin(heading)
    poses[:, 2, 0], poses[:, 2, 2] = -np.sin(heading), np.cos(heading)
    poses[:, 1, 1] = 1.0
    poses[:, [0, 2], 3] = camera
    # R₀ᵀ [R | t − t₀] is the pose relative to the first camera.
    poses[:, :, 3] -= poses[0, :, 3].copy()
    return poses[0, :, :3].T @ poses
