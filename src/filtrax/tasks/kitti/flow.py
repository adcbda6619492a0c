"""Speed and heading rate from two images, without learning: what their optical flow tells.

The camera is known (focal lengths, height over the road, distance to the rear axle), the depth of
the scene is not. A pixel that looks along (a, s, 1) now, at a point for which the ratio of the
distance d that the car drove to its depth is ρ, was seen before, if the car turned by ψ, at

    n  = cos ψ − a sin ψ + ρ,
    a' = (a cos ψ + sin ψ + (sin(ψ/2) + l sin ψ / d + drift) ρ) / n,
    s' = (s + tilt) / n − tilt + pitch + roll · a',

where the camera is l in front of the rear axle, about which a car turns, drift is what it moves
sideways beyond that, tilt is where the horizon is, and pitch and roll are how the car rocked. Each
pixel shows the road, where ρ = d (s + tilt) / height, or something else with a ρ of its own, or
nothing that was seen before.

1. On a grid of turns, at half the size, and then on one of pitches, the motion is chosen at which
   the images differ least, with the three cases and several values of ρ summed out.
2. Gauss-Newton steps improve motion and ρ at once: ρ is eliminated from the normal equations of
   each 3 × 3 pixels (Schur complement), and the probabilities of the cases are weights, as in
   expectation maximization. They are divided by the variance of the differences that are left
   around a pixel, because these are not alike: what is far away hardly changes from one image to
   the next, and what passes by is seen at another size and between other pixels.

It is the method of Lucas and Kanade (An iterative image registration technique, IJCAI 1981) for a
moving camera, with depths as in direct visual odometry (Engel, Koltun and Cremers, Direct sparse
odometry, 2018). Nothing is fitted to data; the scale comes from the height of the camera.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.arrays import Scalar
from filtrax.tasks.kitti.camera import CAMERA_HEIGHT, CAMERA_TO_AXLE, Intrinsics
from filtrax.tasks.kitti.image_filters import averaged, blurred, halved, sampled

WALL_DISTANCE = 7.0
"""Of the walls of the street from the car, in metres."""

ROAD_WIDTH = 2.5
"""How far to the left and to the right it is road for sure, in metres."""

FREE = np.exp(np.linspace(-2.1, 1.8, 14)).astype(np.float32)
"""Multiples of the ratio of distance to depth that a street with two walls has after one metre."""

ROAD_CHANCES = (0.9, 0.4)
"""That a pixel below the horizon shows the road: in front of the car, and beside it."""

FAR_CHANCE = 0.1
"""That what is not road is infinitely far away."""

OUTLIER_CHANCE = 0.1
"""That a pixel shows nothing which was seen before: what moves, or was hidden."""

LOG_OUTLIER = float(np.log(OUTLIER_CHANCE) - 0.5)
"""Of such a pixel, whose difference is about the contrast of the image."""

DISTANCES = (0.09 * np.arange(22) * (1 + 0.03 * np.arange(22))).astype(np.float32)
TURNS = np.linspace(-0.078, 0.078, 13).astype(np.float32)
PITCHES = np.linspace(-0.012, 0.012, 9).astype(np.float32)
"""The grids that are searched first, in metres and radians per step."""

TYPICAL_DISTANCE = 0.7
"""By which the sideways motion of a turn is reckoned on the grid, in metres."""

NOISE = (0.5, 0.2)
"""Of differences, relative to the contrast around a pixel: on the grids, and in the steps."""

LEAST_NOISE = 0.05
"""In the steps, so that no neighbourhood counts for everything because it agrees by chance."""

LEAST_CONTRAST = 0.1
"""Relative to that of the whole image; noise is not stretched beyond."""

SMOOTHING = 0.4
"""In pixels, of both images."""

PRIOR_STD = (10.0, 1.0, 0.006, 0.004, 0.002, 0.002)
"""Of the parts of a motion, in metres and radians; drift is relative to the distance."""

LARGEST_STEP = (0.3, 0.01, 0.005, 0.005, 0.01, 0.005)
"""By which a Gauss-Newton step may change the parts of a motion."""

RATIO_STD = (0.1, 0.003)
"""Of ratios beyond their spread over the hypotheses: relative, and absolute."""

ROUNDS, ITERATIONS = 3, 4
"""Rounds, each with a new choice among the hypotheses, and Gauss-Newton steps in each."""

PAIRS_AT_ONCE = 16

FEWEST_ROWS = 20
"""Images are not made smaller than that for a first search."""

Motion = Float[Array, " 6"]
"""Distance, turn, changes of pitch and roll, drift to the right, and tilt of the camera."""


class _Pair(eqx.Module):
    """Two images, and what their pixels may look at.

    **Attributes:**

    - `previous`, `current`: images, of which what changes slowly over them is taken away. Of the
      previous one, there are the values halfway between its pixels, too.
    - `contrast`: what is left around each pixel, as a standard deviation.
    - `across`, `falling`: a and s of all pixels.
    - `road_prior`: logarithm of the chance that a pixel shows the road.
    - `free`: hypotheses of the ratio of distance to depth if it shows something else.
    - `free_prior`: logarithms of their chances.
    """

    previous: Float[Array, "more_rows more_columns"]
    current: Float[Array, "rows columns"]
    contrast: Float[Array, "rows columns"]
    across: Float[Array, "rows columns"]
    falling: Float[Array, "rows columns"]
    road_prior: Float[Array, "rows columns"]
    free: Float[Array, "hypotheses rows columns"]
    free_prior: Float[Array, "hypotheses rows columns"]


class Estimate(eqx.Module):
    """A motion, and what tells how far it can be trusted.

    **Attributes:**

    - `motion`: the most likely one.
    - `stds`: of its parts, if differences were independent normal noise: the roots of the diagonal
      of the inverse of the information matrix of Gauss-Newton. Differences of neighbours are not
      independent, so that these are too small, but they are small where images tell much.
    - `road`, `free`: the shares of pixels that the road explains, and those that something else
      does which was seen before; the others are outliers.
    - `remaining`: the root mean square of the differences that are left where pixels are explained,
      relative to the contrast around them.
    """

    motion: Motion
    stds: Motion
    road: Scalar
    free: Scalar
    remaining: Scalar


@jax.jit
def estimate_motion(
    previous: Float[Array, "*n rows columns"],
    current: Float[Array, "*n rows columns"],
    *,
    steps: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Speeds in m/s and heading rates in degrees per second, positive to the left.

    **Arguments:**

    - `previous`, `current`: gray images of any unit, of the whole field of view of KITTI's cameras.
    - `steps`: seconds between the two.
    """
    if previous.ndim > 2:
        return jax.lax.map(
            lambda pair: estimate_motion(pair[0], pair[1], steps=pair[2]),
            (previous, current, steps),
            batch_size=PAIRS_AT_ONCE,
        )
    return velocities(estimate(previous, current).motion, steps.astype(jnp.float32))


