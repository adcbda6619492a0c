"""Plain descriptions of images, which see what a trained encoder has learned to overlook."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Context, Reading
from filtrax.lab.tasks.kitti.encoders import two_frames
from filtrax.lab.tasks.kitti.flow import rough_distance
from filtrax.linalg import precise

LEVELS = 3
"""Of how many sizes of an image statistics are taken: it is halved from one to the next."""

CELLS = (3, 5)
"""Rows and columns of parts of an image, of which each has energies of its own."""


MEMORY = 4
"""Over so many readings, the present one the last, statistics are averaged: a place that is unlike
others is so for longer than a step, and a mean scatters less."""


def describe_frames(reading: Reading, context: Context) -> dict[str, Array]:
    """What a reading of the KITTI task shows, in parts for a detector of novelty.

    Its `frame_statistics`, and how far the car went by the optical flow, without any learning. A
    sensor that was trained on slow drives may take a fast one for a slow one, and so may
    statistics: an image that has changed everywhere changes no more.
    """
    before, present = two_frames(reading, context, jnp.result_type(float))
    distance = rough_distance(before.mean(-1), present.mean(-1))
    return {"statistics": frame_statistics(reading, context), "distance": distance[None]}


def frame_statistics(reading: Reading, context: Context) -> Float[Array, " statistics"]:
    """Statistics of the images that a reading of the KITTI task and those before it show.

    All are logarithms of mean squares, because energies of images vary by factors. The first are of
    the whole image: brightness, contrast and change; then, of the image and of its difference from
    the one before, at several sizes, of the slopes along both axes and of what is left when slopes
    and straight edges are taken away, which is mostly noise (Immerkær 1996). Blur takes from the
    finest size first. The others are of slopes in the cells of a grid: they see what kind of place
    it is, and speed, which moves change to coarser sizes. All are one part of a detector, because
    what is unlike is often how they are related.
    """
    present = jnp.asarray(reading)
    readings = present - jnp.arange(MEMORY, dtype=present.dtype)
    each = jax.vmap(lambda one: _statistics(one, context))(jnp.maximum(readings, 0))
    exists = (readings >= 0)[:, None]  # not all do at the start of a sequence
    return each.mean(0, where=exists)


def _statistics(reading: Reading, context: Context) -> Float[Array, " statistics"]:
    before, present = two_frames(reading, context, jnp.result_type(float))
    change = present - before
    overall = [present, present - present.mean((0, 1), keepdims=True), change]
    slopes = []
    for image in (*_sizes(present), *_sizes(change)):
        both = [jnp.diff(image, axis=0), jnp.diff(image, axis=1)]
        overall += [*both, jnp.diff(jnp.diff(image, n=2, axis=0), n=2, axis=1)]
        slopes += both
    energies = jnp.stack([(part**2).mean() for part in overall])
    cells = [_cell_energies(part) for part in slopes]
    # One, about the square of how exact bytes are, keeps an even image from minus infinity.
    return jnp.log1p(jnp.concatenate([energies, *cells]))


def _sizes(image: Float[Array, "h w c"]) -> list[Float[Array, "_ _ c"]]:
    """The image, and means of 2 × 2 pixels of it, and of these, and so on."""
    sizes = [image]
    while len(sizes) < LEVELS:
        height, width = (size // 2 for size in sizes[-1].shape[:2])
        whole = sizes[-1][: 2 * height, : 2 * width]  # without an odd row or column at the end
        sizes.append(whole.reshape(height, 2, width, 2, -1).mean((1, 3)))
    return sizes


@precise
def _cell_energies(image: Float[Array, "h w c"]) -> Float[Array, " cells"]:
    down, across = (
        jnp.asarray(_means(size, parts), image.dtype)
        for size, parts in zip(image.shape[:2], CELLS, strict=True)
    )
    return (down @ (image**2).mean(-1) @ across.T).ravel()


def _means(size: int, parts: int) -> Float[np.ndarray, "parts size"]:
    """The matrix that takes the means of consecutive parts of a vector, about equally long."""
    numbers = np.arange(size) * parts // size
    members = numbers == np.arange(parts)[:, None]
    return members / np.maximum(members.sum(1, keepdims=True), 1)
