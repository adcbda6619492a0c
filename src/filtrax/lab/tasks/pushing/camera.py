"""The camera that looks at the table: a pinhole, and what it sees of an empty scene.

The geometry is that of the reference code of Kloss et al. (2021). World coordinates are in metres,
with z upwards; the camera is at (0.5, 0, 0.45) and looks down towards −x, 48 degrees from the
vertical. With the axes of the camera to the right, down and forward,

    x_c = y,    y_c = s x − c z,    z_c = 0.5 c + 0.45 s − c x − s z,
    (u, v) = (f_x x_c / z_c, f_y y_c / z_c),

where s and c are `SINE` and `COSINE`. Pixels (u, v) are counted from the middle of the image,
to the right and downwards; the centre of the first one is at (0.5 − width / 2, 0.5 − height / 2).
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
"""Along u and v, in pixels of the full size."""

SINE, COSINE = 0.66896468, 0.74329412
"""Of the angle between the view and the table, 42 degrees."""

PLACE = (0.5, 0.0, 0.45)
"""Of the camera, in metres."""

TABLE_HEIGHT = 0.0133
"""Of the surface that objects lie on, in metres."""

WALL = -0.3505
"""The x of the vertical wall behind the table, in metres."""

MILLIMETRES = 1000.0
"""In a metre: states are in mm, the world is in metres."""

Pixel = Float[Array, " 2"]
Point = Float[Array, " 3"]


class Camera(eqx.Module):
    """The reference's camera with images of any size, which all show the same part of the world.

    **Attributes:**

    - `height`, `width`: of the image, in pixels.
    """

    height: int = eqx.field(static=True, default=FULL_SIZE[0])
    width: int = eqx.field(static=True, default=FULL_SIZE[1])

    def __check_init__(self):
        check_whole("height", self.height, 1)
        check_whole("width", self.width, 1)

    @property
    def focal_lengths(self) -> tuple[float, float]:
        """Along u and v, in pixels."""
        (along_u, along_v), (height, width) = FULL_FOCAL_LENGTHS, FULL_SIZE
        return along_u * self.width / width, along_v * self.height / height

    def depth(self, point: Point) -> Scalar:
        """How far in front of the camera a point of the world is, in metres."""
        x, _, z = point
        return SINE * (PLACE[2] - z) + COSINE * (PLACE[0] - x)

    def project(self, point: Point) -> Pixel:
        """The pixel in which a point of the world is seen."""
        x, y, z = point
        down = COSINE * (PLACE[2] - z) - SINE * (PLACE[0] - x)
        right = jnp.stack([y, down]) / self.depth(point)
        return right * np.asarray(self.focal_lengths, right.dtype)

    def unproject(self, pixel: Pixel, depth: Scalar) -> Point:
        """The point of the world that is seen in a pixel at this depth."""
        return depth * jnp.stack(self._ray(pixel)) + np.asarray(PLACE, pixel.dtype)

    def plane_depth_at(self, pixel: Pixel) -> Scalar:
        """How far the empty table, or the wall behind it, is in the direction of a pixel."""
        return jnp.minimum(*_plane_depths(*self._ray(pixel)))

    def plane_depth(self) -> Float[np.ndarray, "h w"]:
        """The depth image of an empty scene, in metres."""
        depth = np.minimum(*_plane_depths(*self.rays()))
        return np.broadcast_to(depth, (self.height, self.width))

    def rays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the rays of all pixels move by in the world, along x, y and z, per metre of depth.

        Along x and z they depend on the row alone, along y on the column alone: the shapes are
        (height, 1), (1, width) and (height, 1).
        """
        along_u, along_v = self.focal_lengths
        columns = np.arange(self.width)[None, :] + 0.5 - self.width / 2
        rows = np.arange(self.height)[:, None] + 0.5 - self.height / 2
        return _ray(columns / along_u, rows / along_v)

    def _ray(self, pixel: Pixel) -> tuple[Array, Array, Array]:
        right, down = pixel / np.asarray(self.focal_lengths, pixel.dtype)
        return _ray(right, down)

    def project_position(self, position: Float[Array, " 2"]) -> Pixel:
        """The pixel of a position on the table, which is in mm."""
        height = jnp.full(1, TABLE_HEIGHT, position.dtype)
        return self.project(jnp.concatenate([position / MILLIMETRES, height]))

    def position_at(self, pixel: Pixel) -> Float[Array, " 2"]:
        """The position on the table, in mm, that is seen in a pixel.

        Its derivative is that of moving along the table; the reference code leaves out that the
        depth changes, too.
        """
        return MILLIMETRES * self.unproject(pixel, self.plane_depth_at(pixel))[:2]


def _ray(right, down):
    """What a ray moves by in the world per metre of depth, by what it moves by in the image."""
    return SINE * down - COSINE, right, -COSINE * down - SINE


def _plane_depths(x, y, z):
    """Where a ray meets the plane of the table and that of the wall."""
    del y
    return (TABLE_HEIGHT - PLACE[2]) / z, (WALL - PLACE[0]) / x