def velocities(motion: Motion, step: Scalar | float) -> tuple[Scalar, Scalar]:
    """Speed in m/s and heading rate in degrees per second of a motion that took so many seconds."""
    return motion[0] / step, -jnp.degrees(motion[1]) / step


def estimate(
    previous: Float[Array, "rows columns"], current: Float[Array, "rows columns"]
) -> Estimate:
    """The motion between two gray images of any unit, and how sure it is."""
    images = previous.astype(jnp.float32), current.astype(jnp.float32)
    start = _searched_roughly(*images, TURNS)
    fine = _prepared(*images)
    pitches = jnp.stack([jnp.full(len(PITCHES), start[1]), jnp.asarray(PITCHES)], -1)
    return _judged(fine, *_refined(fine, _searched(fine, pitches, DISTANCES)))


def rough_distance(
    previous: Float[Array, "rows columns"], current: Float[Array, "rows columns"]
) -> Scalar:
    """Metres that a car went between two gray images.

    The likeliest of a few, in images of half the size: enough to tell a fast drive from a slow
    one, for a small part of the work of `estimate_motion`.
    """
    images = previous.astype(jnp.float32), current.astype(jnp.float32)
    return _searched_roughly(*images, TURNS[::2])[0]


def _searched_roughly(previous: Array, current: Array, turns: np.ndarray) -> Motion:
    """The likeliest one of few distances and these turns."""
    images = previous, current
    if previous.shape[0] >= 2 * FEWEST_ROWS:
        images = halved(previous), halved(current)
    angles = jnp.stack([jnp.asarray(turns), jnp.zeros(len(turns), jnp.float32)], -1)
    return _searched(_prepared(*images), angles, DISTANCES[::2])


