"""Searches the likeliest motion on a grid, the start of `refinement`."""

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
"""The grids of the search, in metres and radians per step."""

TYPICAL_DISTANCE = 0.7
"""The distance that is assumed for the sideways motion of turns on the grid, in metres."""

SEARCH_NOISE = 0.5
"""Standard deviation of differences relative to the contrast around a pixel."""

FEWEST_ROWS = 20
"""The smallest number of rows of images that are halved for the first search."""


def searched_roughly(previous: Array, current: Array, turns: np.ndarray) -> Motion:
    """Returns the likeliest motion on a coarse grid of distances and these turns."""
    images = previous, current
    if previous.shape[0] >= 2 * FEWEST_ROWS:
        images = halved(previous), halved(current)
    angles = jnp.stack([jnp.asarray(turns), jnp.zeros(len(turns), jnp.float32)], -1)
    return searched(prepared(*images), angles, DISTANCES[::2])


def searched(pair: Pair, angles: Float[Array, "n 2"], distances: np.ndarray) -> Array:
    """Returns the likeliest motion on a grid of angles (turn and pitch) and distances."""
    scores = jax.lax.map(lambda one: _scores(pair, one, jnp.asarray(distances)), angles)
    best = jnp.argmax(scores)
    angle, distance = best // len(distances), best % len(distances)
    zero = jnp.zeros(3, jnp.float32)
    return jnp.concatenate([jnp.asarray(distances)[distance][None], angles[angle], zero])


def _scores(pair: Pair, angles: Float[Array, " 2"], distances: Array) -> Array:
    """Returns the log likelihoods of distances at a turn and a pitch."""
    zero = jnp.zeros(3, jnp.float32)
    motion = jnp.concatenate([jnp.full(1, TYPICAL_DISTANCE, jnp.float32), angles, zero])
    free = pair.free_prior + log_normal(differences(pair, pair.free, motion), SEARCH_NOISE)
    other = jnp.logaddexp(jax.nn.logsumexp(free, axis=0), LOG_OUTLIER)
    roads = distances[:, None, None] * road_ratios(pair, motion)[None] / TYPICAL_DISTANCE
    road = log_normal(differences(pair, roads, motion), SEARCH_NOISE)
    return jnp.logaddexp(pair.road_prior[None] + road, other[None]).sum((1, 2))
