"""Glimpses, windows of an image around subpixel positions, and interpolated values."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Pixel = Float[Array, " 2"]
"""Column and row relative to the middle of the image, as in `camera`."""


def glimpse(
    image: Float[Array, "h w c"], centre: Pixel, size: int, fill: float = 0.0
) -> Float[Array, "size size c"]:
    """Cuts a window of `size` pixels around a position, with linear interpolation.

    Entry (i, j) is the value at the pixel centre + (j, i) + ½ − size / 2. Values outside of the
    image are `fill`. The derivative with respect to `centre` is that of the interpolation. Windows
    aligned with pixels are exact copies.
    """
    height, width, depth = image.shape
    # Pad by two pixels more than the window, so that windows far from the image are all `fill`.
    edge = size + 2
    padded = jnp.pad(image, ((edge, edge), (edge, edge), (0, 0)), constant_values=fill)
    middle = jnp.stack([centre[1] + height / 2, centre[0] + width / 2])
    last = np.asarray([height + edge, width + edge], centre.dtype)
    corner = jnp.clip(middle + (edge - size / 2), 0.0, last)
    first = jnp.floor(jax.lax.stop_gradient(corner))
    share = corner - first
    row, column = first.astype(jnp.int32)
    start = (row, column, jnp.zeros((), jnp.int32))
    window = jax.lax.dynamic_slice(padded, start, (size + 1, size + 1, depth))
    rows = window[:-1] + share[0] * (window[1:] - window[:-1])
    return rows[:, :-1] + share[1] * (rows[:, 1:] - rows[:, :-1])


def value_at(image: Float[Array, "h w c"], pixel: Pixel) -> Float[Array, " c"]:
    """Interpolates an image linearly; outside of it, returns the value of the nearest pixel."""
    height, width, _ = image.shape
    limits = np.asarray([(width - 1) / 2, (height - 1) / 2], pixel.dtype)
    return glimpse(image, jnp.clip(pixel, -limits, limits), 1)[0, 0]
