"""The likeliest motion on a grid: where the steps of `refinement` begin."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.lab.tasks.kitti.flow.pairs import (
    LOG_OUTLIER,
    Motion,
    Pair,
    differences,
    log_normal,
    prepared,
    road_ratios,
)
from filtrax.lab.tasks.kitti.image_filters import halved

DISTANCES = (0.09 * np.arange(22) * (1 + 0.03 * np.arange(22))).astype(np.float32)
TURNS = np.linspace(-0.078, 0.078, 13).astype(np.float32)
PITCHES = np.linspace(-0.012, 0.012, 9).astype(np.float32)
"""The grids that are searched first, in metres and radians per step."""

TYPICAL_DISTANCE = 0.7
"""By which the sideways motion of a turn is reckoned on the grid, in metres."""

SEARCH_NOISE = 0.5
"""Of differences, relative to the contrast around a pixel."""

FEWEST_ROWS = 20
"""Images are not made smaller than that for a first search."""


def searched_roughly(previous: Array, current: Array, turns: np.ndarray) -> Motion:
    """The likeliest one of few distances and these turns."""
    images = previous, current
    if previous.shape[0] >= 2 * FEWEST_ROWS:
        images = halved(previous), halved(current)
    angles = jnp.stack([jnp.asarray(turns), jnp.zeros(len(turns), jnp.float32)], -1)
    return searched(prepared(*images), angles, DISTANCES[::2])


def searched(pair: Pair, angles: Float[Array, "n 2"], distances: np.ndarray) -> Array:
    """The likeliest motion on a grid of angles and distances."""
    scores = jax.lax.map(lambda one: _scores(pair, one, jnp.asarray(distances)), angles)
    best = jnp.argmax(scores)
    angle, distance = best // len(distances), best % len(distances)
    zero = jnp.zeros(3, jnp.float32)
    return jnp.concatenate([jnp.asarray(distances)[distance][None], angles[angle], zero])


def _scores(pair: Pair, angles: Float[Array, " 2"], distances: Array) -> Array:
    """How likely distances are at a turn and a pitch."""
    zero = jnp.zeros(3, jnp.float32)
    motion = jnp.concatenate([jnp.full(1, TYPICAL_DISTANCE, jnp.float32), angles, zero])
    free = pair.free_prior + log_normal(differences(pair, pair.free, motion), SEARCH_NOISE)
    other = jnp.logaddexp(jax.nn.logsumexp(free, axis=0), LOG_OUTLIER)
    roads = distances[:, None, None] * road_ratios(pair, motion)[None] / TYPICAL_DISTANCE
    road = log_normal(differences(pair, roads, motion), SEARCH_NOISE)
    return jnp.logaddexp(pair.road_prior[None] + road, other[None]).sum((1, 2))
