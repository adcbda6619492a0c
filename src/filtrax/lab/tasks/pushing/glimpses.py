"""Windows of an image about a place that need not be a whole pixel, and values at such a place."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Pixel = Float[Array, " 2"]
"""Column and row, counted from the middle of the image, as `camera` has them."""


def glimpse(
    image: Float[Array, "h w c"], centre: Pixel, size: int, fill: float = 0.0
) -> Float[Array, "size size c"]:
    """The window of so many pixels about a place, interpolated linearly between pixels.

    Entry (i, j) is the value at the pixel centre + (j, i) + ½ − size / 2. Outside of the image all
    values are `fill`. The derivative with respect to the centre is that of the interpolation. A
    window that is cut about whole pixels is a copy.
    """
    height, width, depth = image.shape
    # Two pixels more than the window, so that one that is nowhere near the image is all fill.
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
    """The image at a place, interpolated linearly; outside of it, that of the nearest pixel."""
    height, width, _ = image.shape
    limits = np.asarray([(width - 1) / 2, (height - 1) / 2], pixel.dtype)
    return glimpse(image, jnp.clip(pixel, -limits, limits), 1)[0, 0]
