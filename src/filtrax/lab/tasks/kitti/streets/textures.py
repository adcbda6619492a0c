"""Noise that is a function of the place: it looks the same whenever a place is seen again.

Random numbers at whole coordinates, made by mixing the bits of the coordinates, are interpolated
smoothly between them ("value noise"; Lewis, Algorithms for solid noise synthesis, SIGGRAPH 1989).
Octaves that are finer than a pixel fade out, so that images do not flicker.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

Field = Float[Array, "*s"]


def mixed_bits(first: Shaped[Array, "*s"], second: Shaped[Array, "*s"], salt: int) -> Field:
    """A number in [0, 1) for two whole ones: multiply and fold, until all bits depend on all."""
    bits = first.astype(jnp.int32).astype(jnp.uint32) * np.uint32(0x9E3779B1)
    bits = bits ^ (second.astype(jnp.int32).astype(jnp.uint32) * np.uint32(0x85EBCA77))
    bits = bits + np.uint32(salt * 0x27D4EB2F & 0xFFFFFFFF)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    bits = (bits ^ (bits >> np.uint32(12))) * np.uint32(0x297A2D39)
    return (bits >> np.uint32(8)).astype(jnp.float32) * np.float32(2.0**-24)


def noise(x: Field, y: Field, salt: int) -> Field:
    """Smooth noise in [0, 1) whose features are about one unit wide."""
    left, low = jnp.floor(x), jnp.floor(y)
    across, up = _smooth(x - left), _smooth(y - low)
    corners = [[mixed_bits(left + i, low + j, salt) for i in (0.0, 1.0)] for j in (0.0, 1.0)]
    bottom, top = (one + (other - one) * across for one, other in corners)
    return bottom + (top - bottom) * up


def octaves(x: Field, y: Field, footprint: Field, sizes: tuple[float, ...], salt: int) -> Field:
    """A sum of noise of several sizes, about zero and within (-1, 1).

    **Arguments:**

    - `x`, `y`: where, in metres.
    - `footprint`: how many metres a ray of light covers there.
    - `sizes`: of the features, in metres.
    """
    total = jnp.zeros_like(x)
    for number, size in enumerate(sizes):
        seen = jnp.clip(size / footprint - 1.0, 0.0, 1.0)
        total = total + seen * (noise(x / size, y / size, salt + number) - 0.5)
    return total * (2.0 / len(sizes))


def band(distance: Field, half_width: Field | float, footprint: Field) -> Field:
    """One within half a width of zero and zero outside, with an edge of one footprint."""
    return jnp.clip((half_width - jnp.abs(distance)) / footprint + 0.5, 0.0, 1.0)


def grid_of_rectangles(x: Field, y: Field, filled: float, footprint: Field) -> Field:
    """One inside of rectangles in the middle of unit cells, faded to its mean where too fine."""
    inside = band(x - jnp.floor(x) - 0.5, filled / 2, footprint)
    inside = inside * band(y - jnp.floor(y) - 0.5, filled / 2, footprint)
    seen = jnp.clip(2.0 - 2.0 * footprint, 0.0, 1.0)
    return filled**2 + seen * (inside - filled**2)


def _smooth(fraction: Field) -> Field:
    return fraction * fraction * (3.0 - 2.0 * fraction)
