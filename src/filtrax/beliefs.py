"""Beliefs: distributions over the state at one time.

The beliefs of a whole sequence are one object of the same class whose arrays have a leading
time axis.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from filtrax._checks import as_float, check_covariance, check_shape
from filtrax._types import Key, Scalar, State
from filtrax.linalg import (
    canonical,
    gaussian_log_density,
    log_sum,
    precise,
    product,
    root_sum,
    square_root,
    squared,
)
from filtrax.spaces import AbstractSpace


class AbstractBelief(eqx.Module):
    """A distribution over the state at one time."""

    @abc.abstractmethod
    def moments(self, space: AbstractSpace) -> "Gaussian":
        """The Gaussian with the same mean and covariance."""


class Gaussian(AbstractBelief):
    """A normal distribution N(mean, covariance).

    It carries a factor of the covariance, which single precision can represent where the
    covariance itself is singular to rounding (`docs/design.md` has the numbers).

    **Arguments:**

    - `mean`: one entry per component.
    - `covariance`, or `factor`: a matrix F with F Fᵀ = covariance.
    """

    mean: Float[Array, "*b x"]
    factor: Float[Array, "*b x w"]
    """A matrix F with F Fᵀ = covariance: lower triangular if it is square, while a prediction may
    carry a wider one. Its tangent may be that of another factor: use `root` for what does not
    depend on the covariance alone."""

    def __init__(self, mean: Any, covariance: Any = None, *, factor: Any = None):
        self.mean = as_float(mean)
        if (covariance is None) == (factor is None):
            raise ValueError("A `Gaussian` needs either `covariance` or `factor`, not both.")
        if self.mean.ndim == 0:
            raise ValueError("`mean` must have one entry per component, got a single number.")
        if covariance is not None:
            covariance = as_float(covariance)
            check_shape("covariance", covariance, (*self.mean.shape, self.mean.shape[-1]))
            check_covariance("covariance", covariance)
            self.factor = _over_batch(square_root, covariance)
        else:
            factor = as_float(factor)
            check_shape("factor", factor, (*self.mean.shape, *factor.shape[-1:]))
            self.factor = _over_batch(root_sum, factor)

    @classmethod
    def of_factor(cls, mean: Float[Array, "*b x"], factor: Float[Array, "*b x w"]) -> "Gaussian":
        """The distribution that carries this factor, lower triangular or wider than high."""
        belief = object.__new__(cls)
        object.__setattr__(belief, "mean", mean)
        object.__setattr__(belief, "factor", factor)
        return belief

    @property
    def covariance(self) -> Float[Array, "*b x x"]:
        """The covariance."""
        return squared(self.factor)

    @property
    def root(self) -> Float[Array, "*b x x"]:
        """The lower triangular L with L Lᵀ = covariance and a diagonal that is not negative."""
        return _over_batch(canonical, self.compact().factor)

    def compact(self) -> "Gaussian":
        """The same distribution with a factor that is lower triangular."""
        if self.factor.shape[-1] == self.factor.shape[-2]:
            return self
        return Gaussian.of_factor(self.mean, _over_batch(root_sum, self.factor))

    def moments(self, space: AbstractSpace) -> "Gaussian":
        del space
        return self

    def log_density(self, residual: State, labelled: Bool[Array, " x"] | None = None) -> Scalar:
        """ln N(d; 0, Σ) of the components of a residual d = x - μ that are labelled."""
        return gaussian_log_density(residual, self.factor, labelled)

    def sample(self, *, key: Key) -> State:
        """Draws one state. Angles are not wrapped: the space that knows them is not known here."""
        return self.mean + product(self.root, jr.normal(key, self.mean.shape, self.mean.dtype))


def _over_batch(function: Any, matrices: Float[Array, "*b n m"]) -> Float[Array, "*b n n"]:
    for _ in matrices.shape[:-2]:
        function = jax.vmap(function)
    return function(matrices)


class GaussianMixture(AbstractBelief):
    """Several normal distributions with weights, like one for each mode of a switching process.

    **Attributes:**

    - `components`: the distributions, on an axis of their own.
    - `log_weights`: their weights; exp(log_weights) sums to one, always.
    """

    components: Gaussian
    log_weights: Float[Array, "*b n"]

    @precise
    def moments(self, space: AbstractSpace) -> Gaussian:
        """Mean μ = Σ wᵢ μᵢ and covariance Σ wᵢ (Σᵢ + (μᵢ - μ)(μᵢ - μ)ᵀ), as the space subtracts."""
        means = self.components.mean
        mean = space.mean(means, jnp.exp(self.log_weights))
        halves = jnp.exp(0.5 * self.log_weights)  # √wᵢ, with a gradient where wᵢ is zero
        offsets = halves[:, None] * jax.vmap(space.difference, (0, None))(means, mean)
        within = [half * part for half, part in zip(halves, self.components.factor, strict=True)]
        return Gaussian.of_factor(mean, root_sum(offsets.T, *within))

    @precise
    def log_density(
        self, state: State, space: AbstractSpace, labelled: Bool[Array, " x"] | None = None
    ) -> Scalar:
        """ln Σ wᵢ N(x; μᵢ, Σᵢ) of the components of the state that are labelled.

        Summed in logarithms, so that value and gradient are finite far from all means.
        """
        differences = jax.vmap(space.difference, (None, 0))(state, self.components.mean)
        log_density = jax.vmap(gaussian_log_density, (0, 0, None))
        log_densities = log_density(differences, self.components.factor, labelled)
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
    def moments(self, space: AbstractSpace) -> Gaussian:
        """Mean μ = Σ wᵢ xᵢ and covariance Σ wᵢ (xᵢ - μ)(xᵢ - μ)ᵀ, with the space's differences."""
        mean, offsets = self._spread(space)
        return Gaussian.of_factor(mean, root_sum(offsets))

    @precise
    def kernel_moments(self, space: AbstractSpace) -> Gaussian:
        """The moments of the mixture: mean μ and covariance Σ wᵢ (xᵢ - μ)(xᵢ - μ)ᵀ + F Fᵀ.

        Never singular, while the covariance of the particles alone is as soon as few of them
        have all the weight.
        """
        mean, offsets = self._spread(space)
        return Gaussian.of_factor(mean, root_sum(offsets, self.kernel))

    def _spread(self, space: AbstractSpace) -> tuple[State, Float[Array, "x n"]]:
        """μ, and a factor of the covariance with a column √wᵢ (xᵢ - μ) for each particle."""
        mean = space.mean(self.states, jnp.exp(self.log_weights))
        offsets = jax.vmap(space.difference, (0, None))(self.states, mean)
        return mean, (jnp.exp(0.5 * self.log_weights)[:, None] * offsets).T

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

    def moments(self, space: AbstractSpace) -> Gaussian:
        del space
        return self.estimate


def uniform_log_weights(count: int, dtype) -> Float[Array, " n"]:
    """Log weights of `count` equally likely particles."""
    return jnp.full(count, -jnp.log(count), dtype)


@precise
def weighted_covariance(
    space: AbstractSpace,
    points: Float[Array, "n x"],
    centre: Float[Array, " x"],
    weights: Float[Array, " n"],
) -> Float[Array, "x x"]:
    """Σ wᵢ (xᵢ - c)(xᵢ - c)ᵀ."""
    offsets = jax.vmap(space.difference, (0, None))(points, centre)
    return (weights[:, None] * offsets).T @ offsets
