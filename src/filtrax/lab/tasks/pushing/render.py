"""Images of a scene, rendered inside of compiled programs.

A scene is a table with a wall behind it, an object of 13 mm thickness on it, the vertical rod that
pushes the object, and the arm that holds the rod. Every pixel has a ray, and shows what the ray
meets first:

- the table or the wall, which are planes;
- the object, whose top is where the ray is inside of the outline at the top's height. On its sides,
  the signed distance to the outline changes its sign between two of a few heights below;
- rod and arm, which are capsules: cylinders with round ends.

Surfaces are Lambertian, with a distant light. Objects have a bevelled rim and grooves parallel to
their outline, so that the texture of an object has exactly the symmetry of its shape.
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
"""Labels of the segmentation; in the reference, all labels above 2.5 are the object."""

LABELS = (TABLE_LABEL, WALL_LABEL, OBJECT_LABEL, ARM_LABEL, ARM_LABEL)
"""The labels of the materials: table, wall, object, rod and arm."""

TIP_HEIGHT = TABLE_HEIGHT + THICKNESS / MILLIMETRES / 2
"""The height of the contact of rod and object, in metres: half the object's thickness."""

ROD_END = TABLE_HEIGHT + 0.002 + TIP_RADIUS / MILLIMETRES
"""The height of the centre of the rod's round end in metres; the end is 2 mm above the table."""

ROD_TOP = 0.12
ARM_RADIUS = 0.04
"""The radius of the arm in metres."""

SEGMENTS = 2
"""The number of segments between the heights at which rays are compared with the outline."""

SHADE_REACH = 9.0
"""The decay length of the shade on the table around an object, in mm."""


class Look(eqx.Module):
    """Colours (red, green and blue from 0 to 1), and the direction to the light, a unit vector."""

    object: Float[Array, "*b 3"]
    table: Float[Array, "*b 3"]
    wall: Float[Array, "*b 3"]
    arm: Float[Array, "*b 3"]
    light: Float[Array, "*b 3"]


class Scene(eqx.Module):
    """A scene to render.

    **Attributes:**

    - `pose`: x and y of the object's centroid in mm, and its absolute orientation in degrees.
    - `shape`: the shape of the object.
    - `tip`: x and y of the rod in mm.
    - `arm`: the start of the arm in metres; it ends at the top of the rod.
    - `look`: colours and light.
    """

    pose: Float[Array, " 3"]
    shape: Shape
    tip: Float[Array, " 2"]
    arm: Float[Array, " 3"]
    look: Look


class Image(eqx.Module):
    """An image of the camera.

    **Attributes:**

    - `rgb`: colours from 0 to 1.
    - `xyz`: the point of the world at each pixel, in metres.
    - `segmentation`: the label of each pixel, such as `OBJECT_LABEL`.
    """

    rgb: Float[Array, "*b h w 3"]
    xyz: Float[Array, "*b h w 3"]
    segmentation: UInt8[Array, "*b h w"]


def render(scene: Scene, camera: Camera) -> Image:
    """Renders a scene."""
    rays = Rays.of(camera, scene.pose.dtype)
    # The barrier keeps XLA from fusing the trace into the code of colours and coordinates, which
    # would repeat it for each of them.
    depth, material, brightness = jax.lax.optimization_barrier(_trace(scene, camera, rays))
    look = scene.look
    colors = (look.table, look.wall, look.object, 0.2 * look.arm + 0.25, look.arm)
    rgb, labels = jnp.zeros((*depth.shape, 3), depth.dtype), jnp.zeros(depth.shape, jnp.uint8)
    # Select instead of gathering from a table, which is slow on CPUs.
    for number, (color, label) in enumerate(zip(colors, LABELS, strict=True)):
        shown = material == number
        rgb = jnp.where(shown[:, :, None], color[None, None, :], rgb)
        labels = jnp.where(shown, jnp.uint8(label), labels)
    xyz = jnp.stack(jnp.broadcast_arrays(*rays.at(depth)), -1)
    return Image(jnp.clip(rgb * brightness[:, :, None], 0.0, 1.0), xyz, labels)


def visible_pixels(image: Image) -> Int[Array, ""]:
    """Counts the pixels that show the object."""
    return (image.segmentation == OBJECT_LABEL).sum(dtype=jnp.int32)


def random_look(*, key: Key) -> Look:
    """Draws colours around those of steel on a light table, and a light from above."""
    gray_key, tint_key, light_key = jr.split(key, 3)
    gray = jr.uniform(gray_key, (3, 1), minval=-1.0) * np.asarray([[0.08], [0.08], [0.15]])
    tint = 0.02 * jr.normal(tint_key, (4, 3))
    steel, table, wall = tint[:3] + gray + np.asarray([[0.5], [0.8], [0.55]])
    orange = tint[3] + np.asarray([0.8, 0.4, 0.15])
    above = jr.uniform(light_key, (3,), minval=-0.5, maxval=0.5).at[2].set(1.0)
    return Look(steel, table, wall, orange, above / jnp.linalg.norm(above))


def random_arm(*, key: Key) -> Float[Array, " 3"]:
    """Draws the start of the arm, above the left or the right edge of the table."""
    side_key, place_key = jr.split(key)
    side = jnp.where(jr.bernoulli(side_key), 1.0, -1.0)
    low, high = jnp.asarray([-0.1, 0.2, 0.45]), jnp.asarray([0.25, 0.4, 0.6])
    return jr.uniform(place_key, (3,), minval=low, maxval=high).at[1].multiply(side)


def _trace(scene: Scene, camera: Camera, rays: Rays) -> tuple[Array, Array, Array]:
    """Returns depth, index of the material, and brightness of each pixel."""
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
    """Returns depth, mask of the wall, and brightness of the empty scene.

    The table has a faint grain, and is darker far from its middle.
    """
    depth, rays = camera.plane_depth(), camera.rays()
    x, y, z = (place + depth * ray for place, ray in zip(PLACE, rays, strict=True))
    grain = 0.015 * np.sin(170 * x + 3 * np.sin(40 * y)) * np.sin(130 * y)
    table = 1.05 - 1.2 * ((x - 0.05) ** 2 + y**2) + grain
    wall = x < WALL + 1e-9
    return depth, wall, np.where(wall, 0.9 - 0.5 * z, table)


def _shade(points: tuple[Array, ...], distance: Array, tip: Array) -> Array:
    """Returns the factor on the brightness of the table around object and rod."""
    x, y, _ = points
    to_tip = jnp.sqrt((x - tip[0]) ** 2 + (y - tip[1]) ** 2) * MILLIMETRES - TIP_RADIUS
    by_object, by_rod = (
        jnp.exp(-jnp.maximum(gap, 0.0) / SHADE_REACH) for gap in (distance, to_tip)
    )
    return (1 - 0.4 * by_object) * (1 - 0.3 * by_rod)
