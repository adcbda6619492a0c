"""Operations on gray images: interpolation, means, blur and downsampling."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Image = Float[Array, "rows columns"]
Places = Float[Array, "*places"]


def sampled(image: Image, rows: Places, columns: Places) -> Places:
    """Interpolates an image linearly; coordinates are clipped to the image."""
    height, width = image.shape
    rows, columns = jnp.clip(rows, 0.0, height - 1.001), jnp.clip(columns, 0.0, width - 1.001)
    top, left = jnp.floor(rows), jnp.floor(columns)
    down, right = rows - top, columns - left
    first = top.astype(jnp.int32) * width + left.astype(jnp.int32)
    flat = image.reshape(-1)
    upper = flat[first] * (1 - right) + flat[first + 1] * right
    lower = flat[first + width] * (1 - right) + flat[first + width + 1] * right
    return upper * (1 - down) + lower * down


def averaged(image: Image) -> Image:
    """Averages over 3 × 3 pixels around each pixel."""
    kernel = np.full(3, 1 / 3, np.float32)
    return _along_both(image, kernel)


def blurred(image: Image, std: float) -> Image:
    """Convolves an image with a Gaussian; pixels at the edge are repeated beyond it."""
    reach = int(np.ceil(2.5 * std))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / std) ** 2)
    return _along_both(image, (kernel / kernel.sum()).astype(np.float32))


def _along_both(image: Image, kernel: np.ndarray) -> Image:
    reach = len(kernel) // 2
    height, width = image.shape
    padded = jnp.pad(image, ((reach, reach), (0, 0)), mode="edge")
    image = _weighted([padded[i : i + height] for i in range(len(kernel))], kernel)
    padded = jnp.pad(image, ((0, 0), (reach, reach)), mode="edge")
    return _weighted([padded[:, i : i + width] for i in range(len(kernel))], kernel)


def halved(image: Image) -> Float[Array, "less fewer"]:
    """Averages blocks of 2 × 2 pixels; drops an odd last row or column."""
    rows, columns = (size // 2 for size in image.shape)
    return image[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2).mean((1, 3))


def _weighted(images: list[Image], weights: np.ndarray) -> Image:
    total = jnp.zeros_like(images[0])
    for image, weight in zip(images, weights, strict=True):
        total = total + float(weight) * image
    return total
