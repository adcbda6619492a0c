"""Intersections of rays with the objects of a scene, and their brightness."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.lab.tasks.pushing.camera import MILLIMETRES, PLACE, Camera
from filtrax.lab.tasks.pushing.shapes import Shape

BEVEL = 4.0
"""The width of the rim of an object, in mm."""

GROOVES = 12.0
"""The distance between grooves of an object, in mm."""

AMBIENT = 0.45
"""The share of ambient light."""


class Hit(NamedTuple):
    """The depths at which rays meet an object (infinity: they miss it), and its brightness."""

    depth: Array
    brightness: Array


class Rays(NamedTuple):
    """The rays of pixels per metre of depth; x and z by rows, y by columns."""

    x: Array
    y: Array
    z: Array

    @classmethod
    def of(cls, camera: Camera, dtype) -> "Rays":
        """Returns the rays of all pixels of a camera."""
        return cls(*(jnp.asarray(part, dtype) for part in camera.rays()))

    def at(self, depth: Array) -> tuple[Array, Array, Array]:
        """Returns the points of the world at these depths."""
        return PLACE[0] + depth * self.x, PLACE[1] + depth * self.y, PLACE[2] + depth * self.z

    def depth_at_height(self, height: float) -> Array:
        """Returns the depths at which rays reach a height above the ground."""
        return (height - PLACE[2]) / self.z

    def dot(self, vector: Array) -> Array:
        """Returns the scalar products with a vector."""
        return self.x * vector[0] + self.y * vector[1] + self.z * vector[2]


def prism(depths: Array, distances: Array, slope: tuple[Array, Array], light: Array) -> Hit:
    """Intersects rays with the object: its top, or the side at the first crossing below it."""
    before, after = distances[:-1], distances[1:]
    entered = (before >= 0) & (after < 0)
    share = before / jnp.where(entered, before - after, 1.0)
    crossings = depths[:-1] + share * (depths[1:] - depths[:-1])
    side = jnp.where(entered, crossings, jnp.inf).min(0)
    top = distances[0] < 0
    facing = slope[0] * light[0] + slope[1] * light[1]
    # The rim is tilted outwards by 45 degrees, and grooves are slightly darker.
    rim = distances[0] > -BEVEL
    tilted = (light[2] + facing) * 0.7
    grooves = 0.9 + 0.1 * jnp.cos(2 * np.pi * distances[0] / GROOVES)
    upper = jnp.where(rim, _lambert(tilted), _lambert(light[2]) * grooves)
    brightness = jnp.where(top, upper, 0.8 * _lambert(facing))
    return Hit(jnp.where(top, depths[0], side), brightness)


def capsule(rays: Rays, start: Array, end: Array, radius: float, light: Array) -> Hit:
    """Intersects rays with a capsule, the points within a radius of a line segment.

    The cylinder and the balls at its ends give quadratic equations for the depth.
    """
    axis, offset = end - start, jnp.asarray(PLACE, start.dtype) - start
    square, behind = jnp.maximum(_dot(axis, axis), 1e-9), _dot(offset, axis)
    ray_axis, ray_ray = rays.dot(axis), rays.x**2 + rays.y**2 + rays.z**2
    body = _nearer_root(
        jnp.maximum(square * ray_ray - ray_axis**2, 1e-12),
        square * rays.dot(offset) - behind * ray_axis,
        square * (_dot(offset, offset) - radius**2) - behind**2,
    )
    before, after = (
        _nearer_root(ray_ray, rays.dot(ball), _dot(ball, ball) - radius**2)
        for ball in (offset, offset - axis)
    )
    along = behind + body * ray_axis
    depth = jnp.where(along < 0, before, jnp.where(along > square, after, body))
    depth = jnp.where(jnp.isfinite(body), depth, jnp.inf)
    share = jnp.clip((behind + depth * ray_axis) / square, 0.0, 1.0)
    # The normal points from the axis to the point.
    facing = _dot(offset, light) + depth * rays.dot(light) - share * _dot(axis, light)
    return Hit(depth, _lambert(facing / radius))


def signed_distances(
    pose: Float[Array, " 3"], shape: Shape, rays: Rays, depths: Float[Array, "heights h 1"]
) -> tuple[Float[Array, "heights h w"], tuple[Array, Array]]:
    """Computes signed distances to the outline at several heights, and the slope at the first.

    The slope is the gradient of the distance with respect to x and y of the world.
    """
    x, y, _ = (part * MILLIMETRES for part in jax.vmap(rays.at)(depths))
    angle = jnp.deg2rad(pose[2])
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    across, along = x - pose[0], y - pose[1]
    distances, (first, second) = _look_up(
        shape, cosine * across + sine * along, cosine * along - sine * across
    )
    return distances, (cosine * first[0] - sine * second[0], sine * first[0] + cosine * second[0])


def _look_up(shape: Shape, x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
    """Looks up signed distances of points in the object's frame, and their gradients.

    The map is interpolated linearly; beyond it, the distance to the map is added.
    """
    table, size = shape.distance.astype(x.dtype), shape.distance.shape[-1]

    def cell(coordinate: Array) -> tuple[Array, Array, Array]:
        place = (coordinate + shape.half_width) / shape.spacing
        within = jnp.clip(place, 0, size - 1)
        below = jnp.clip(jnp.floor(within), 0, size - 2)
        return below.astype(jnp.int32), within - below, jnp.abs(place - within)

    (row, down, beyond), (column, right, aside) = cell(x), cell(y)
    # Store the four corners of each cell side by side, to gather once instead of four times.
    cells = jnp.stack([table[:-1, :-1], table[:-1, 1:], table[1:, :-1], table[1:, 1:]], -1)
    corners = cells.reshape(-1, 4).at[row * (size - 1) + column].get(mode="promise_in_bounds")
    near, beside, below, far = (corners[..., i] for i in range(4))
    left, other = near + down * (below - near), beside + down * (far - beside)
    upper, lower = near + right * (beside - near), below + right * (far - below)
    slopes = ((lower - upper) / shape.spacing, (other - left) / shape.spacing)
    return left + right * (other - left) + shape.spacing * (beyond + aside), slopes


def _nearer_root(first: Array, second: Array, third: Array) -> Array:
    """Returns the smaller root t of first t² + 2 second t + third = 0, or infinity."""
    square = second**2 - first * third
    root = jnp.sqrt(jnp.maximum(square, 0.0))
    return jnp.where(square > 0, (-second - root) / first, jnp.inf)


def _dot(a: Array, b: Array) -> Array:
    return (a * b).sum()  # matrix products are less precise on GPUs


def _lambert(facing: Array) -> Array:
    """Returns brightness from the cosine of the angle between a surface's normal and the light."""
    return AMBIENT + (1 - AMBIENT) * jnp.maximum(facing, 0.0)
