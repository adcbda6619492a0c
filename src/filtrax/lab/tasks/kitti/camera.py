"""KITTI's cameras: a pinhole model over a flat road, moved by the poses of a drive.

The world is flat. A pose gives the position (x, z) and the heading of the car; height is ignored,
and only the fast part of pitch and roll is kept, which is the car's rocking over the road.

A pixel (u, v) looks along forward + a · right + s · down with

    a = (u − cx) / fx,        s = (v − horizon(u)) / fy,
    horizon(u) = cy − fy · (tan pitch + a · tan roll).

This is exact without pitch and roll; with them, it shears the image instead of rotating it. So
vertical lines stay vertical in the image, and a column of pixels looks into one plane.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FULL_SIZE = (376, 1241)
"""Height and width of KITTI's images."""

FULL_FOCAL_LENGTH = 718.856
FULL_CENTRE = (607.1928, 185.2157)
"""Intrinsics of sequences 00 to 02, in pixels of the full size: column and row of the centre."""

CAMERA_HEIGHT = 1.65
"""The height of all cameras over the road, in metres."""

CAMERA_OFFSETS = {"image_0": 0.0, "image_1": 0.537, "image_2": -0.063, "image_3": 0.469}
"""Offsets to the right of camera 0, to which poses refer, in metres; from KITTI's calibration."""

CAMERA_TO_AXLE = 0.95
"""The distance of the cameras in front of the rear axle, about which a car turns, in metres. It was
determined from KITTI's poses, whose sideways motion in bends is this times the turn."""

COLOR_CAMERAS = ("image_2", "image_3")

ROCKING_FRAMES = 15
"""The mean of pitch and roll over this many frames on both sides is attributed to the road."""


@dataclasses.dataclass(frozen=True)
class Intrinsics:
    """Focal lengths and centre in pixels; the centre of the first pixel is at (0, 0)."""

    image_size: tuple[int, int]
    focal_x: float
    focal_y: float
    centre_x: float
    centre_y: float

    @classmethod
    def resized(cls, image_size: tuple[int, int]) -> "Intrinsics":
        """Returns the intrinsics of KITTI's whole images, resized to a height and a width."""
        rows, columns = (new / full for new, full in zip(image_size, FULL_SIZE, strict=True))
        return cls(
            image_size,
            focal_x=FULL_FOCAL_LENGTH * columns,
            focal_y=FULL_FOCAL_LENGTH * rows,
            # Resizing preserves the edges of the image, not the centres of pixels.
            centre_x=(FULL_CENTRE[0] + 0.5) * columns - 0.5,
            centre_y=(FULL_CENTRE[1] + 0.5) * rows - 0.5,
        )


class View(eqx.Module):
    """Position and orientation of a camera, with any leading axes.

    **Attributes:**

    - `place`: x and z in metres, in the coordinates of the poses.
    - `heading`: the angle in radians from the z axis to the x axis, clockwise seen from above.
    - `pitch`: the angle in radians downwards.
    - `roll`: the angle in radians to the right.
    """

    place: Float[Array | np.ndarray, "*n 2"]
    heading: Float[Array | np.ndarray, "*n"]
    pitch: Float[Array | np.ndarray, "*n"]
    roll: Float[Array | np.ndarray, "*n"]

    @property
    def forward(self) -> Float[Array, "*n 2"]:
        """The unit vector ahead, in the plane of the road."""
        return jnp.stack([jnp.sin(self.heading), jnp.cos(self.heading)], -1)

    @property
    def right(self) -> Float[Array, "*n 2"]:
        """The unit vector to the right, in the plane of the road."""
        return jnp.stack([jnp.cos(self.heading), -jnp.sin(self.heading)], -1)


def views(poses: np.ndarray, offset: float = 0.0) -> View:
    """Returns the views of a camera that is `offset` metres to the right of the poses."""
    heading = np.arctan2(poses[:, 0, 2], poses[:, 2, 2])
    right = np.stack([np.cos(heading), -np.sin(heading)], -1)
    parts = (
        poses[:, [0, 2], 3] + offset * right,
        heading,
        _fast_part(np.arcsin(np.clip(poses[:, 1, 2], -1, 1))),
        _fast_part(np.arcsin(np.clip(poses[:, 1, 0], -1, 1))),
    )
    return View(*(part.astype(np.float32) for part in parts))


def _fast_part(angles: np.ndarray) -> np.ndarray:
    """Subtracts the mean over the neighbouring frames."""
    padded = np.pad(angles, ROCKING_FRAMES, mode="edge")
    # Remove rounding errors, so that a car that does not rock has angles of exactly zero.
    means = np.lib.stride_tricks.sliding_window_view(padded, 2 * ROCKING_FRAMES + 1).mean(-1)
    return np.where(np.abs(angles - means) < 1e-9, 0.0, angles - means)
