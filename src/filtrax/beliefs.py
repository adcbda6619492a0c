"""Beliefs: distributions over the state at one time.

The beliefs of a whole sequence are one object of the same class whose arrays have a leading
time axis.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from filtrax.arrays import Key, Scalar, State
from filtrax.checks import as_float, check_covariance, check_shape
from filtrax.linalg import gaussian_log_density, log_sum, precise, square_root, symmetrize
from filtrax.spaces import Space


class AbstractBelief(eqx.Module):
    """A distribution over the state at one time."""

    @abc.abstractmethod
    def moments(self, space: Space) -> "Gaussian":
        """The Gaussian with the same mean and covariance."""


class Gaussian(AbstractBelief):
    """A normal distribution N(mean, covariance)."""

    mean: Float[Array, "*b x"] = eqx.field(converter=as_float)
    covariance: Float[Array, "*b x x"] = eqx.field(converter=as_float)

    def __check_init__(self):
        if self.mean.ndim == 0:
            raise ValueError("`mean` must have one entry per component, got a single number.")
        check_shape("covariance", self.covariance, (*self.mean.shape, self.mean.shape[-1]))
        check_covariance("covariance", self.covariance)

    def moments(self, space: Space) -> "Gaussian":
        del space
        return self

    @precise
    def sample(self, *, key: Key) -> State:
        """Draws one state. Angles are not wrapped: the space that knows them is not known here."""
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + square_root(self.covariance) @ noise


class GaussianMixture(AbstractBelief):
    """Several normal distributions with weights, like one for each mode of a switching process.

    **Attributes:**

    - `components`: the distributions, on an axis of their own.
    - `log_weights`: their weights; exp(log_weights) sums to one, always.
    """

    components: Gaussian
    log_weights: Float[Array, "*b n"]

    @precise
    def moments(self, space: Space) -> Gaussian:
        """Mean μ = Σ wᵢ μᵢ and covariance Σ wᵢ (Σᵢ + (μᵢ - μ)(μᵢ - μ)ᵀ), as the space subtracts."""
        means, weights = self.components.mean, jnp.exp(self.log_weights)
        mean = space.mean(means, weights)
        within = jnp.tensordot(weights, self.components.covariance, 1)
        between = weighted_covariance(space, means, mean, weights)
        return Gaussian(mean, symmetrize(within + between))

    @precise
    def log_density(
        self, state: State, space: Space, labelled: Bool[Array, " x"] | None = None
    ) -> Scalar:
        """ln Σ wᵢ N(x; μᵢ, Σᵢ) of the components of the state that are labelled.

        Summed in logarithms, so that value and gradient are finite far from all means.
        """
        differences = jax.vmap(space.difference, (None, 0))(state, self.components.mean)
        log_density = jax.vmap(gaussian_log_density, (0, 0, None))
        log_densities = log_density(differences, self.components.covariance, labelled)
        return jax.nn.logsumexp(self.log_weights + log_densities)


class Particles(AbstractBelief):
    """Weighted samples of the state.

    **Attributes:**

    - `states`: one state per particle.
    - `log_weights`: their weights; exp(log_weights) sums to one, always.
    - `age`: steps since the particles were last resampled.
    - `kernel`: the factor F of the covariance F Fᵀ that each particle has when the particles
      are read as a mixture of Gaussians.
    """

    states: Float[Array, "*b n x"]
    log_weights: Float[Array, "*b n"]
    age: Int[Array, "*b"]
    kernel: Float[Array, "*b x x"]

    @classmethod
    def uniform(cls, states: Float[Array, "n x"], kernel: Float[Array, "x x"]) -> "Particles":
        """Particles of equal weight that count as just resampled."""
        count = states.shape[0]
        return cls(states, uniform_log_weights(count, states.dtype), jnp.zeros((), int), kernel)

    @precise
    def moments(self, space: Space) -> Gaussian:
        """Mean μ = Σ wᵢ xᵢ and covariance Σ wᵢ (xᵢ - μ)(xᵢ - μ)ᵀ, with the space's differences."""
        weights = jnp.exp(self.log_weights)
        mean = space.mean(self.states, weights)
        return Gaussian(mean, weighted_covariance(space, self.states, mean, weights))

    @precise
    def smoothed_moments(self, space: Space) -> Gaussian:
        """The moments of the mixture: mean μ and covariance Σ wᵢ (xᵢ - μ)(xᵢ - μ)ᵀ + F Fᵀ.

        Never singular, while the covariance of the particles alone is as soon as few of them
        have all the weight.
        """
        moments = self.moments(space)
        return Gaussian(moments.mean, moments.covariance + self.kernel @ self.kernel.T)

    def mode(self) -> State:
        """The particle of largest weight."""
        return self.states[jnp.argmax(self.log_weights)]

    def effective_sample_size(self) -> Scalar:
        """1 / Σ wᵢ²: between 1 (one particle has all the weight) and n (all weights equal)."""
        return jnp.exp(-log_sum(2 * self.log_weights))

    def reweight(self, log_likelihoods: Float[Array, " n"]) -> tuple["Particles", Scalar]:
        """Multiplies the weights by likelihoods; also returns ln Σ wᵢ pᵢ, the log evidence."""
        log_weights = self.log_weights + log_likelihoods
        log_evidence = log_sum(log_weights)
        updated = Particles(self.states, log_weights - log_evidence, self.age, self.kernel)
        return updated, log_evidence


class RecurrentBelief(AbstractBelief):
    """The belief of a recurrent network: what it says of the state, and what it remembers.

    **Attributes:**

    - `estimate`: the network's output.
    - `memory`: hidden and cell vector of each layer.
    - `start`: what the network is told of the prior; zeros from the second step on.
    """

    estimate: Gaussian
    memory: tuple[tuple[Float[Array, "*b h"], Float[Array, "*b h"]], ...]
    start: Float[Array, "*b s"]

    def moments(self, space: Space) -> Gaussian:
        del space
        return self.estimate


def uniform_log_weights(count: int, dtype) -> Float[Array, " n"]:
    """Log weights of `count` equally likely particles."""
    return jnp.full(count, -jnp.log(count), dtype)


@precise
def weighted_covariance(
    space: Space,
    points: Float[Array, "n x"],
    centre: Float[Array, " x"],
    weights: Float[Array, " n"],
) -> Float[Array, "x x"]:
    """Σ wᵢ (xᵢ - c)(xᵢ - c)ᵀ."""
    offsets = jax.vmap(space.difference, (0, None))(points, centre)
    return (weights[:, None] * offsets).T @ offsets
