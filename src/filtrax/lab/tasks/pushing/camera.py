"""The camera that looks at the table: a pinhole model, and the depths of an empty scene.

The geometry is that of the reference code of Kloss et al. (2021). World coordinates are in metres,
with z upwards; the camera is at (0.5, 0, 0.45) and looks down towards −x, 48 degrees from the
vertical. With the axes of the camera to the right, down and forward,

    x_c = y,    y_c = s x − c z,    z_c = 0.5 c + 0.45 s − c x − s z,
    (u, v) = (f_x x_c / z_c, f_y y_c / z_c),

where s and c are `SINE` and `COSINE`. The origin of pixels (u, v) is the middle of the image, with
u to the right and v downwards; the centre of the first one is (0.5 − width / 2, 0.5 − height / 2).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._types import Scalar

FULL_SIZE = (192, 256)
"""Height and width of the reference's images."""

FULL_FOCAL_LENGTHS = (231.764480591, 231.764488220)
"""The focal lengths along u and v, in pixels of the full size."""

SINE, COSINE = 0.66896468, 0.74329412
"""Sine and cosine of the angle between optical axis and table, 42 degrees."""

PLACE = (0.5, 0.0, 0.45)
"""The position of the camera, in metres."""

TABLE_HEIGHT = 0.0133
"""The height of the surface on which objects lie, in metres."""

WALL = -0.3505
"""The x of the vertical wall behind the table, in metres."""

MILLIMETRES = 1000.0
"""Millimetres per metre: states are in mm, the world is in metres."""

Pixel = Float[Array, " 2"]
Point = Float[Array, " 3"]


class Camera(eqx.Module):
    """The reference's camera with images of any size, which all show the same part of the world.

    **Attributes:**

    - `height`, `width`: the size of images in pixels.
    """

    height: int = eqx.field(static=True, default=FULL_SIZE[0])
    width: int = eqx.field(static=True, default=FULL_SIZE[1])

    def __check_init__(self):
        check_whole("height", self.height, 1)
        check_whole("width", self.width, 1)

    @property
    def focal_lengths(self) -> tuple[float, float]:
        """The focal lengths along u and v, in pixels."""
        (along_u, along_v), (height, width) = FULL_FOCAL_LENGTHS, FULL_SIZE
        return along_u * self.width / width, along_v * self.height / height

    def depth(self, point: Point) -> Scalar:
        """Returns the depth of a point of the world in front of the camera, in metres."""
        x, _, z = point
        return SINE * (PLACE[2] - z) + COSINE * (PLACE[0] - x)

    def project(self, point: Point) -> Pixel:
        """Projects a point of the world to a pixel."""
        x, y, z = point
        down = COSINE * (PLACE[2] - z) - SINE * (PLACE[0] - x)
        right = jnp.stack([y, down]) / self.depth(point)
        return right * np.asarray(self.focal_lengths, right.dtype)

    def unproject(self, pixel: Pixel, depth: Scalar) -> Point:
        """Returns the point of the world at a depth in the direction of a pixel."""
        return depth * jnp.stack(self._ray(pixel)) + np.asarray(PLACE, pixel.dtype)

    def plane_depth_at(self, pixel: Pixel) -> Scalar:
        """Returns the depth of the empty table, or the wall behind it, at a pixel."""
        return jnp.minimum(*_plane_depths(*self._ray(pixel)))

    def plane_depth(self) -> Float[np.ndarray, "h w"]:
        """Returns the depth image of an empty scene, in metres."""
        depth = np.minimum(*_plane_depths(*self.rays()))
        return np.broadcast_to(depth, (self.height, self.width))

    def rays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the rays of all pixels: their x, y and z per metre of depth.

        x and z depend only on the row, y only on the column: the shapes are (height, 1),
        (1, width) and (height, 1).
        """
        along_u, along_v = self.focal_lengths
        columns = np.arange(self.width)[None, :] + 0.5 - self.width / 2
        rows = np.arange(self.height)[:, None] + 0.5 - self.height / 2
        return _ray(columns / along_u, rows / along_v)

    def _ray(self, pixel: Pixel) -> tuple[Array, Array, Array]:
        right, down = pixel / np.asarray(self.focal_lengths, pixel.dtype)
        return _ray(right, down)

    def project_position(self, position: Float[Array, " 2"]) -> Pixel:
        """Projects a position on the table, in mm, to a pixel."""
        height = jnp.full(1, TABLE_HEIGHT, position.dtype)
        return self.project(jnp.concatenate([position / MILLIMETRES, height]))

    def position_at(self, pixel: Pixel) -> Float[Array, " 2"]:
        """Returns the position on the table, in mm, at a pixel.

        Its derivative includes the change of depth along the table, which the reference code
        neglects.
        """
        return MILLIMETRES * self.unproject(pixel, self.plane_depth_at(pixel))[:2]


def _ray(right, down):
    """Rotates a ray from image to world coordinates, per metre of depth."""
    return SINE * down - COSINE, right, -COSINE * down - SINE


def _plane_depths(x, y, z):
    """Returns the depths at which a ray meets the planes of the table and of the wall."""
    del y
    return (TABLE_HEIGHT - PLACE[2]) / z, (WALL - PLACE[0]) / x
