"""Renders frames by a pure function of scene, view and light, mapped over many frames.

Each pixel is the mean of 3 × 3 rays.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from filtrax.lab.tasks.kitti.camera import CAMERA_HEIGHT, Intrinsics, View
from filtrax.lab.tasks.kitti.streets import surfaces
from filtrax.lab.tasks.kitti.streets.columns import all_hits, front, nearest_objects
from filtrax.lab.tasks.kitti.streets.light import Light
from filtrax.lab.tasks.kitti.streets.scene import Scene

RAYS = 3
"""Rays per pixel along each axis."""

MOST_OBJECTS = 72
"""The number of objects in view to draw; farther ones are hidden or tiny."""

GROUND_DISTANCE = 120.0
"""The distance in metres at which the ground ends, and distant woods begin."""

EXPOSURE = (0.64, 0.68, 0.71)
"""Exposure of red, green and blue, chosen for the mean colour of KITTI's images."""

GAMMA = 1 / 2.0
"""The exponent from linear light to pixel values."""


def render(
    scene: Scene, view: View, light: Light, image_size: tuple[int, int]
) -> Float[Array, "rows columns 3"]:
    """Renders one frame with channels in [0, 1]."""
    lens = Intrinsics.resized(image_size)
    across, slopes = _rays(lens, view)
    rays = view.forward[None] + across[:, None] * view.right[None]
    nearby = nearest_objects(scene.objects, view, MOST_OBJECTS)
    hits = all_hits(nearby, view, rays, light)
    below = slopes > CAMERA_HEIGHT / GROUND_DISTANCE
    ground_depth = jnp.where(below, CAMERA_HEIGHT / jnp.where(below, slopes, 1.0), jnp.inf)
    depth, winner = front(hits, slopes, ground_depth)
    seen = jnp.minimum(depth, 2 * GROUND_DISTANCE)

    width = seen / (RAYS * lens.focal_x)
    place = jnp.asarray(view.place)[None, None] + seen[..., None] * rays[None]
    footprint = jnp.maximum(seen**2 / (RAYS * lens.focal_y * CAMERA_HEIGHT), width)
    road = surfaces.ground(scene.roads, place, footprint, width, light)
    height = CAMERA_HEIGHT - seen * slopes
    things = surfaces.objects(hits, nearby, jnp.maximum(winner, 0), height, width)
    color = surfaces.hazy(jnp.where((winner >= 0)[..., None], things, road), seen)
    azimuth = jnp.broadcast_to((view.heading + jnp.arctan(across))[None], slopes.shape)
    sky = surfaces.far(azimuth, -slopes, light)
    color = jnp.where(jnp.isfinite(depth)[..., None], color, sky)
    return _developed(color, light, image_size)


def _rays(lens: Intrinsics, view: View) -> tuple[Float[Array, " c"], Float[Array, "r c"]]:
    """Returns the metres to the right of columns, and down of rays, per metre of depth."""
    rows, columns = (
        (jnp.arange(RAYS * size, dtype=jnp.float32) + 0.5) / RAYS - 0.5 for size in lens.image_size
    )
    across = (columns - lens.centre_x) / lens.focal_x
    horizon = -jnp.tan(view.pitch) - across * jnp.tan(view.roll)
    falling = (rows - lens.centre_y) / lens.focal_y
    return across, falling[:, None] - horizon[None]


def _developed(color: Array, light: Light, image_size: tuple[int, int]) -> Array:
    """Exposes, clips and averages the rays of each pixel."""
    rows, columns = image_size
    exposure = light.exposure * surfaces.tone(EXPOSURE)
    film = jnp.clip(exposure * color, 0.0, 1.0) ** GAMMA
    return film.reshape(rows, RAYS, columns, RAYS, 3).mean((1, 3))


@functools.partial(jax.jit, static_argnums=3)
def render_frames(
    scene: Scene, views: View, lights: Light, image_size: tuple[int, int]
) -> UInt8[Array, "frames rows columns 3"]:
    """Renders frames as uint8; views and lights have a leading axis."""
    frames = jax.vmap(lambda view, light: render(scene, view, light, image_size))(views, lights)
    return jnp.round(255.0 * frames).astype(jnp.uint8)
