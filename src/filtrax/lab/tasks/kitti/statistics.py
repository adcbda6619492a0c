"""Descriptions of images without learning, which cover what trained encoders learn to ignore."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Context, Reading
from filtrax.lab.tasks.kitti.encoders import two_frames
from filtrax.lab.tasks.kitti.flow import rough_distance
from filtrax.linalg import precise

LEVELS = 3
"""The number of scales of an image; each is half as large as the previous one."""

CELLS = (3, 5)
"""Rows and columns of the cells of an image with energies of their own."""


MEMORY = 4
"""The number of last readings over which statistics are averaged, to reduce their scatter: novel
places last for more than one step."""


def describe_frames(reading: Reading, context: Context) -> dict[str, Array]:
    """Describes a reading of the KITTI task for a novelty detector, in separate parts.

    The parts are `frame_statistics`, and the distance of the step from optical flow. The latter
    reveals speeds that a sensor has not been trained on. Statistics may miss them, because images
    that have changed everywhere cannot change more.
    """
    before, present = two_frames(reading, context, jnp.result_type(float))
    distance = rough_distance(before.mean(-1), present.mean(-1))
    return {"statistics": frame_statistics(reading, context), "distance": distance[None]}


def frame_statistics(reading: Reading, context: Context) -> Float[Array, " statistics"]:
    """Computes statistics of the images of a reading of the KITTI task and its predecessors.

    All are logarithms of mean squares, because energies of images vary by factors:

    - of the whole image: brightness, contrast and change.
    - of the whole image, and of its difference from the previous one, at several scales: gradients
      along both axes, and a residual without gradients and straight edges, which is mostly noise
      (Immerkær 1996). Blur reduces the finest scale first.
    - of gradients in the cells of a grid, which depend on the kind of place, and on the speed,
      because speed moves change to coarser scales.

    They are one part of a detector, because novelty often shows in their relations.
    """
    present = jnp.asarray(reading)
    readings = present - jnp.arange(MEMORY, dtype=present.dtype)
    each = jax.vmap(lambda one: _statistics(one, context))(jnp.maximum(readings, 0))
    exists = (readings >= 0)[:, None]  # some are missing at the start of a sequence
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
    # Adding 1, about the squared resolution of bytes, keeps uniform images finite.
    return jnp.log1p(jnp.concatenate([energies, *cells]))


def _sizes(image: Float[Array, "h w c"]) -> list[Float[Array, "_ _ c"]]:
    """Returns the image at `LEVELS` scales, by repeated means of 2 × 2 pixels."""
    sizes = [image]
    while len(sizes) < LEVELS:
        height, width = (size // 2 for size in sizes[-1].shape[:2])
        whole = sizes[-1][: 2 * height, : 2 * width]  # drop an odd last row or column
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
    """Returns the matrix for the means of consecutive parts of a vector, about equally long."""
    numbers = np.arange(size) * parts // size
    members = numbers == np.arange(parts)[:, None]
    return members / np.maximum(members.sum(1, keepdims=True), 1)
