"""Gauss-Newton steps for a motion and the depths of all pixels."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.lab.tasks.kitti.flow.pairs import (
    LOG_OUTLIER,
    Motion,
    Pair,
    differences,
    log_normal,
    road_ratios,
)
from filtrax.lab.tasks.kitti.image_filters import averaged, blurred

NOISE = 0.2
"""Standard deviation of differences relative to the contrast around a pixel."""

LEAST_NOISE = 0.05
"""Lower bound on this noise, to limit the weight of neighbourhoods that agree by chance."""

PRIOR_STD = (10.0, 1.0, 0.006, 0.004, 0.002, 0.002)
"""Prior standard deviations of a motion's components, in metres and radians; see `Motion`.

Drift is relative to the distance.
"""

LARGEST_STEP = (0.3, 0.01, 0.005, 0.005, 0.01, 0.005)
"""Upper bounds on the change of a motion's components in one Gauss-Newton step."""

RATIO_STD = (0.1, 0.003)
"""Standard deviations of ratios in addition to the spread of hypotheses: relative, absolute."""

ROUNDS, ITERATIONS = 3, 4
"""Rounds, each with new weights of the hypotheses, and Gauss-Newton steps per round."""


class Estimate(eqx.Module):
    """An estimated motion, with indicators of its accuracy.

    **Attributes:**

    - `motion`: the most likely motion.
    - `stds`: standard deviations of its components under independent normal noise, from the
      inverse of the Gauss-Newton information matrix. Differences of neighbours are dependent, so
      these are too small, but they indicate how informative images are.
    - `road`, `free`: the shares of pixels that show the road, and something else that was seen
      before; the others are outliers.
    - `remaining`: the root mean square of the differences of explained pixels, relative to the
      contrast around them.
    """

    motion: Motion
    stds: Motion
    road: Scalar
    free: Scalar
    remaining: Scalar


class _Depths(eqx.Module):
    """Beliefs about the ratios of distance to depth of pixels that do not show the road."""

    mean: Float[Array, "rows columns"]
    variance: Float[Array, "rows columns"]


def _believed_depths(pair: Pair, motion: Motion) -> _Depths:
    """Computes posterior mean and variance of ratios over the hypotheses."""
    free = pair.free_prior + log_normal(differences(pair, pair.free, motion), NOISE)
    weights = jax.nn.softmax(free, axis=0)
    mean = (weights * pair.free).sum(0)
    variance = (weights * (pair.free - mean[None]) ** 2).sum(0)
    # The variance accounts for ratios between the hypotheses.
    return _Depths(mean, variance + (RATIO_STD[0] * mean) ** 2 + RATIO_STD[1] ** 2)


def refined(pair: Pair, motion: Motion) -> tuple[Motion, _Depths, Array]:
    """Refines a motion in rounds of Gauss-Newton steps, each with new beliefs about depths.

    Returns the motion, the last beliefs, and the refined ratios.
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
    """The normal equations of a motion, and their ingredients.

    **Attributes:**

    - `information`, `gradient`: the normal equations after depths were eliminated.
    - `own`, `coupling`: the update of depths without motion, and per unit of motion.
    - `road_chance`, `free_chance`: probabilities that pixels show the road, or something else that
      was seen before.
    - `road_change`, `free_change`: the differences of images in both cases.
    """

    information: Float[Array, "6 6"]
    gradient: Motion
    own: Float[Array, "rows columns"]
    coupling: Float[Array, "rows columns 6"]
    road_chance: Float[Array, "rows columns"]
    free_chance: Float[Array, "rows columns"]
    road_change: Float[Array, "rows columns"]
    free_change: Float[Array, "rows columns"]


def _linearized(pair: Pair, depths: _Depths, motion: Motion, free: Array) -> _Linearized:
    """Linearizes the differences at a motion and depths of the pixels that are not road."""

    def road(motion: Motion) -> Array:
        return differences(pair, road_ratios(pair, motion), motion)

    def beside(motion: Motion, free: Array) -> Array:
        return differences(pair, free, motion)

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
    """Makes one Gauss-Newton step of the motion and of all depths off the road."""
    change = -jnp.linalg.solve(around.information, around.gradient)
    largest = jnp.asarray(LARGEST_STEP, jnp.float32)
    change = jnp.clip(change, -largest, largest)
    free = jnp.clip(free - around.own - around.coupling @ change, 0.0, 2.0)
    return motion + change, free


def judged(pair: Pair, motion: Motion, depths: _Depths, free: Array) -> Estimate:
    """Makes the estimate of a motion with the indicators from its normal equations."""
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


def _chances(pair: Pair, road_change: Array, free_change: Array) -> tuple[Array, Array]:
    """Returns the probabilities that pixels show the road, or something else seen before."""
    logs = [
        pair.road_prior + log_normal(road_change[None], NOISE)[0],
        jnp.log1p(-jnp.exp(pair.road_prior)) + log_normal(free_change[None], NOISE)[0],
        jnp.full_like(road_change, LOG_OUTLIER),
    ]
    road, other, _ = jax.nn.softmax(jnp.stack(logs), axis=0)
    # Neighbourhoods at the edge are incomplete.
    return road, jnp.pad(other[1:-1, 1:-1], 1)


def _variances(change: Array) -> Array:
    """Estimates the variance of noise around each pixel from the remaining differences.

    The window is wider than the 3 × 3 pixels that share a depth, whose differences are fitted.
    Differences are clipped at the contrast, which is 1, because larger ones are outliers.
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
    """Eliminates the depths of all neighbourhoods from the normal equations (Schur complement).

    Returns the update of depths without motion and per unit of motion, and the normal equations.
    """
    noise = _variances(change)
    weights = weights / noise
    # In the sum over neighbourhoods, a pixel has the mean weight of those that contain it.
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
