"""The three classical schemes; they differ in how evenly their positions are spread."""

import abc

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from filtrax.arrays import Key
from filtrax.resampling.base import AbstractAncestorResampler


class AbstractPositionResampler(AbstractAncestorResampler):
    """Inverts the distribution function of the weights at n positions in [0, 1).

    An ancestor is where the function passes a position (Douc, Cappé & Moulines 2005).
    """

    @abc.abstractmethod
    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        """Points in [0, 1) at which the distribution function is inverted."""

    def ancestors(self, log_weights: Float[Array, " n"], *, key: Key) -> Int[Array, " n"]:
        positions = self.positions(log_weights.size, log_weights.dtype, key=key)
        weights = jnp.exp(log_weights)
        # An n x n table of comparisons would do the same in quadratic time and memory.
        # The sum is rounded differently in each entry; with the running maximum it never falls,
        # and where a particle has no weight it does not rise.
        cumulative = jax.lax.cummax(jnp.where(weights > 0, jnp.cumsum(weights), 0.0))
        # Dividing by the last entry keeps rounding from pushing a position past the end.
        chosen = jnp.searchsorted(cumulative / cumulative[-1], positions, side="right")
        return jnp.minimum(chosen, log_weights.size - 1)


class Systematic(AbstractPositionResampler):
    """Equidistant positions with one random offset: (i + u) / n."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return _strata(count, jr.uniform(key, (1,), dtype))


class Stratified(AbstractPositionResampler):
    """One random position in each of n equal intervals: (i + uᵢ) / n."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return _strata(count, jr.uniform(key, (count,), dtype))


class Multinomial(AbstractPositionResampler):
    """Independent positions."""

    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        return jr.uniform(key, (count,), dtype)


def _strata(count: int, offsets: Float[Array, " m"]) -> Float[Array, " n"]:
    """(i + u) / n, kept under one where it would be rounded up."""
    positions = (jnp.arange(count, dtype=offsets.dtype) + offsets) / count
    return jnp.minimum(positions, 1 - jnp.finfo(offsets.dtype).epsneg)
