"""The interface of resamplers."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax._types import Key
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

    Gradients flow through the states of the ancestors, not through their choice.
    """

    @abc.abstractmethod
    def ancestors(self, log_weights: Float[Array, " n"], *, key: Key) -> Int[Array, " n"]:
        """Indices of the particles to keep, each drawn on average n wᵢ times."""

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        ancestors = self.ancestors(particles.log_weights, key=key)
        equal = uniform_log_weights(ancestors.size, particles.log_weights.dtype)
        return offspring(particles, ancestors, equal)


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
