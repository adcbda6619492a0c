"""Intersections of columns of rays with objects.

A column of pixels looks into a vertical plane, and objects are upright. So the intersection of a
column and an object is computed once in the plane of the road, and rows only compare heights with
its lower and upper end.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from filtrax.lab.tasks.kitti.camera import CAMERA_HEIGHT, View
from filtrax.lab.tasks.kitti.streets.light import Light
from filtrax.lab.tasks.kitti.streets.scene import BUILDING, CAR, COLUMN, CROWN, Objects
from filtrax.lab.tasks.kitti.streets.textures import noise

NEAREST = 0.3
"""The near clipping distance in metres."""

FARTHEST = 140.0
"""The distance in metres beyond which objects are not drawn."""

Columns = Float[Array, " columns"]


class Hit(eqx.Module):
    """The intersections of the columns of an image with one object.

    **Attributes:**

    - `depth`: metres in the direction of the camera; infinite for columns that miss the object.
    - `low`, `high`: the heights at this depth between which a ray meets the object.
    - `roof`: the height above which rays meet the top of the object.
    - `along`: the coordinate along the side of the object, in metres.
    - `bright`: the light on that side.
    - `slant`: the cosine between ray and the normal of the side, at least 0.1.
    """

    depth: Columns
    low: Columns
    high: Columns
    roof: Columns
    along: Columns
    bright: Columns
    slant: Columns


def nearest_objects(objects: Objects, view: View, count: int) -> Objects:
    """Returns the `count` nearest objects in view, where height counts as nearness.

    If there are fewer, the rest are placed out of sight.
    """
    gaps = objects.places - view.place[None]
    ahead = gaps @ view.forward
    aside = jnp.abs(gaps @ view.right)
    size = objects.halves.max(1)
    # The field of view is 41 degrees to both sides; large objects reach into it from outside.
    seen = (ahead > -size) & (aside < 1.0 * ahead + 2.5 * size + 2.0) & (ahead < FARTHEST)
    distance = jnp.hypot(ahead, aside) - 2.0 * objects.heights[:, 1]
    score = jnp.where(seen, -distance, -jnp.inf)
    chosen, index = jax.lax.top_k(score, count)
    nearest = jax.tree.map(lambda array: jnp.asarray(array)[index], objects)
    away = jnp.where(jnp.isfinite(chosen)[:, None], nearest.places, 1e6)
    return eqx.tree_at(lambda tree: tree.places, nearest, away)


def meet(one: Objects, view: View, rays: Float[Array, "columns 2"], light: Light) -> Hit:
    """Intersects the columns of an image with a single object, without a leading axis."""
    box = _meet_box(one, view, rays, light)
    cylinder = _meet_cylinder(one, view, rays, light)
    chosen = one.kinds >= COLUMN
    return jax.tree.map(lambda first, other: jnp.where(chosen, first, other), cylinder, box)


def _meet_box(one: Objects, view: View, rays: Array, light: Light) -> Hit:
    axis = one.axes
    across = jnp.stack([axis[1], -axis[0]])
    gap = view.place - one.places
    start = jnp.stack([gap @ axis, gap @ across])[:, None]
    slope = jnp.stack([rays @ axis, rays @ across])
    slope = jnp.where(jnp.abs(slope) < 1e-6, 1e-6, slope)
    middle, spread = -start / slope, one.halves[:, None] / jnp.abs(slope)
    enters, leaves = (middle - spread).max(0), (middle + spread).min(0)
    ends = (middle - spread)[0] > (middle - spread)[1]
    side = jnp.where(ends, start[1] + enters * slope[1], start[0] + enters * slope[0])
    facing = jnp.where(ends, -jnp.sign(slope[0]), -jnp.sign(slope[1]))
    towards_sun = facing * jnp.where(ends, axis @ light.sun, across @ light.sun)
    steep = jnp.abs(jnp.where(ends, slope[0], slope[1])) / jnp.linalg.norm(rays, axis=-1)
    top = _upper_edge(one, ends, side)
    # The far edge of a top below the camera appears above its near edge.
    highest = jnp.maximum(top, CAMERA_HEIGHT - (CAMERA_HEIGHT - top) * enters / leaves)
    building, walls = one.kinds == BUILDING, _roof_height(one, start[1] + enters * slope[1])
    for depth in (jnp.clip(middle[1], enters, leaves), leaves):
        seen = CAMERA_HEIGHT - _roof_height(one, start[1] + depth * slope[1])
        walls = jnp.maximum(walls, CAMERA_HEIGHT - seen * enters / depth)
    return Hit(
        depth=jnp.where((leaves > enters) & (enters > NEAREST), enters, jnp.inf),
        low=jnp.broadcast_to(one.heights[0], side.shape),
        high=jnp.where(building, walls, highest),
        roof=jnp.where(building, _roof_height(one, start[1] + enters * slope[1]), top),
        # Give each of the four sides its own texture.
        along=side + jnp.where(ends, 50.0, 0.0) + 100.0 * facing,
        bright=_brightness(towards_sun, light),
        slant=jnp.maximum(steep, 0.1),
    )


def _upper_edge(one: Objects, ends: Array, side: Columns) -> Columns:
    """Returns the height of the outline, which is lower at the bonnet and boot of a car."""
    bonnet = jnp.clip((jnp.abs(side) - one.halves[0] + 1.0) / 0.5, 0.0, 1.0)
    lower = jnp.where((one.kinds == CAR) & ~ends, 0.55 * bonnet, 0.0)
    return one.heights[1] - lower


def _roof_height(one: Objects, across: Columns) -> Columns:
    """Returns the height of a building's gable roof at a distance from its ridge."""
    rise = 1.0 - jnp.abs(across) / jnp.maximum(one.halves[1], 1e-3)
    return one.heights[2] + (one.heights[1] - one.heights[2]) * rise


