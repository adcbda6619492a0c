"""Images of discs, rendered inside of compiled programs.

A disc fills the pixels with dx² + dy² ≤ r² around its centre pixel, without smoothing. Discs
are drawn in order, so the target, which is the first, is behind all others.

Colours are codes of three bits: red 4, green 2, blue 1. A pixel shows the last disc that covers
it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Int, Integer, Shaped, UInt8

from filtrax._types import State

CANVAS = 120
"""Height and width of an image at full size, whose pixels are the unit of states."""

SMALLEST = 16
"""The smallest height and width of an image."""

UNROLLED = 32
"""The number of discs to draw per iteration of the scan. A scan compiles faster than a reduction,
for which XLA tries all tilings on GPUs."""

RED, GREEN, BLUE = 4, 2, 1

Centres = Int[Array, "discs 2"]
Numbers = Int[Array, " discs"]


def pixel_centre(state: State) -> Int[Array, " 2"]:
    """Returns column and row of a disc's centre pixel, which may be far outside of the image."""
    # Truncation towards zero, as in the paper's data: all of (-1, 1) is pixel 0.
    place = jnp.trunc(state[:2] + CANVAS / 2)
    # Discs are invisible long before they reach these limits, which fit into int16.
    return jnp.clip(place, -10 * CANVAS, 10 * CANVAS).astype(jnp.int16)


def paint(
    centres: Centres, radii: Numbers, colors: Numbers, size: int = CANVAS
) -> Int[Array, "size size"]:
    """Returns the colour code of every pixel; zero is the black background.

    **Arguments:**

    - `centres`: column and row of the centre of each disc, on the canvas of 120 pixels.
    - `radii`: in pixels of the canvas.
    - `colors`: codes of three bits.
    - `size`: height and width. Pixel k shows pixel floor((k + 1/2) · 120 / size) of the canvas.
    """
    shown = _shown_pixels(size)

    def draw(codes: Array, disc: tuple[Array, Array, Array]) -> tuple[Array, None]:
        (column, row), radius, color = disc
        across, left = (shown - column) ** 2, radius**2 - (shown - row) ** 2
        return jnp.where(across[None, :] <= left[:, None], color, codes), None

    discs = jax.tree.map(lambda part: part.astype(jnp.int32), (centres, radii, colors))
    return jax.lax.scan(draw, jnp.zeros((size, size), jnp.int32), discs, unroll=UNROLLED)[0]


def color_channels(codes: Integer[Array, "*s"], dtype: DTypeLike) -> Shaped[Array, "*s 3"]:
    """Converts codes to red, green and blue, each 0 or 1."""
    bits = np.reshape(np.asarray([RED, GREEN, BLUE], codes.dtype), (1,) * codes.ndim + (3,))
    return ((codes[..., None] & bits) != 0).astype(dtype)


def render(
    centres: Centres,
    radii: Numbers,
    colors: Numbers,
    size: int = CANVAS,
    dtype: DTypeLike | None = None,
) -> Float[Array, "size size 3"]:
    """Renders an image with channels 0 or 1, by default in the default dtype; see `paint`."""
    # The barrier keeps XLA from fusing the scan into the code of the channels, which would repeat
    # it for each channel.
    codes = jax.lax.optimization_barrier(paint(centres, radii, colors, size).astype(jnp.uint8))
    return color_channels(codes, jnp.result_type(float) if dtype is None else dtype)


def visible_pixels(centres: Centres, radii: Numbers, colors: Numbers) -> Int[Array, ""]:
    """Counts the pixels of the target that no other disc covers, on the full canvas."""
    return (paint(centres, radii, colors) == RED).sum(dtype=jnp.int32)


@eqx.filter_jit
def draw_frames(
    centres: Int[Array, "t discs 2"], radii: Numbers, colors: Numbers, size: int
) -> UInt8[Array, "t size size 3"]:
    """Renders the images of one sequence for display."""
    codes = jax.vmap(lambda now: paint(now, radii, colors, size))(centres)
    return 255 * color_channels(codes, jnp.uint8)


def count_visible(
    centres: Integer[Any, "n t discs 2"],
    radii: Integer[Any, "n discs"],
    colors: Integer[Any, "n discs"],
) -> Int[np.ndarray, "n t"]:
    """Counts the visible pixels of the target at all times of all sequences, in NumPy."""
    scenes = (np.asarray(part, np.int32) for part in (centres, radii, colors))
    return np.stack([_count_in_sequence(*scene) for scene in zip(*scenes, strict=True)])


def _count_in_sequence(
    centres: Int[np.ndarray, "t discs 2"],
    radii: Int[np.ndarray, " discs"],
    colors: Int[np.ndarray, " discs"],
) -> Int[np.ndarray, " t"]:
    around = np.arange(-radii[0], radii[0] + 1)
    down, right = np.nonzero(around[:, None] ** 2 + around**2 <= radii[0] ** 2)
    columns, rows = centres[:, :1, 0] + around[right], centres[:, :1, 1] + around[down]
    shown = (columns >= 0) & (columns < CANVAS) & (rows >= 0) & (rows < CANVAS)
    across = (columns[..., None] - centres[:, None, :, 0]) ** 2
    covered = across + (rows[..., None] - centres[:, None, :, 1]) ** 2 <= radii**2
    last = radii.size - 1 - covered[..., ::-1].argmax(-1)
    return (shown & (colors[last] == RED)).sum(-1, dtype=np.int32)


def _shown_pixels(size: int) -> np.ndarray:
    """Returns the rows (or columns) of the canvas that an image of another size shows."""
    # In integers, because 120 / size is not always exact.
    return ((2 * np.arange(size) + 1) * CANVAS // (2 * size)).astype(np.int32)
