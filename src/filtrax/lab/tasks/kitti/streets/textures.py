"""Procedural textures: noise as a function of position, which is always the same at a place.

Random numbers at integer coordinates, hashes of the coordinates, are interpolated smoothly ("value
noise"; Lewis, Algorithms for solid noise synthesis, SIGGRAPH 1989). Octaves that are finer than a
pixel fade out, so that images do not flicker.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

Field = Float[Array, "*s"]


def mixed_bits(first: Shaped[Array, "*s"], second: Shaped[Array, "*s"], salt: int) -> Field:
    """Hashes two integer coordinates and a salt to a number in [0, 1)."""
    bits = first.astype(jnp.int32).astype(jnp.uint32) * np.uint32(0x9E3779B1)
    bits = bits ^ (second.astype(jnp.int32).astype(jnp.uint32) * np.uint32(0x85EBCA77))
    bits = bits + np.uint32(salt * 0x27D4EB2F & 0xFFFFFFFF)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    bits = (bits ^ (bits >> np.uint32(12))) * np.uint32(0x297A2D39)
    return (bits >> np.uint32(8)).astype(jnp.float32) * np.float32(2.0**-24)


def noise(x: Field, y: Field, salt: int) -> Field:
    """Returns smooth noise in [0, 1) whose features are about one unit wide."""
    left, low = jnp.floor(x), jnp.floor(y)
    across, up = _smooth(x - left), _smooth(y - low)
    corners = [[mixed_bits(left + i, low + j, salt) for i in (0.0, 1.0)] for j in (0.0, 1.0)]
    bottom, top = (one + (other - one) * across for one, other in corners)
    return bottom + (top - bottom) * up


def octaves(x: Field, y: Field, footprint: Field, sizes: tuple[float, ...], salt: int) -> Field:
    """Averages noise of several sizes; the result is around zero and within (-1, 1).

    **Arguments:**

    - `x`, `y`: coordinates in metres.
    - `footprint`: the metres that a ray covers there.
    - `sizes`: the sizes of features in metres.
    """
    total = jnp.zeros_like(x)
    for number, size in enumerate(sizes):
        seen = jnp.clip(size / footprint - 1.0, 0.0, 1.0)
        total = total + seen * (noise(x / size, y / size, salt + number) - 0.5)
    return total * (2.0 / len(sizes))


def band(distance: Field, half_width: Field | float, footprint: Field) -> Field:
    """Returns 1 within `half_width` of zero and 0 outside, with an edge of one footprint."""
    return jnp.clip((half_width - jnp.abs(distance)) / footprint + 0.5, 0.0, 1.0)


def grid_of_rectangles(x: Field, y: Field, filled: float, footprint: Field) -> Field:
    """Returns 1 in rectangles at the centres of unit cells; fades to the mean if too fine."""
    inside = band(x - jnp.floor(x) - 0.5, filled / 2, footprint)
    inside = inside * band(y - jnp.floor(y) - 0.5, filled / 2, footprint)
    seen = jnp.clip(2.0 - 2.0 * footprint, 0.0, 1.0)
    return filled**2 + seen * (inside - filled**2)


def _smooth(fraction: Field) -> Field:
    return fraction * fraction * (3.0 - 2.0 * fraction)