def _prepared(previous: Array, current: Array) -> _Pair:
    """What is compared: details alone, because cameras change their exposure."""
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
    return _Pair(before, detail[1], contrast, across, falling, road_prior, free, free_prior)


def with_halfway(image: Float[Array, "rows columns"]) -> Float[Array, "more_rows columns"]:
    """An image with rows between its rows, (−1, 9, 9, −1) / 16 of the four around each.

    Straight lines between pixels blur an image the more, the farther from a pixel it is asked for.
    Motions of whole pixels would fit best, and small ones would come out too small. These are
    cubics (Keys, Cubic convolution interpolation for digital image processing, 1981).
    """
    rows, columns = image.shape
    padded = jnp.pad(image, ((1, 1), (0, 0)), mode="edge")
    between = (9 * (padded[1:-2] + padded[2:-1]) - padded[:-3] - padded[3:]) / 16
    both = jnp.zeros((2 * rows - 1, columns), image.dtype)
    return both.at[::2].set(image).at[1::2].set(between)


def _street(across: Array, falling: Array) -> tuple[Array, Array, Array]:
    """Logarithms of the chances of road, ratios of what is not road, and of their chances."""
    road = jnp.maximum(falling, 0.0) / CAMERA_HEIGHT
    street = jnp.maximum(jnp.maximum(road, jnp.abs(across) / WALL_DISTANCE), 1e-3)
    chance = jnp.where(jnp.abs(across) < ROAD_WIDTH * road, *ROAD_CHANCES)
    chance = jnp.where(falling > 0.02, chance, 1e-6)
    free = jnp.broadcast_to(1.0 - chance, (len(FREE), *road.shape)) / len(FREE)
    chances = jnp.concatenate([free * (1 - FAR_CHANCE), (1 - chance[None]) * FAR_CHANCE])
    ratios = [jnp.asarray(FREE)[:, None, None] * street[None], jnp.zeros_like(road)[None]]
    return jnp.log(chance), jnp.concatenate(ratios), jnp.log(chances)


def _differences(
    pair: _Pair, ratios: Float[Array, "*h rows columns"], motion: Motion
) -> Float[Array, "*h rows columns"]:
    """What was seen before minus what is seen now, at ratios of distance to depth."""
    distance, turn, pitch, roll, drift, tilt = motion
    # A car that stands does not turn; the ratio has no meaning there.
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
    # What was outside of the image tells nothing.
    return jnp.where(inside, differences, 1.0)


def _road_ratios(pair: _Pair, motion: Motion) -> Float[Array, "rows columns"]:
    return motion[0] * jnp.maximum(pair.falling + motion[5], 0.0) / CAMERA_HEIGHT


def _log_normal(differences: Array, noise: Array | float) -> Array:
    """The logarithm of the density of the differences around each pixel."""
    return -0.5 * jax.vmap(averaged)(differences**2) / noise**2 - jnp.log(noise)


def _scores(pair: _Pair, angles: Float[Array, " 2"], distances: Array) -> Array:
    """How likely distances are at a turn and a pitch."""
    zero = jnp.zeros(3, jnp.float32)
    motion = jnp.concatenate([jnp.full(1, TYPICAL_DISTANCE, jnp.float32), angles, zero])
    free = pair.free_prior + _log_normal(_differences(pair, pair.free, motion), NOISE[0])
    other = jnp.logaddexp(jax.nn.logsumexp(free, axis=0), LOG_OUTLIER)
    roads = distances[:, None, None] * _road_ratios(pair, motion)[None] / TYPICAL_DISTANCE
    road = _log_normal(_differences(pair, roads, motion), NOISE[0])
    return jnp.logaddexp(pair.road_prior[None] + road, other[None]).sum((1, 2))


