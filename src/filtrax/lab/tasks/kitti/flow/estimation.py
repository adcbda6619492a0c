"""Estimates the motion between two images: a search on a grid, then refinement."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.lab.tasks.kitti.flow.pairs import Motion, prepared
from filtrax.lab.tasks.kitti.flow.refinement import Estimate, judged, refined
from filtrax.lab.tasks.kitti.flow.search import (
    DISTANCES,
    PITCHES,
    TURNS,
    searched,
    searched_roughly,
)
from filtrax.linalg import precise

PAIRS_AT_ONCE = 16


@jax.jit
def estimate_motion(
    previous: Float[Array, "*n rows columns"],
    current: Float[Array, "*n rows columns"],
    *,
    steps: Float[Array, "*n"],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Estimates speeds in m/s and heading rates in degrees per second, positive to the left.

    **Arguments:**

    - `previous`, `current`: gray images in any unit, with the whole field of view of KITTI's
        cameras.
    - `steps`: the seconds between the two.
    """
    if previous.ndim > 2:
        return jax.lax.map(
            lambda pair: estimate_motion(pair[0], pair[1], steps=pair[2]),
            (previous, current, steps),
            batch_size=PAIRS_AT_ONCE,
        )
    return velocities(estimate(previous, current).motion, steps.astype(jnp.float32))


def velocities(motion: Motion, step: Scalar | float) -> tuple[Scalar, Scalar]:
    """Returns speed in m/s and heading rate in degrees per second of a motion in `step` seconds."""
    return motion[0] / step, -jnp.degrees(motion[1]) / step


@precise
def estimate(
    previous: Float[Array, "rows columns"], current: Float[Array, "rows columns"]
) -> Estimate:
    """Estimates the motion between two gray images in any unit, and its uncertainty."""
    images = previous.astype(jnp.float32), current.astype(jnp.float32)
    start = searched_roughly(*images, TURNS)
    fine = prepared(*images)
    pitches = jnp.stack([jnp.full(len(PITCHES), start[1]), jnp.asarray(PITCHES)], -1)
    return judged(fine, *refined(fine, searched(fine, pitches, DISTANCES)))


def rough_distance(
    previous: Float[Array, "rows columns"], current: Float[Array, "rows columns"]
) -> Scalar:
    """Estimates the distance in metres that a car drove between two gray images.

    The result is the likeliest of a few distances in images of half the size. It distinguishes
    fast from slow drives at a fraction of the cost of `estimate_motion`.
    """
    images = previous.astype(jnp.float32), current.astype(jnp.float32)
    return searched_roughly(*images, TURNS[::2])[0]