def _meet_cylinder(one: Objects, view: View, rays: Array, light: Light) -> Hit:
    radius = jnp.maximum(one.halves[0], 1e-3)
    gap = one.places - view.place
    squared = (rays**2).sum(-1)
    closest = (rays @ gap) / squared
    passed = jnp.square(rays[:, 0] * gap[1] - rays[:, 1] * gap[0]) / squared / radius**2
    inside = jnp.sqrt(jnp.maximum(1.0 - passed, 0.0))
    enters = closest - radius * inside / jnp.sqrt(squared)
    normals = (enters[:, None] * rays - gap[None]) / radius
    along = radius * jnp.arctan2(normals[:, 0], normals[:, 1])
    low, high = one.heights[0], one.heights[1]
    leaves = noise(2.0 * along + one.colors[3], jnp.zeros_like(along), 77) - 0.5
    half = (high - low) / 2 * inside * (1.0 + 0.35 * leaves)
    crown = one.kinds == CROWN
    # Project the outline at the depth of the axis to the depth of the surface.
    ratio = jnp.where(closest > NEAREST, enters / closest, 1.0)
    upper = CAMERA_HEIGHT - (CAMERA_HEIGHT - (low + high) / 2 - half) * ratio
    lower = CAMERA_HEIGHT - (CAMERA_HEIGHT - (low + high) / 2 + half) * ratio
    upper, lower = jnp.where(crown, upper, high), jnp.where(crown, lower, low)
    met = (passed < 1.0) & (enters > NEAREST)
    return Hit(
        depth=jnp.where(met, enters, jnp.inf),
        low=lower,
        high=upper,
        roof=jnp.full_like(upper, np.inf),
        along=along,
        bright=_brightness(normals @ light.sun, light),
        slant=jnp.maximum(inside, 0.1),
    )


def _brightness(towards_sun: Columns, light: Light) -> Columns:
    return jnp.asarray(light.ambient) + light.direct * jnp.maximum(towards_sun, 0.0)


def all_hits(objects: Objects, view: View, rays: Float[Array, "columns 2"], light: Light) -> Hit:
    """Intersects columns with all objects; hits have a leading axis of objects."""
    return jax.vmap(lambda one: meet(one, view, rays, light))(objects)


def front(
    hits: Hit, slopes: Float[Array, "rows columns"], ground: Float[Array, "rows columns"]
) -> tuple[Float[Array, "rows columns"], Int[Array, "rows columns"]]:
    """Returns the depth of each pixel, and the index of its object, -1 for road and sky.

    **Arguments:**

    - `slopes`: the metres that a ray falls per metre of depth.
    - `ground`: the depth of the ground, infinite above the horizon.
    """

    def cover(carry: tuple, item: tuple) -> tuple:
        best, winner = carry
        number, depth, low, high = item
        # Rays that miss have infinite depth; avoid infinity times a slope of zero.
        height = CAMERA_HEIGHT - jnp.minimum(depth, 2 * FARTHEST)[None] * slopes
        met = (height >= low[None]) & (height <= high[None]) & (depth[None] < best)
        return (jnp.where(met, depth[None], best), jnp.where(met, number, winner)), None

    numbers = jnp.arange(hits.depth.shape[0], dtype=jnp.int32)
    start = (ground, jnp.full(slopes.shape, -1, jnp.int32))
    (depth, winner), _ = jax.lax.scan(cover, start, (numbers, hits.depth, hits.low, hits.high))
    return depth, winner