def _searched(pair: _Pair, angles: Float[Array, "n 2"], distances: np.ndarray) -> Array:
    """The likeliest motion on a grid of angles and distances."""
    scores = jax.lax.map(lambda one: _scores(pair, one, jnp.asarray(distances)), angles)
    best = jnp.argmax(scores)
    angle, distance = best // len(distances), best % len(distances)
    zero = jnp.zeros(3, jnp.float32)
    return jnp.concatenate([jnp.asarray(distances)[distance][None], angles[angle], zero])


class _Depths(eqx.Module):
    """What is believed of the ratios of distance to depth of pixels that do not show the road."""

    mean: Float[Array, "rows columns"]
    variance: Float[Array, "rows columns"]


def _believed_depths(pair: _Pair, motion: Motion) -> _Depths:
    """Mean and variance over the hypotheses."""
    free = pair.free_prior + _log_normal(_differences(pair, pair.free, motion), NOISE[1])
    weights = jax.nn.softmax(free, axis=0)
    mean = (weights * pair.free).sum(0)
    variance = (weights * (pair.free - mean[None]) ** 2).sum(0)
    # Between two hypotheses there are others.
    return _Depths(mean, variance + (RATIO_STD[0] * mean) ** 2 + RATIO_STD[1] ** 2)


def _refined(pair: _Pair, motion: Motion) -> tuple[Motion, _Depths, Array]:
    """Rounds of Gauss-Newton steps, each with new beliefs about depths.

    Returns the motion, the last beliefs, and the ratios that were chosen with them.
    """

    def one_round(motion: Motion, _: None) -> tuple[Motion, tuple[_Depths, Array]]:
        depths = _believed_depths(pair, motion)
        both = motion, depths.mean
        step = lambda _, now: _step(_linearized(pair, depths, *now), *now)  # noqa: E731
        motion, free = jax.lax.fori_loop(0, ITERATIONS, step, both)
        return motion, (depths, free)

    motion, rounds = jax.lax.scan(one_round, motion, length=ROUNDS)
    return motion, *jax.tree.map(lambda leaf: leaf[-1], rounds)


class _Linearized(eqx.Module):
    """The normal equations of a motion, and what they were made of.

    **Attributes:**

    - `information`, `gradient`: of the motion, after depths were eliminated.
    - `own`, `coupling`: how depths change, by themselves and with the motion.
    - `road_chance`, `free_chance`: that pixels show the road, or something else seen before.
    - `road_change`, `free_change`: the differences in both cases.
    """

    information: Float[Array, "6 6"]
    gradient: Motion
    own: Float[Array, "rows columns"]
    coupling: Float[Array, "rows columns 6"]
    road_chance: Float[Array, "rows columns"]
    free_chance: Float[Array, "rows columns"]
    road_change: Float[Array, "rows columns"]
    free_change: Float[Array, "rows columns"]


def _linearized(pair: _Pair, depths: _Depths, motion: Motion, free: Array) -> _Linearized:
    """What Gauss-Newton knows at a motion and depths of the pixels that are not road."""

    def road(motion: Motion) -> Array:
        return _differences(pair, _road_ratios(pair, motion), motion)

    def beside(motion: Motion, free: Array) -> Array:
        return _differences(pair, free, motion)

    road_change, free_change = road(motion), beside(motion, free)
    _, depth_slopes = jax.jvp(lambda free: beside(motion, free), (free,), (jnp.ones_like(free),))
    on_road, other = _chances(pair, road_change, free_change)
    weights = on_road / _variances(road_change)
    information, gradient = _normal_equations(weights, jax.jacfwd(road)(motion), road_change)
    own, coupling, rest = _without_depth(
        other, jax.jacfwd(beside)(motion, free), free_change, depth_slopes, free, depths
    )
    precision = jnp.asarray(PRIOR_STD, jnp.float32) ** -2
    information = information + rest[0] + jnp.diag(precision)
    gradient = gradient + rest[1] + precision * motion
    return _Linearized(
        information, gradient, own, coupling, on_road, other, road_change, free_change
    )


