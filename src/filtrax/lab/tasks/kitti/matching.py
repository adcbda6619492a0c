"""A network that infers the motion of a car from the displacements of image cells.

It is made for few training images: learned layers do not see images, but only where the content of
each cell was in the previous image, so they can hardly memorize scenes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Key
from filtrax.networks import Perceptron

CELL = (5, 15)
"""Height and width of cells, in pixels."""

ROWS_MOVED = tuple(range(-5, 3))
COLUMNS_MOVED = tuple(range(-10, 11))
"""The displacements of a cell's content in the previous image, in pixels.

Forward motion moves content away from the middle of the image, and downwards on the road; turns and
pitch move all content sideways and vertically.
"""

SHARPNESS = (4.0, 12.0, 36.0)
"""The initial factors of correlations before the softmax."""

SMALLEST_CONTRAST = 3.0
"""Lower bound on local contrast in gray levels, to not amplify noise."""

NEIGHBOURHOOD = 9
"""Height and width in pixels of the window for local mean and contrast."""

HIDDEN = 64

LINEAR = 32
"""The number of linear features, because networks with ReLU learn linear functions slowly."""

SMALLEST_SPREAD = 0.1
"""Lower bound on spreads in pixels, which limits the gradient of the square root."""

EXACT = jax.lax.Precision.HIGHEST
"""Precision of products whose results matter to hundredths of a pixel."""


class MatchingNetwork(eqx.Module):
    """Soft maxima of normalized cell correlations, followed by dense layers.

    Both images are normalized by local mean and contrast. For each cell, and for each block of
    2 × 2 cells, the correlation c(d) with the previous image is computed at all displacements d
    (Lewis 1995), which is invariant to gain and bias. With weights w ∝ exp(β c(d)) for several
    learned β, the inputs of dense layers are the means Σ w d along both axes, the spreads at the
    second β, and the largest correlation. Means are about linear in the motion of the car (its
    heading rate moves all cells, its speed those on the road), so some features are linear.

    **Arguments:**

    - `image_size`: height and width.
    - `num_features`: the size of the output.
    - `dropout`: the fraction of inputs that is dropped in training, which requires a key.
    """

    log_sharpness: Float[Array, " betas"]
    dropout: eqx.nn.Dropout
    dense: Perceptron
    linear: Perceptron

    def __init__(self, image_size: tuple[int, int], *, num_features: int, dropout: float, key: Key):
        rows, columns = number_of_cells(image_size)
        count = rows * columns + (rows // 2) * (columns // 2)
        self.log_sharpness = jnp.log(jnp.asarray(SHARPNESS))
        self.dropout = eqx.nn.Dropout(dropout)
        inputs = count * (2 * len(SHARPNESS) + 3)
        dense_key, linear_key = jr.split(key)
        self.dense = Perceptron((inputs, HIDDEN, num_features - LINEAR), key=dense_key)
        self.linear = Perceptron((inputs, LINEAR), key=linear_key)

    def __call__(
        self,
        before: Float[Array, "h w c"],
        present: Float[Array, "h w c"],
        *,
        key: Key | None = None,
    ) -> Float[Array, " features"]:
        first, second = (normalized(image.mean(-1)) for image in (before, present))
        seen = jnp.concatenate([self._look(part) for part in correlations(first, second)])
        seen = self.dropout(seen.ravel(), key=key)
        return jnp.concatenate([jax.nn.relu(self.dense(seen)), self.linear(seen)])

    def _look(self, found: Float[Array, "r c dy dx"]) -> Float[Array, "cells numbers"]:
        """Returns mean displacements for each sharpness, spreads, and the largest correlation."""
        scores = found.reshape(-1, found.shape[2] * found.shape[3])
        sharpness = jnp.exp(self.log_sharpness).astype(scores.dtype)
        weights = jax.nn.softmax(sharpness[:, None, None] * scores[None], -1)
        places = jnp.asarray(_displacements(), scores.dtype)
        means = jnp.matmul(weights, places, precision=EXACT)
        squares = jnp.matmul(weights[1], places**2, precision=EXACT)
        spreads = jnp.sqrt(jnp.maximum(squares - means[1] ** 2, 0.0) + SMALLEST_SPREAD**2)
        largest = scores.max(-1, keepdims=True)
        return jnp.concatenate(
            [jnp.moveaxis(means, 0, 1).reshape(len(scores), -1) / 2, spreads / 2, largest], -1
        )


def number_of_cells(image_size: tuple[int, int]) -> tuple[int, int]:
    """Returns the number of cells along both axes of an image; raises if it is less than two."""
    counts = tuple(size // cell for size, cell in zip(image_size, CELL, strict=True))
    if min(counts) < 2:
        raise ValueError(
            f"Images must have at least {2 * CELL[0]} x {2 * CELL[1]} pixels (height x width) for "
            f"two cells of the sensor along both axes, got {image_size[0]} x {image_size[1]}."
        )
    return counts[0], counts[1]


def normalized(image: Float[Array, "h w"]) -> Float[Array, "h w"]:
    """Subtracts the local mean of an image, and divides by the local contrast."""
    detail = image - _box_mean(image)
    return detail * jax.lax.rsqrt(_box_mean(detail**2) + SMALLEST_CONTRAST**2)


def correlations(
    before: Float[Array, "h w"], present: Float[Array, "h w"]
) -> tuple[Float[Array, "r c dy dx"], Float[Array, "r2 c2 dy dx"]]:
    """Computes normalized correlations of all cells, and of all blocks of 2 × 2 cells.

    c(d) = Σ present(p) before(p + d) / √(Σ present(p)² Σ before(p + d)²) with sums over the pixels
    p of a cell; pixels at the edge are repeated beyond it.
    """
    rows, columns = number_of_cells((before.shape[0], before.shape[1]))
    height, width = rows * CELL[0], columns * CELL[1]
    top, left = (before.shape[0] - height) // 2, (before.shape[1] - width) // 2
    here = present[top : top + height, left : left + width]
    reach = [(-min(moved), max(moved)) for moved in (ROWS_MOVED, COLUMNS_MOVED)]
    around = jnp.pad(before, reach, mode="edge")
    # Stack all displacements along rows, for few operations in the compiled program.
    starts = [left + aside + reach[1][0] for aside in COLUMNS_MOVED]
    shifted = jnp.stack([around[:, start : start + width] for start in starts])
    products, powers = [], []
    for down in ROWS_MOVED:
        start = top + down + reach[0][0]
        there = shifted[:, start : start + height]
        products.append(_cell_sums(here[None] * there))
        powers.append(_cell_sums(there**2))
    product, power = (jnp.transpose(jnp.stack(part), (2, 3, 0, 1)) for part in (products, powers))
    own = _cell_sums(here[None] ** 2)[0, :, :, None, None]
    cells = product * jax.lax.rsqrt(own * power + 1.0)
    product, power, own = (_block_sums(part) for part in (product, power, own))
    return cells, product * jax.lax.rsqrt(own * power + 1.0)


def _cell_sums(images: Float[Array, "n h w"]) -> Float[Array, "n r c"]:
    """Sums over the pixels of each cell."""
    count, height, width = images.shape
    rows = images.reshape(count, height // CELL[0], CELL[0], width)
    # Add rows first, then multiply by a matrix of zeros and ones, which is fast.
    bands = sum(rows[:, :, i] for i in range(1, CELL[0])) + rows[:, :, 0]
    columns = np.repeat(np.eye(width // CELL[1]), CELL[1], axis=0)
    return jnp.matmul(bands, jnp.asarray(columns, images.dtype), precision=EXACT)


def _block_sums(cells: Float[Array, "r c dy dx"]) -> Float[Array, "r2 c2 dy dx"]:
    rows, columns = (2 * (size // 2) for size in cells.shape[:2])
    blocks = cells[:rows, :columns].reshape(rows // 2, 2, columns // 2, 2, *cells.shape[2:])
    return blocks.sum((1, 3))


def _box_mean(image: Float[Array, "h w"]) -> Float[Array, "h w"]:
    """Averages over the neighbourhood of each pixel."""
    reach = NEIGHBOURHOOD // 2
    for axis in (0, 1):
        edges = [(0, 0), (0, 0)]
        edges[axis] = (reach + 1, reach)
        sums = jnp.cumsum(jnp.pad(image, edges, mode="edge"), axis)
        size = image.shape[axis]
        last, first = (
            jax.lax.slice_in_dim(sums, start, start + size, axis=axis)
            for start in (NEIGHBOURHOOD, 0)
        )
        image = (last - first) / NEIGHBOURHOOD
    return image


def _displacements() -> Float[np.ndarray, "d 2"]:
    """Returns all displacements as (columns, rows)."""
    down, aside = np.meshgrid(ROWS_MOVED, COLUMNS_MOVED, indexing="ij")
    return np.stack([aside.ravel(), down.ravel()], -1).astype(float)
