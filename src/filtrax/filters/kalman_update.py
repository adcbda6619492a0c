"""The update that all Kalman filters share."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Observation, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite
from filtrax.linalg import (
    cholesky,
    cholesky_solve,
    gaussian_log_density,
    marginal,
    precise,
    product,
    symmetrize,
)


@precise
def condition(
    matrix: Float[Array, "z x"],
    prior: Float[Array, "x x"],
    noise: Float[Array, "z z"],
    seen: Bool[Array, " z"],
) -> tuple[Float[Array, "x z"], Float[Array, "x x"], Float[Array, "z z"]]:
    """Gain, updated covariance and innovation covariance of z = H x + noise, for what was seen.

        S = H Σ̂ Hᵀ + R,   K = Σ̂ Hᵀ S⁻¹,   Σ = (I - K H) Σ̂ (I - K H)ᵀ + K R Kᵀ

    The last is Joseph's form: a sum of squares, which stays positive definite in float32 where
    the shorter (I - K H) Σ̂ does not (Bucy & Joseph 1968). A row of H and R that was not seen is
    replaced by an observation of nothing, which makes the update that of the seen components.
    """
    matrix = jnp.where(seen[:, None], matrix, 0.0)
    noise = marginal(noise, seen)
    innovation_covariance = symmetrize(product(matrix, prior, matrix.T) + noise)
    gain = cholesky_solve(cholesky(innovation_covariance), product(matrix, prior)).T
    return gain, joseph(gain, matrix, prior, noise), innovation_covariance


@precise
def joseph(
    gain: Float[Array, "x z"],
    matrix: Float[Array, "z x"],
    prior: Float[Array, "x x"],
    noise: Float[Array, "z z"],
) -> Float[Array, "x x"]:
    """(I - K H) Σ̂ (I - K H)ᵀ + K R Kᵀ, the covariance of the updated estimate for any gain K."""
    kept = jnp.eye(prior.shape[0], dtype=prior.dtype) - product(gain, matrix)
    return symmetrize(product(kept, prior, kept.T) + product(gain, noise, gain.T))


def updated(
    mean: State,
    covariance: Float[Array, "x x"],
    innovation: Observation,
    innovation_covariance: Float[Array, "z z"],
    gain: Float[Array, "x z"],
    seen: Bool[Array, " z"],
) -> tuple[Gaussian, Info]:
    """The updated belief and the diagnostics of the step that led to it."""
    belief = Gaussian(mean, covariance)
    log_likelihood = gaussian_log_density(innovation, innovation_covariance, seen)
    finite = all_finite(belief)
    return belief, Info(finite, log_likelihood, innovation, innovation_covariance, gain)
