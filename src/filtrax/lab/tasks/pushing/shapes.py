"""The eleven objects of the MIT Push data set, as outlines and as signed distance maps.

Yu, Bauza, Fazeli and Rodriguez, *More than a million ways to be pushed*, IROS 2016. All lengths are
in mm. The origin of an object's frame is the centroid of its outline, the centre of friction for
even pressure; the data set has another origin for the three triangles.
"""

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._types import Scalar

NAMES = (
    *("rect1", "rect2", "rect3", "tri1", "tri2", "tri3"),
    *("ellip1", "ellip2", "ellip3", "hex", "butter"),
)
THICKNESS = 13.0
"""The thickness of all objects."""
TIP_RADIUS = 4.75
"""The radius of the pusher's tip."""

SYMMETRY: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(NAMES, 180.0)
    | {"tri1": 360.0, "tri2": 360.0, "tri3": 360.0, "rect1": 90.0, "hex": 60.0, "ellip1": 0.0}
)
"""The angle in degrees by which an object is rotationally symmetric; 0 for the circle."""

NUM_POINTS = 256
SPACING = 1.0
HALF_WIDTH = 128.0

_RECTANGLES = {"rect1": (90.0, 90.0), "rect2": (89.91, 112.58), "rect3": (135.01, 89.94)}
_TRIANGLES = {"tri1": (125.9, 125.87), "tri2": (151.0, 125.87), "tri3": (176.5, 125.61)}
_ELLIPSES = {"ellip1": (52.5, 52.5), "ellip2": (52.5, 65.445), "ellip3": (52.5, 78.5)}
_HEXAGON_RADIUS = 60.5
_TRIANGLE_CORNER = (45.0, 45.0)

# x + iy = Σ_k a_k exp(ikt), fitted to the data set's 637 points of this object, with a mean error
# of 0.05 mm and a largest error of 0.26 mm.
_BUTTER = {
    **{-13: 0.092 - 0.006j, -11: 0.102 - 0.006j, -9: 0.107 - 0.001j, -7: 0.360 - 0.016j},
    **{-5: 1.851 - 0.069j, -3: 5.612 - 0.158j, -1: 14.316 + 0.226j, 1: -61.175 - 0.137j},
    **{3: 8.842 + 0.092j, 5: 2.489 + 0.125j, 7: -0.163 - 0.015j, 9: -0.348 - 0.033j},
    **{11: 0.063 - 0.001j, 13: 0.134 + 0.012j},
}


class Shape(eqx.Module):
    """One object, or several with a leading axis, as all objects have arrays of the same shapes.

    **Attributes:**

    - `outline`: counter-clockwise points, including the corners.
    - `distance`: the signed distance to the outline, negative inside; entry (i, j) belongs to the
      point (i, j)·spacing − half_width.
    - `centroid`: the origin of this frame in the frame of the data set.
    - `even_pressure_length`: c, the largest moment of friction divided by its largest force, for
      even pressure: the mean distance from the centroid.
    - `period`: the angle in `SYMMETRY`, in degrees.
    """

    outline: Float[Array, "*b points 2"]
    distance: Float[Array, "*b grid grid"]
    centroid: Float[Array, "*b 2"]
    even_pressure_length: Float[Array, "*b"]
    period: Float[Array, "*b"]
    spacing: float = eqx.field(static=True, default=SPACING)
    half_width: float = eqx.field(static=True, default=HALF_WIDTH)


def shape(name: str) -> Shape:
    """Returns the object of a name in `NAMES`."""
    check_known("An object must be one of the data set", {name} - {*NAMES}, NAMES)
    return shape_of_outline(data_set_outline(name), SYMMETRY[name])


def all_shapes() -> Shape:
    """Returns all objects with a leading axis, in the order of `NAMES`."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *map(shape, NAMES))


def shape_of_outline(outline: Float[np.ndarray, "points 2"], period: float = 360.0) -> Shape:
    """Makes an object of any counter-clockwise outline of about evenly spaced points."""
    tables = _tables(outline.astype(np.float64).tobytes())
    arrays = [jnp.asarray(table, float) for table in tables]
    return Shape(arrays[0], arrays[1], arrays[2], arrays[3], jnp.asarray(period, float))


def signed_distance(shape: Shape, point: Float[Array, " 2"]) -> Scalar:
    """Returns the distance of a point in the object's frame to the outline, negative inside.

    The map is interpolated cubically (Catmull and Rom 1974). Beyond it, the distance to its edge is
    added.
    """
    return distance_and_normal(shape, point)[0]


def normal(shape: Shape, point: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Returns the inward unit normal at the point of the outline nearest to a point.

    This is the negative gradient of the signed distance; zero where that vanishes, as at the centre
    of a circle.
    """
    return distance_and_normal(shape, point)[1]


