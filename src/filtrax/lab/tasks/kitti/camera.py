"""KITTI's cameras: a pinhole over a flat road, and how the poses of a drive move it.

The world is flat. A pose gives the place (x, z) and the heading of the car; hills are ironed out,
and of pitch and roll only the fast part is kept, by which the car's body rocks over the road.

A pixel (u, v) looks along forward + a · right + s · down with

    a = (u − cx) / fx,        s = (v − horizon(u)) / fy,
    horizon(u) = cy − fy · (tan pitch + a · tan roll).

This is exact without pitch and roll, and shears the image instead of turning it with them. So
upright things stay upright in the image, and a column of pixels looks into one plane.
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
"""Of all cameras over the road, in metres."""

CAMERA_OFFSETS = {"image_0": 0.0, "image_1": 0.537, "image_2": -0.063, "image_3": 0.469}
"""Metres to the right of camera 0, where the poses are; from KITTI's calibration."""

CAMERA_TO_AXLE = 0.95
"""How far in front of the rear axle, about which a car turns, the cameras are, in metres. KITTI's
poses show it: their sideways motion in bends is this times the turn."""

COLOR_CAMERAS = ("image_2", "image_3")

ROCKING_FRAMES = 15
"""Pitch and roll that last longer than these frames on both sides belong to the road."""


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
        """Those of KITTI's images after resizing the whole of them to a height and a width."""
        rows, columns = (new / full for new, full in zip(image_size, FULL_SIZE, strict=True))
        return cls(
            image_size,
            focal_x=FULL_FOCAL_LENGTH * columns,
            focal_y=FULL_FOCAL_LENGTH * rows,
            # Resizing keeps the edges of the image in place, not the centres of its pixels.
            centre_x=(FULL_CENTRE[0] + 0.5) * columns - 0.5,
            centre_y=(FULL_CENTRE[1] + 0.5) * rows - 0.5,
        )


class View(eqx.Module):
    """Where a camera is and looks; any leading axes.

    **Attributes:**

    - `place`: x and z in metres, in the coordinates of the poses.
    - `heading`: in radians, from the z axis to the x axis, that is clockwise as seen from above.
    - `pitch`: in radians, downwards.
    - `roll`: in radians, to the right.
    """

    place: Float[Array | np.ndarray, "*n 2"]
    heading: Float[Array | np.ndarray, "*n"]
    pitch: Float[Array | np.ndarray, "*n"]
    roll: Float[Array | np.ndarray, "*n"]

    @property
    def forward(self) -> Float[Array, "*n 2"]:
        """Unit vector in the plane of the road."""
        return jnp.stack([jnp.sin(self.heading), jnp.cos(self.heading)], -1)

    @property
    def right(self) -> Float[Array, "*n 2"]:
        """Unit vector in the plane of the road."""
        return jnp.stack([jnp.cos(self.heading), -jnp.sin(self.heading)], -1)


def views(poses: np.ndarray, offset: float = 0.0) -> View:
    """The views of a camera that is `offset` metres to the right of where the poses are."""
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
    """What is left after subtracting the mean over the neighbouring frames."""
    padded = np.pad(angles, ROCKING_FRAMES, mode="edge")
    # Sums of equal numbers are not quite equal; a car that does not rock must not rock a little.
    means = np.lib.stride_tricks.sliding_window_view(padded, 2 * ROCKING_FRAMES + 1).mean(-1)
    return np.where(np.abs(angles - means) < 1e-9, 0.0, angles - means)
