"""States of a car from the poses of its camera.

From the columns 0 to 11 of a line of KITTI's pose file, which are the rows of the matrix [R t], the
paper's code (Kloss et al. 2021) computes

    x = column 11, forward at the start, and y = -column 3, to the left, in metres
    θ = atan2(column 8, column 10), positive to the left, in degrees
    v = √(Δx² + Δy²)/Δt in m/s, never negative, and θ̇ = wrap(Δθ)/Δt in degrees per second

with angles wrapped to [-180, 180). Its time step is 0.103 s; here it is the recorded one.
"""

import typing
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_known

Velocities = Literal["forward", "aligned"]
"""The motion that the velocities of a frame describe.

"forward" is the motion from this frame to the next, as in the paper's code, so that the state
predicts the next position. "aligned" is the motion from the previous frame to this one, which the
difference of the two images shows.
"""


def states(
    poses: Float[np.ndarray, "n 3 4"],
    times: Float[np.ndarray, " n"],
    velocities: Velocities | str = "forward",
) -> Float[np.ndarray, "n 5"]:
    """Computes x, y, heading, speed and heading rate in metres, degrees and seconds.

    Undefined velocities are NaN: those of the last frame for "forward", and those of the first
    frame for "aligned".
    """
    known = typing.get_args(Velocities)
    check_known("`velocities` must be one of those that exist", {velocities} - {*known}, known)
    position = np.stack([poses[:, 2, 3], -poses[:, 0, 3]], axis=1)
    heading = wrap_degrees(np.degrees(np.arctan2(poses[:, 2, 0], poses[:, 2, 2])))
    durations = steps(times)[1:]
    moved = np.diff(position, axis=0)
    motion = np.stack([np.hypot(moved[:, 0], moved[:, 1]), wrap_degrees(np.diff(heading))], axis=1)
    missing = np.full((1, 2), np.nan)
    parts = [motion / durations[:, None], missing]
    motion = np.concatenate(parts if velocities == "forward" else parts[::-1])
    return np.concatenate([position, heading[:, None], motion], axis=1)


def mirrored(states: Float[np.ndarray, "*batch 5"]) -> Float[np.ndarray, "*batch 5"]:
    """Mirrors states, as if images were flipped left to right."""
    flipped = states * np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    # Keep headings within [-180, 180).
    flipped[..., 2] = np.where(flipped[..., 2] == 180.0, -180.0, flipped[..., 2])
    return flipped


def steps(times: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Returns the seconds from the previous frame to each frame; NaN for the first."""
    return np.diff(times, prepend=np.nan)


def wrap_degrees(angles: Any) -> Any:
    """Wraps angles in degrees to [-180, 180)."""
    wrapped = np.mod(np.asarray(angles) + 180.0, 360.0) - 180.0
    # The remainder of a tiny negative number may round up to the divisor.
    return np.where(wrapped >= 180.0, -180.0, wrapped)
