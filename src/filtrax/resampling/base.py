"""What a resampler is."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax.arrays import Key
from filtrax.beliefs import Particles, uniform_log_weights


class AbstractResampler(eqx.Module):
    """Particles in, equally many particles out.

    A resampler sets the age of the particles: zero if it resampled, one more if it did not.
    """

    @abc.abstractmethod
    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        """Resamples the particles, or decides not to."""


class AbstractAncestorResampler(AbstractResampler):
    """Draws one ancestor per new particle; the new particles have equal weights.

    An implementation chooses n positions in [0, 1); an ancestor is where the distribution
    function of the weights passes a position (Douc, Cappé & Moulines 2005). Gradients flow
    through the states of the ancestors, not through their choice.
    """

    @abc.abstractmethod
    def positions(self, count: int, dtype, *, key: Key) -> Float[Array, " n"]:
        """Points in [0, 1) at which the distribution function is inverted."""

    def ancestors(self, log_weights: Float[Array, " n"], *, key: Key) -> Int[Array, " n"]:
        """Indices of the particles to keep, each drawn on average n wᵢ times."""
        positions = self.positions(log_weights.size, log_weights.dtype, key=key)
        # An n x n table of comparisons would do the same in quadratic time and memory.
        cumulative = jnp.cumsum(jnp.exp(log_weights))
        # Dividing by the last entry keeps rounding from pushing a position past the end.
        chosen = jnp.searchsorted(cumulative / cumulative[-1], positions, side="right")
        return jnp.minimum(chosen, log_weights.size - 1)

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        chosen = self.ancestors(particles.log_weights, key=key)
        equal = uniform_log_weights(chosen.size, particles.log_weights.dtype)
        return offspring(particles, chosen, equal)


class NoResampling(AbstractResampler):
    """Keeps the particles as they are."""

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        del key
        return older(particles)


def offspring(
    particles: Particles, ancestors: Int[Array, " n"], log_weights: Float[Array, " n"]
) -> Particles:
    """The particles at the given indices, with new weights."""
    age = jnp.zeros_like(particles.age)
    return Particles(particles.states[ancestors], log_weights, age, particles.kernel)


def older(particles: Particles) -> Particles:
    """The same particles, one step further from their last resampling."""
    return eqx.tree_at(lambda p: p.age, particles, particles.age + 1)
