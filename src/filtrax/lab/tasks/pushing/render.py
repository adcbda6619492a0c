"""Images of a scene, drawn inside of the compiled program that needs them.

A scene is a table with a wall behind it, an object of 13 mm thickness that lies there, the vertical
rod that pushes it, and the arm that holds the rod. Every pixel has a ray, and shows what the ray
meets first:

- the table or the wall, which are planes;
- the object, whose top is where the ray is inside of the outline at the top's height. Its sides are
  where the signed distance to the outline changes its sign between two of a few heights below;
- rod and arm, which are capsules: cylinders with round ends.

Surfaces are matt (Lambert), with a distant light. Objects have a bevelled rim and grooves that are
parallel to their outline. So the picture of an object has exactly the symmetry of its shape.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from filtrax._types import Key
from filtrax.lab.tasks.pushing.camera import MILLIMETRES, PLACE, TABLE_HEIGHT, WALL, Camera
from filtrax.lab.tasks.pushing.intersections import Hit, Rays, capsule, prism, signed_distances
from filtrax.lab.tasks.pushing.shapes import THICKNESS, TIP_RADIUS, Shape

WALL_LABEL, TABLE_LABEL, ARM_LABEL, OBJECT_LABEL = 0, 1, 2, 3
"""Of the segmentation; the reference takes all labels above 2.5 for the object."""

LABELS = (TABLE_LABEL, WALL_LABEL, OBJECT_LABEL, ARM_LABEL, ARM_LABEL)
"""Of the materials: table, wall, object, rod and arm."""

TIP_HEIGHT = TABLE_HEIGHT + THICKNESS / MILLIMETRES / 2
"""Where rod and object touch, in metres: at half the object's thickness."""

ROD_END = TABLE_HEIGHT + 0.002 + TIP_RADIUS / MILLIMETRES
"""Where the round end of the rod has its centre; it is 2 mm above the table."""

ROD_TOP = 0.12
ARM_RADIUS = 0.04
"""In metres, like all heights."""

SEGMENTS = 2
"""Between the heights at which a ray is compared with the outline."""

SHADE_REACH = 9.0
"""How far from an object the table is darker, in mm."""


class Look(eqx.Module):
    """Colours (red, green and blue from 0 to 1), and the direction to the light, a unit vector."""

    object: Float[Array, "*b 3"]
    table: Float[Array, "*b 3"]
    wall: Float[Array, "*b 3"]
    arm: Float[Array, "*b 3"]
    light: Float[Array, "*b 3"]


class Scene(eqx.Module):
    """What there is to see.

    **Attributes:**

    - `pose`: of the object: x and y of its centroid in mm, absolute orientation in degrees.
    - `shape`: of the object.
    - `tip`: x and y of the rod in mm.
    - `arm`: where the arm comes from, in metres; it ends at the top of the rod.
    - `look`: colours and light.
    """

    pose: Float[Array, " 3"]
    shape: Shape
    tip: Float[Array, " 2"]
    arm: Float[Array, " 3"]
    look: Look


class Image(eqx.Module):
    """What the camera gives.

    **Attributes:**

    - `rgb`: colours from 0 to 1.
    - `xyz`: the point of the world that each pixel shows, in metres.
    - `segmentation`: what each pixel shows; `OBJECT_LABEL` is the object.
    """

    rgb: Float[Array, "*b h w 3"]
    xyz: Float[Array, "*b h w 3"]
    segmentation: UInt8[Array, "*b h w"]


def render(scene: Scene, camera: Camera) -> Image:
    """The image of a scene."""
    rays = Rays.of(camera, scene.pose.dtype)
    # Kept before anything else is done: a compiler that moves what a pixel shows into what makes
    # colours and coordinates of it repeats it for each of these.
    depth, material, brightness = jax.lax.optimization_barrier(_trace(scene, camera, rays))
    look = scene.look
    colors = (look.table, look.wall, look.object, 0.2 * look.arm + 0.25, look.arm)
    rgb, labels = jnp.zeros((*depth.shape, 3), depth.dtype), jnp.zeros(depth.shape, jnp.uint8)
    # Choices and not a table that is looked up, which would be slow on a CPU.
    for number, (color, label) in enumerate(zip(colors, LABELS, strict=True)):
        shown = material == number
        rgb = jnp.where(shown[:, :, None], color[None, None, :], rgb)
        labels = jnp.where(shown, jnp.uint8(label), labels)
    xyz = jnp.stack(jnp.broadcast_arrays(*rays.at(depth)), -1)
    return Image(jnp.clip(rgb * brightness[:, :, None], 0.0, 1.0), xyz, labels)


