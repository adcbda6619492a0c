"""The three classical schemes; they differ in how evenly their positions are spread."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax.arrays import Key
from filtrax.resampling.base import AbstractAncestorResampler


class Systematic(AbstractAncestorResampler):
    """Equidistant positions with one random offset: (i + u) / n."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return (jnp.arange(count, dtype=dtype) + jr.uniform(key, (), dtype)) / count


class Stratified(AbstractAncestorResampler):
    """One random position in each of n equal intervals: (i + uᵢ) / n."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return (jnp.arange(count, dtype=dtype) + jr.uniform(key, (count,), dtype)) / count


class Multinomial(AbstractAncestorResampler):
    """Independent positions."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return jr.uniform(key, (count,), dtype)
