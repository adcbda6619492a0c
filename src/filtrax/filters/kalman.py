"""Linearization, and the update by a measurement, which all Kalman filters share."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Observation, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite, resolved
from filtrax.linalg import array_update, inverse, log_determinant, product, squared, with_ones
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace


def linearize(
    function: Callable[[State], Float[Array, " y"]],
    point: State,
    space: AbstractSpace,
    image_space: AbstractSpace,
) -> tuple[Float[Array, " y"], Float[Array, "y x"]]:
    """The value f(x) and the Jacobian ∂(f(x + ξ) - f(x))/∂ξ at ξ = 0, as the spaces add."""

    def moved(tangent):
        image = function(space.add(point, tangent))
        return image_space.difference(image, jax.lax.stop_gradient(image)), image

    jacobian, value = jax.jacfwd(moved, has_aux=True)(jnp.zeros_like(point))
    return value, jacobian


def condition(
    predicted: Gaussian,
    innovation: Observation,
    image: Float[Array, "z x"],
    measurement: Measurement,
    space: AbstractSpace,
) -> tuple[Gaussian, Info]:
    """Updates N(μ̂, P) with P = M Mᵀ by the innovation d = z - ẑ of z = H x + noise.

        S = H P Hᵀ + R,   K = P Hᵀ S⁻¹,   μ = μ̂ + K d,   P⁺ = P - K S Kᵀ

    From the image A = H M of the factor, the orthogonal transformation of `array_update` makes X, Y
    and L with S = X Xᵀ, P Hᵀ = Y Xᵀ and P⁺ = L Lᵀ. So K = Y X⁻¹, and P⁺ is never subtracted from
    anything. Rows of components that were not seen are zero, which makes the update that of the
    seen ones.
    """
    seen = measurement.seen()
    noise = jnp.where(seen[:, None], measurement.factor, 0.0)
    image = jnp.where(seen[:, None], image, 0.0)
    d = jnp.where(seen, innovation, 0.0)

    X, Y, L = array_update(noise, image, predicted.factor)
    X = with_ones(X, seen)
    inverted = inverse(X)
    white = product(inverted, d)
    mean = space.inside(space.add(predicted.mean, product(Y, white)))

    constant = math.log(2 * math.pi) * seen.sum().astype(d.dtype)
    log_likelihood = -0.5 * ((white**2).sum() + log_determinant(X, inverted) + constant)
    belief = Gaussian.of_factor(mean, L)
    return belief, Info(
        finite=all_finite(belief),
        log_likelihood=log_likelihood,
        innovation=d,
        innovation_covariance=squared(X),
        gain=product(Y, inverted),
        resolved=resolved(mean, L, predicted.factor),
    )