def visible_pixels(image: Image) -> Int[Array, ""]:
    """How many pixels show the object."""
    return (image.segmentation == OBJECT_LABEL).sum(dtype=jnp.int32)


def random_look(*, key: Key) -> Look:
    """Steel on a light table, under a light from above, with colours that differ a little."""
    gray_key, tint_key, light_key = jr.split(key, 3)
    gray = jr.uniform(gray_key, (3, 1), minval=-1.0) * np.asarray([[0.08], [0.08], [0.15]])
    tint = 0.02 * jr.normal(tint_key, (4, 3))
    steel, table, wall = tint[:3] + gray + np.asarray([[0.5], [0.8], [0.55]])
    orange = tint[3] + np.asarray([0.8, 0.4, 0.15])
    above = jr.uniform(light_key, (3,), minval=-0.5, maxval=0.5).at[2].set(1.0)
    return Look(steel, table, wall, orange, above / jnp.linalg.norm(above))


def random_arm(*, key: Key) -> Float[Array, " 3"]:
    """Where an arm may come from: above the left or the right edge of the table."""
    side_key, place_key = jr.split(key)
    side = jnp.where(jr.bernoulli(side_key), 1.0, -1.0)
    low, high = jnp.asarray([-0.1, 0.2, 0.45]), jnp.asarray([0.25, 0.4, 0.6])
    return jr.uniform(place_key, (3,), minval=low, maxval=high).at[1].multiply(side)


def _trace(scene: Scene, camera: Camera, rays: Rays) -> tuple[Array, Array, Array]:
    """The depth of what each pixel shows, the number of its material, and how bright it is."""
    look, tip = scene.look, scene.tip / MILLIMETRES
    heights = np.linspace(THICKNESS, 0.0, SEGMENTS + 1) / MILLIMETRES + TABLE_HEIGHT
    depths = jnp.stack([rays.depth_at_height(height) for height in heights])
    distances, slope = jax.lax.optimization_barrier(
        signed_distances(scene.pose, scene.shape, rays, depths)
    )
    end, top = (_point(tip, height) for height in (ROD_END, ROD_TOP))
    things = (
        prism(depths, distances, slope, look.light),
        capsule(rays, end, top, TIP_RADIUS / MILLIMETRES, look.light),
        capsule(rays, top, scene.arm, ARM_RADIUS, look.light),
    )
    empty, wall, light = _empty_scene(camera)
    depth, brightness = jnp.asarray(empty, tip.dtype), jnp.asarray(light, tip.dtype)
    shade = jnp.where(wall, 1.0, _shade(rays.at(depth), distances[-1], tip))
    nearest, material = Hit(depth, brightness * shade), jnp.asarray(wall, jnp.int32)
    for number, thing in enumerate(things, 2):
        closer = thing.depth <= nearest.depth
        material = jnp.where(closer, number, material)
        nearest = Hit(*(jnp.where(closer, *pair) for pair in zip(thing, nearest, strict=True)))
    return nearest.depth, material, nearest.brightness


def _point(place: Float[Array, " 2"], height: float) -> Float[Array, " 3"]:
    return jnp.append(place, jnp.asarray(height, place.dtype))


def _empty_scene(camera: Camera) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth, where the wall is, and brightness without anything on the table.

    The table has a faint grain and is darker far from its middle.
    """
    depth, rays = camera.plane_depth(), camera.rays()
    x, y, z = (place + depth * ray for place, ray in zip(PLACE, rays, strict=True))
    grain = 0.015 * np.sin(170 * x + 3 * np.sin(40 * y)) * np.sin(130 * y)
    table = 1.05 - 1.2 * ((x - 0.05) ** 2 + y**2) + grain
    wall = x < WALL + 1e-9
    return depth, wall, np.where(wall, 0.9 - 0.5 * z, table)


def _shade(points: tuple[Array, ...], distance: Array, tip: Array) -> Array:
    """How much darker the table is beside the object and the rod: a factor."""
    x, y, _ = points
    to_tip = jnp.sqrt((x - tip[0]) ** 2 + (y - tip[1]) ** 2) * MILLIMETRES - TIP_RADIUS
    by_object, by_rod = (
        jnp.exp(-jnp.maximum(gap, 0.0) / SHADE_REACH) for gap in (distance, to_tip)
    )
    return (1 - 0.4 * by_object) * (1 - 0.3 * by_rod)
