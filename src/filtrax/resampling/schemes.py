"""The three classical schemes; they differ in how evenly their positions are spread."""

import abc
import functools

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from filtrax._loops import ANCESTORS
from filtrax._types import Key
from filtrax.resampling.base import AbstractAncestorResampler

LARGEST_TABLE = 128
"""The largest number of particles for which a GPU compares every position with every weight.

The comparison is one launch, where a bisection is several. The table is never stored, but its work
is the square of the number, which outweighs the launches in large batches of many particles.
"""


class AbstractPositionResampler(AbstractAncestorResampler):
    """Inverts the distribution function of the weights at n positions in [0, 1).

    An ancestor is where the function passes a position (Douc, Cappé & Moulines 2005).
    """

    @abc.abstractmethod
    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        """Points in [0, 1) at which the distribution function is inverted."""

    def ancestors(self, log_weights: Float[Array, " n"], *, key: Key) -> Int[Array, " n"]:
        positions = self.positions(log_weights.size, log_weights.dtype, key=key)
        weights = jnp.exp(jax.lax.stop_gradient(log_weights))
        # A loop is four launches for each halving on a GPU; written out, it is fused to a few.
        unrolled = functools.partial(_by_search, method="scan_unrolled")
        on_gpu = _by_table if weights.size <= LARGEST_TABLE else unrolled
        ancestors = jax.lax.platform_dependent(
            weights, positions, cuda=on_gpu, rocm=on_gpu, default=_by_search
        )
        return checkpoint_name(ancestors, ANCESTORS)


def _by_search(
    weights: Float[Array, " n"], positions: Float[Array, " n"], method: str = "scan"
) -> Int[Array, " n"]:
    """The ancestors, by a bisection of the distribution function for each position."""
    # The sum is rounded differently in each entry; with the running maximum it never falls,
    # and where a particle has no weight it does not rise.
    cumulative = jax.lax.cummax(jnp.where(weights > 0, jnp.cumsum(weights), 0.0))
    # Dividing by the last entry keeps rounding from pushing a position past the end.
    share = cumulative / cumulative[-1]
    ancestors = jnp.searchsorted(share, positions, side="right", method=method)
    return jnp.minimum(ancestors, weights.size - 1)


def _by_table(weights: Float[Array, " n"], positions: Float[Array, " n"]) -> Int[Array, " n"]:
    """The ancestors, by counting the partial sums of the weights up to the share of each position.

    Both are sums over rows of a table that is fused into them.
    """
    order = jnp.arange(weights.size)
    # Entries are added up in the same order in each row, and rounding keeps order: the sum never
    # falls, and where a particle has no weight it does not rise.
    cumulative = jnp.where(order[None, :] <= order[:, None], weights[None, :], 0.0).sum(1)
    # Positions are less than one by half a rounding or more, so their share is less than all.
    return (cumulative[None, :] <= positions[:, None] * cumulative[-1]).sum(1, dtype=jnp.int32)


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