def _step(around: _Linearized, motion: Motion, free: Array) -> tuple[Motion, Array]:
    """One Gauss-Newton step of the motion and of the depth of each pixel that is not road."""
    change = -jnp.linalg.solve(around.information, around.gradient)
    largest = jnp.asarray(LARGEST_STEP, jnp.float32)
    change = jnp.clip(change, -largest, largest)
    free = jnp.clip(free - around.own - around.coupling @ change, 0.0, 2.0)
    return motion + change, free


def _judged(pair: _Pair, motion: Motion, depths: _Depths, free: Array) -> Estimate:
    """The motion with what the last normal equations tell of it."""
    last = _linearized(pair, depths, motion, free)
    explained = last.road_chance + last.free_chance
    squares = last.road_chance * last.road_change**2 + last.free_chance * last.free_change**2
    return Estimate(
        motion=motion,
        stds=jnp.sqrt(jnp.diagonal(jnp.linalg.inv(last.information))),
        road=last.road_chance.mean(),
        free=last.free_chance.mean(),
        remaining=jnp.sqrt(squares.mean() / explained.mean()),
    )


def _chances(pair: _Pair, road_change: Array, free_change: Array) -> tuple[Array, Array]:
    """That pixels show the road, or something else that was seen before."""
    logs = [
        pair.road_prior + _log_normal(road_change[None], NOISE[1])[0],
        jnp.log1p(-jnp.exp(pair.road_prior)) + _log_normal(free_change[None], NOISE[1])[0],
        jnp.full_like(road_change, LOG_OUTLIER),
    ]
    road, other, _ = jax.nn.softmax(jnp.stack(logs), axis=0)
    # Neighbourhoods are whole inside of the edge alone.
    return road, jnp.pad(other[1:-1, 1:-1], 1)


def _variances(change: Array) -> Array:
    """Of the noise around each pixel: what is left of the differences there.

    The surroundings are wider than the 3 × 3 pixels that have chosen a depth, which made their own
    differences small; beyond the contrast, which is one, differences are those of outliers.
    """
    return blurred(jnp.minimum(change**2, 1.0), change.shape[0] / 25) + LEAST_NOISE**2


def _normal_equations(weights: Array, slopes: Array, change: Array) -> tuple[Array, Array]:
    weighted = weights[..., None] * slopes
    return (
        jnp.einsum("rci,rcj->ij", weighted, slopes),
        jnp.einsum("rci,rc->i", weighted, change),
    )


def _without_depth(
    weights: Array, slopes: Array, change: Array, depth_slopes: Array, free: Array, depths: _Depths
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Normal equations after each neighbourhood has chosen its depth (Schur complement).

    Returns how depths change, by themselves and with the motion, and the normal equations.
    """
    noise = _variances(change)
    weights = weights / noise
    # Summed over all neighbourhoods, a pixel counts with the mean weight of those that it is in.
    information, gradient = _normal_equations(averaged(weights), slopes, change)
    precision = noise / depths.variance
    square = averaged(depth_slopes**2) + precision
    mixed = jnp.moveaxis(depth_slopes[..., None] * slopes, -1, 0)
    coupling = jnp.moveaxis(jax.vmap(averaged)(mixed), 0, -1) / square[..., None]
    own = (averaged(depth_slopes * change) + precision * (free - depths.mean)) / square
    less = weights * square
    information = information - jnp.einsum("rc,rci,rcj->ij", less, coupling, coupling)
    gradient = gradient - jnp.einsum("rc,rci,rc->i", less, coupling, own)
    return own, coupling, (information, gradient)