def distance_and_normal(
    shape: Shape, point: Float[Array, " 2"]
) -> tuple[Scalar, Float[Array, " 2"]]:
    """Returns signed distance and normal, at about the cost of one of them."""
    on_map = _within_map(shape, point)
    patch, share = _patch(shape, on_map)
    (along_x, along_y), (slope_x, slope_y) = _cubic(share), _cubic_slope(share)

    # Sums instead of matrix products, whose precision is reduced on GPUs.
    def weighted(first: Array, second: Array) -> Array:
        return (patch * first[:, None] * second[None, :]).sum()

    gradient = jnp.stack([weighted(slope_x, along_y), weighted(along_x, slope_y)])
    _, outward = _length_and_direction(gradient, 1e-3 * shape.spacing)
    beyond, _ = _length_and_direction(point - on_map, 0.0)
    return weighted(along_x, along_y) + beyond, -outward


def rotated(vector: Float[Array, " 2"], degrees: Scalar) -> Float[Array, " 2"]:
    """Rotates a vector to the left by an angle."""
    angle = degrees * (math.pi / 180)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    x, y = vector[0], vector[1]
    return jnp.stack([cosine * x - sine * y, sine * x + cosine * y])


def from_data_set(shape: Shape, pose: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """Converts a pose (mm, mm, degrees) of the data set's frame to that of the object's frame."""
    return jnp.append(pose[:2] + rotated(shape.centroid, pose[2]), pose[2])


def to_data_set(shape: Shape, pose: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """Converts a pose of the object's frame to that of the data set's frame."""
    return jnp.append(pose[:2] - rotated(shape.centroid, pose[2]), pose[2])


def data_set_outline(name: str) -> Float[np.ndarray, "points 2"]:
    """Returns the counter-clockwise outline of an object in the data set's frame."""
    angles = 2 * math.pi * np.arange(NUM_POINTS) / NUM_POINTS
    if name in _ELLIPSES:
        return np.stack([np.cos(angles), np.sin(angles)], -1) * _ELLIPSES[name]
    if name == "butter":
        curve = sum(a * np.exp(1j * k * angles) for k, a in _BUTTER.items())
        return np.stack([np.real(curve), np.imag(curve)], -1)
    return along_polygon(_corners(name), NUM_POINTS)


def along_polygon(
    corners: Float[np.ndarray, "corners 2"], num_points: int
) -> Float[np.ndarray, "points 2"]:
    """Returns about evenly spaced points along the sides of a polygon, including all corners."""
    sides = np.roll(corners, -1, 0) - corners
    ends = np.cumsum(np.hypot(*sides.T))
    counts = np.diff(np.round(num_points * ends / ends[-1]).astype(int), prepend=0)
    parts = [
        corner + side * np.arange(count)[:, None] / count
        for corner, side, count in zip(corners, sides, counts, strict=True)
        if count
    ]
    return np.concatenate(parts)


def _corners(name: str) -> np.ndarray:
    if name in _RECTANGLES:
        return np.asarray([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * _RECTANGLES[name] / 2
    if name in _TRIANGLES:
        width, height = _TRIANGLES[name]
        return np.asarray([(0.0, 0.0), (-width, 0.0), (0.0, -height)]) + _TRIANGLE_CORNER
    angles = math.pi / 3 * np.arange(6)
    return _HEXAGON_RADIUS * np.stack([np.cos(angles), np.sin(angles)], -1)


class _Tables(NamedTuple):
    outline: np.ndarray
    distance: np.ndarray
    centroid: np.ndarray
    even_pressure_length: float


@functools.lru_cache(maxsize=32)
def _tables(data: bytes) -> _Tables:
    outline = np.frombuffer(data).reshape(-1, 2)
    centroid = _centroid(outline)
    outline = outline - centroid
    return _Tables(outline, _distance_map(outline), centroid, _mean_distance(outline))


def _crosses(outline: np.ndarray) -> np.ndarray:
    """Returns twice the signed areas of the triangles between the origin and the sides."""
    after = np.roll(outline, -1, 0)
    return outline[:, 0] * after[:, 1] - outline[:, 1] * after[:, 0]


def _centroid(outline: np.ndarray) -> np.ndarray:
    crosses = _crosses(outline)
    return crosses @ (outline + np.roll(outline, -1, 0)) / (3 * crosses.sum())


def _mean_distance(outline: np.ndarray) -> float:
    """Computes the mean distance of the enclosed points from the origin.

    In the triangle of the origin and a side, it is ⅔ ∫₀¹ |p(s)| ds with p(s) along the side.
    """
    places, weights = np.polynomial.legendre.leggauss(5)
    places = (places[:, None, None] + 1) / 2
    along = (1 - places) * outline + places * np.roll(outline, -1, 0)
    means = weights / 2 @ np.hypot(along[..., 0], along[..., 1])
    crosses = _crosses(outline)
    return float(2 / 3 * (crosses @ means) / crosses.sum())


def _distance_map(outline: np.ndarray) -> np.ndarray:
    axis = np.arange(-HALF_WIDTH, HALF_WIDTH + SPACING / 2, SPACING)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    # Squared distances minus squared norms of points; float32 suffices to find the smallest.
    few = np.float32
    squares = (outline**2).sum(1).astype(few) - points.astype(few) @ (2 * outline.T).astype(few)
    nearest = squares.argmin(1)
    # The outline is so dense that the nearest side ends at the nearest point.
    distance = np.minimum(
        _distance_to_side(points, outline, nearest),
        _distance_to_side(points, outline, nearest - 1),
    ).reshape(axis.size, axis.size)
    return np.where(_inside(outline, axis), -distance, distance)


def _distance_to_side(points: np.ndarray, outline: np.ndarray, index: np.ndarray) -> np.ndarray:
    start = outline[index]
    side = np.roll(outline, -1, 0)[index] - start
    share = ((points - start) * side).sum(1) / (side**2).sum(1)
    offset = points - start - np.clip(share, 0.0, 1.0)[:, None] * side
    return np.hypot(offset[:, 0], offset[:, 1])


def _inside(outline: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Returns a mask of grid points inside, whose rays to the left cross an odd number of sides."""
    (x, y), (next_x, next_y) = outline.T, np.roll(outline, -1, 0).T
    inside = np.zeros((axis.size, axis.size), bool)
    for column, height in enumerate(axis):
        crossed = (y <= height) != (next_y <= height)
        share = (height - y[crossed]) / (next_y - y)[crossed]
        crossings = np.sort(x[crossed] + share * (next_x - x)[crossed])
        inside[:, column] = np.searchsorted(crossings, axis) % 2 == 1
    return inside


def _within_map(shape: Shape, point: Array) -> Array:
    # One cell from the edge, so that the 4 × 4 patch around the point is on the map.
    end = shape.half_width - shape.spacing
    return jnp.clip(point, -end, end)


def _patch(shape: Shape, point: Array) -> tuple[Array, Array]:
    """Returns the 4 × 4 entries around a point, and its position in the middle cell (0 to 1)."""
    place = (point + shape.half_width) / shape.spacing
    corner = jnp.clip(jnp.floor(jax.lax.stop_gradient(place)), 1, shape.distance.shape[-1] - 3)
    first = corner.astype(int) - 1
    patch = jax.lax.dynamic_slice(shape.distance, (first[0], first[1]), (4, 4))
    return patch, place - corner


def _cubic(t: Float[Array, " 2"]) -> Float[Array, "2 4"]:
    """Returns the weights of four entries along both axes, for a point between the middle ones."""
    return jnp.stack(
        [
            t * (-0.5 + t * (1.0 - 0.5 * t)),
            1.0 + t * t * (-2.5 + 1.5 * t),
            t * (0.5 + t * (2.0 - 1.5 * t)),
            t * t * (-0.5 + 0.5 * t),
        ],
        -1,
    )


def _cubic_slope(t: Float[Array, " 2"]) -> Float[Array, "2 4"]:
    """Returns the derivative of `_cubic`."""
    return jnp.stack(
        [
            -0.5 + t * (2.0 - 1.5 * t),
            t * (-5.0 + 4.5 * t),
            0.5 + t * (4.0 - 4.5 * t),
            t * (-1.0 + 1.5 * t),
        ],
        -1,
    )


def _length_and_direction(vector: Array, smallest: float) -> tuple[Array, Array]:
    """Returns length and direction; zeros for vectors up to `smallest`, with zero derivatives."""
    squared = vector @ vector
    long = squared > smallest**2
    length = jnp.sqrt(jnp.where(long, squared, 1.0))
    return jnp.where(long, length, 0.0), jnp.where(long, vector / length, 0.0)
