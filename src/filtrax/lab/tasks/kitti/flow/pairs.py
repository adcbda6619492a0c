"""Pairs of images, hypotheses about their depths, and their differences after a motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.lab.tasks.kitti.camera import CAMERA_HEIGHT, CAMERA_TO_AXLE, Intrinsics
from filtrax.lab.tasks.kitti.image_filters import averaged, blurred, sampled

WALL_DISTANCE = 7.0
"""The assumed distance of the street's walls from the car, in metres."""

ROAD_WIDTH = 2.5
"""The distance to the left and to the right within which the ground is likely road, in metres."""

FREE = np.exp(np.linspace(-2.1, 1.8, 14)).astype(np.float32)
"""Hypotheses: multiples of the ratio of distance to depth of a street with two walls after 1 m."""

ROAD_CHANCES = (0.9, 0.4)
"""Prior probabilities that a pixel below the horizon shows the road, ahead and beside the car."""

FAR_CHANCE = 0.1
"""Prior probability that a pixel without road is infinitely far away."""

OUTLIER_CHANCE = 0.1
"""Prior probability that a pixel shows nothing seen before, because it moves or was hidden."""

LOG_OUTLIER = float(np.log(OUTLIER_CHANCE) - 0.5)
"""Log likelihood of such a pixel, whose difference is about the contrast of the image."""

LEAST_CONTRAST = 0.1
"""Lower bound on local contrast relative to that of the whole image, to not amplify noise."""

SMOOTHING = 0.4
"""Standard deviation of the blur of both images, in pixels."""

Motion = Float[Array, " 6"]
"""Distance, turn, changes of pitch and roll, drift to the right, and tilt of the camera."""


class Pair(eqx.Module):
    """Two images, and hypotheses about the depths of their pixels.

    **Attributes:**

    - `previous`, `current`: high-pass filtered images. The previous one has interpolated values
      halfway between its pixels, too.
    - `contrast`: the local standard deviation around each pixel.
    - `across`, `falling`: a and s of all pixels.
    - `road_prior`: the log probability that a pixel shows the road.
    - `free`: hypotheses of the ratio of distance to depth for pixels that show something else.
    - `free_prior`: their log probabilities.
    """

    previous: Float[Array, "more_rows more_columns"]
    current: Float[Array, "rows columns"]
    contrast: Float[Array, "rows columns"]
    across: Float[Array, "rows columns"]
    falling: Float[Array, "rows columns"]
    road_prior: Float[Array, "rows columns"]
    free: Float[Array, "hypotheses rows columns"]
    free_prior: Float[Array, "hypotheses rows columns"]


def prepared(previous: Array, current: Array) -> Pair:
    """Prepares two images for comparison; only details are kept, because exposure changes."""
    rows, columns = previous.shape
    detail = [
        blurred(image, SMOOTHING) - blurred(image, rows / 25) for image in (previous, current)
    ]
    squares = (detail[0] ** 2 + detail[1] ** 2) / 2
    contrast = jnp.sqrt(blurred(squares, rows / 8) + LEAST_CONTRAST**2 * squares.mean()) + 1e-6
    lens = Intrinsics.resized((rows, columns))
    across = (jnp.arange(columns, dtype=jnp.float32) - lens.centre_x) / lens.focal_x
    falling = (jnp.arange(rows, dtype=jnp.float32) - lens.centre_y) / lens.focal_y
    across, falling = jnp.meshgrid(across, falling)
    road_prior, free, free_prior = _street(across, falling)
    before = with_halfway(with_halfway(detail[0]).T).T
    return Pair(before, detail[1], contrast, across, falling, road_prior, free, free_prior)


def with_halfway(image: Float[Array, "rows columns"]) -> Float[Array, "more_rows columns"]:
    """Inserts rows between the rows of an image, with weights (−1, 9, 9, −1) / 16 of four rows.

    Linear interpolation blurs an image most halfway between pixels, which biases motions towards
    whole pixels, and small motions towards zero. Cubic interpolation (Keys, Cubic convolution
    interpolation for digital image processing, 1981) avoids most of it.
    """
    rows, columns = image.shape
    padded = jnp.pad(image, ((1, 1), (0, 0)), mode="edge")
    between = (9 * (padded[1:-2] + padded[2:-1]) - padded[:-3] - padded[3:]) / 16
    both = jnp.zeros((2 * rows - 1, columns), image.dtype)
    return both.at[::2].set(image).at[1::2].set(between)


def _street(across: Array, falling: Array) -> tuple[Array, Array, Array]:
    """Returns log probabilities of road, and ratios of other objects with log probabilities."""
    road = jnp.maximum(falling, 0.0) / CAMERA_HEIGHT
    street = jnp.maximum(jnp.maximum(road, jnp.abs(across) / WALL_DISTANCE), 1e-3)
    chance = jnp.where(jnp.abs(across) < ROAD_WIDTH * road, *ROAD_CHANCES)
    chance = jnp.where(falling > 0.02, chance, 1e-6)
    free = jnp.broadcast_to(1.0 - chance, (len(FREE), *road.shape)) / len(FREE)
    chances = jnp.concatenate([free * (1 - FAR_CHANCE), (1 - chance[None]) * FAR_CHANCE])
    ratios = [jnp.asarray(FREE)[:, None, None] * street[None], jnp.zeros_like(road)[None]]
    return jnp.log(chance), jnp.concatenate(ratios), jnp.log(chances)


def differences(
    pair: Pair, ratios: Float[Array, "*h rows columns"], motion: Motion
) -> Float[Array, "*h rows columns"]:
    """Returns previous minus current values relative to contrast, at ratios of distance to depth.

    Pixels that were outside of the previous image have the difference 1.
    """
    distance, turn, pitch, roll, drift, tilt = motion
    # The ratio is undefined for a standing car, which does not turn.
    arc = jnp.sin(turn / 2) + CAMERA_TO_AXLE * jnp.sin(turn) / jnp.maximum(distance, 0.2)
    pixels = (jnp.broadcast_to(part, ratios.shape) for part in (pair.across, pair.falling))
    a, s = pixels
    ahead = jnp.maximum(jnp.cos(turn) - a * jnp.sin(turn) + ratios, 0.1)
    across = (a * jnp.cos(turn) + jnp.sin(turn) + (arc + drift) * ratios) / ahead
    falling = (s + tilt) / ahead - tilt + pitch + roll * across
    height, width = pair.current.shape
    lens = Intrinsics.resized((height, width))
    columns = across * lens.focal_x + lens.centre_x
    rows = falling * lens.focal_y + lens.centre_y
    current, contrast = (
        jnp.broadcast_to(part, ratios.shape) for part in (pair.current, pair.contrast)
    )
    differences = (sampled(pair.previous, 2 * rows, 2 * columns) - current) / contrast
    inside = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    # Points that were outside of the image carry no information.
    return jnp.where(inside, differences, 1.0)


def road_ratios(pair: Pair, motion: Motion) -> Float[Array, "rows columns"]:
    """Returns the ratios of distance to depth of pixels that show the road."""
    return motion[0] * jnp.maximum(pair.falling + motion[5], 0.0) / CAMERA_HEIGHT


def log_normal(differences: Array, noise: Array | float) -> Array:
    """Returns the log density of the differences around each pixel, up to a constant."""
    return -0.5 * jax.vmap(averaged)(differences**2) / noise**2 - jnp.log(noise)
