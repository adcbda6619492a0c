"""States of a car from the poses of its camera.

With the columns 0 to 11 of a line of KITTI's pose file, that is the rows of the matrix [R t] one
after the other, the paper's code (Kloss et al. 2021) takes

    x = column 11, forward at the start, and y = -column 3, to the left, in metres
    θ = atan2(column 8, column 10), positive to the left, in degrees
    v = √(Δx² + Δy²)/Δt in m/s, never negative, and θ̇ = wrap(Δθ)/Δt in degrees per second

where angles are wrapped to [-180, 180). Its time step is 0.103 s, while here it is the real one.
"""

import typing
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_known

Velocities = Literal["forward", "aligned"]
"""Which motion the velocities of a frame are those of.

"forward" is the motion from this frame to the next, as in the paper's code, so that the state
predicts the next position. "aligned" is the one from the frame before to this one, which is what
the difference of the two images shows.
"""


def states(
    poses: Float[np.ndarray, "n 3 4"],
    times: Float[np.ndarray, " n"],
    velocities: Velocities | str = "forward",
) -> Float[np.ndarray, "n 5"]:
    """x, y, heading, speed and heading rate in metres, degrees and seconds.

    The velocities that do not exist are NaN: those of the last frame if they are forward, those of
    the first one if they are aligned.
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
    """The states as a camera sees them whose images are flipped left to right."""
    flipped = states * np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    # The half turn is its own mirror image: 180 degrees would be outside of the range.
    flipped[..., 2] = np.where(flipped[..., 2] == 180.0, -180.0, flipped[..., 2])
    return flipped


def steps(times: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Seconds from the frame before to each frame; NaN for the first."""
    return np.diff(times, prepend=np.nan)


def wrap_degrees(angles: Any) -> Any:
    """Angles within [-180, 180)."""
    wrapped = np.mod(np.asarray(angles) + 180.0, 360.0) - 180.0
    # The remainder of a tiny negative number is rounded up to the divisor.
    return np.where(wrapped >= 180.0, -180.0, wrapped)
