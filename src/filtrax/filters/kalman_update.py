"""The update that all Kalman filters share."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Observation, Scalar, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite
from filtrax.linalg import (
    cholesky,
    inverse_lower,
    log_determinant,
    marginal,
    product,
    square_root,
    symmetrize,
)


class Conditioned(NamedTuple):
    """What an observation says of a state: a new mean and covariance, and how likely it was.

    **Attributes:**

    - `shift`: K d, by which the mean moves.
    - `covariance`: that of the updated state.
    - `innovation_covariance`, `gain`: S and K.
    - `log_likelihood`: ln N(d; 0, S) of the components that were seen.
    """

    shift: State
    covariance: Float[Array, "x x"]
    innovation_covariance: Float[Array, "z z"]
    gain: Float[Array, "x z"]
    log_likelihood: Scalar


def condition(
    innovation: Observation,
    matrix: Float[Array, "z x"],
    prior: Float[Array, "x x"] | None,
    noise: Float[Array, "z z"],
    seen: Bool[Array, " z"],
) -> Conditioned:
    """What the innovation d = z - ẑ of z = H x + noise says, for the components that were seen.

        S = H Σ̂ Hᵀ + R,   K = Σ̂ Hᵀ S⁻¹,   Σ = (I - K H) Σ̂ (I - K H)ᵀ + K R Kᵀ

    The last is Joseph's form: a sum of squares, which stays positive definite in float32 where
    the shorter (I - K H) Σ̂ does not (Bucy & Joseph 1968). A row of H and R that was not seen is
    replaced by an observation of nothing, which makes the update that of the seen components.
    No `prior` covariance Σ̂ is the identity.
    """
    innovation = jnp.where(seen, innovation, 0.0)
    matrix = jnp.where(seen[:, None], matrix, 0.0)
    found = _condition(innovation, matrix, prior, marginal(noise, seen))
    constant = 0.5 * math.log(2 * math.pi) * seen.sum().astype(innovation.dtype)
    return found._replace(log_likelihood=found.log_likelihood - constant)


def joseph(
    gain: Float[Array, "x z"],
    matrix: Float[Array, "z x"],
    prior: Float[Array, "x x"] | None,
    noise: Float[Array, "z z"],
) -> Float[Array, "x x"]:
    """(I - K H) Σ̂ (I - K H)ᵀ + K R Kᵀ, the covariance of the updated estimate for any gain K."""
    kept = _kept(gain, matrix)
    return symmetrize(product(_times(kept, prior), kept.T) + product(gain, noise, gain.T))


def updated(
    mean: State, innovation: Observation, first: Conditioned, last: Conditioned
) -> tuple[Gaussian, Info]:
    """The updated belief and the diagnostics of the step that led to it.

    Diagnostics of the innovation are those of the first of several linearizations.
    """
    belief = Gaussian(mean, last.covariance)
    # Finite numbers may be no covariance. What has a square root is one, singular ones included.
    root = square_root(jax.lax.stop_gradient(belief.covariance))
    diagnostics = first.log_likelihood, innovation, first.innovation_covariance, last.gain
    return belief, Info(all_finite((belief, root)), *diagnostics)


class _Known(NamedTuple):
    """What the derivatives of an update are made of; S⁻¹ is the `precision`, w = S⁻¹ d."""

    matrix: Array
    prior: Array | None
    precision: Array
    weighted: Array
    found: Conditioned


def _times(matrix: Array, prior: Array | None) -> Array:
    return matrix if prior is None else product(matrix, prior)


def _kept(gain: Array, matrix: Array) -> Array:
    """I - K H."""
    return jnp.eye(gain.shape[0], dtype=gain.dtype) - product(gain, matrix)


@jax.custom_jvp
def _condition(innovation: Array, matrix: Array, prior: Array | None, noise: Array) -> Conditioned:
    return _solve(innovation, matrix, prior, noise).found


def _solve(innovation: Array, matrix: Array, prior: Array | None, noise: Array) -> _Known:
    cross = _times(matrix, prior)
    innovation_covariance = symmetrize(product(cross, matrix.T) + noise)
    factor = cholesky(innovation_covariance)
    inverse = inverse_lower(factor)
    white = product(inverse, innovation)
    gain = product(product(inverse, cross).T, inverse)
    found = Conditioned(
        product(gain, innovation),
        joseph(gain, matrix, prior, noise),
        innovation_covariance,
        gain,
        -0.5 * ((white**2).sum() + log_determinant(factor)),
    )
    precision, weighted = product(inverse.T, inverse), product(inverse.T, white)
    return _Known(matrix, prior, precision, weighted, found)


def _condition_jvp(primals: Any, tangents: Any) -> tuple[Conditioned, Conditioned]:
    """The derivatives in closed form.

    Joseph's form is smallest where K is optimal, so a change of K does not change Σ, and
    (I - K H) Σ̂ = Σ. No factorization is differentiated, and where no derivative of S or K is
    asked for, a backward pass is a handful of products.
    """
    known = _solve(*primals)
    rules = _by_innovation, _by_matrix, _by_prior, _by_noise
    pairs = zip(rules, tangents, strict=True)
    changes = [
        rule(known, change)
        for rule, change in pairs
        if change is not None and not isinstance(change, SymbolicZero)
    ]
    return known.found, jax.tree.map(lambda *each: sum(each[1:], each[0]), *changes)


_condition.defjvp(_condition_jvp, symbolic_zeros=True)


def _by_innovation(known: _Known, change: Array) -> Conditioned:
    """K dd for the shift, -wᵀ dd for the log likelihood."""
    found = known.found
    return Conditioned(
        product(found.gain, change),
        jnp.zeros_like(found.covariance),
        jnp.zeros_like(found.innovation_covariance),
        jnp.zeros_like(found.gain),
        -(known.weighted * change).sum(),
    )


def _by_matrix(known: _Known, change: Array) -> Conditioned:
    """With u = K d: Σ dHᵀ w - K dH u, -2 Σ dHᵀ Kᵀ, 2 dH Σ̂ Hᵀ (symmetric parts), (w uᵀ - Kᵀ) : dH.

    A backward pass multiplies by K from the right first, as for the noise, and so once for both.
    """
    (shift, covariance, _, gain, _), weighted = known.found, known.weighted
    change_cross = _times(change, known.prior)
    change_s = 2 * symmetrize(product(change_cross, known.matrix.T))
    return Conditioned(
        product(covariance, product(change.T, weighted)) - product(gain, product(change, shift)),
        symmetrize(product(product(covariance, -2 * change.T), gain.T)),
        change_s,
        product(change_cross.T - product(gain, change_s), known.precision),
        ((weighted[:, None] * shift[None, :] - gain.T) * change).sum(),
    )


def _by_prior(known: _Known, change: Array) -> Conditioned:
    """With v = Hᵀ w: (I - K H) dΣ̂ v, (I - K H) dΣ̂ (I - K H)ᵀ, H dΣ̂ Hᵀ, ½ (v vᵀ - Hᵀ S⁻¹ H) : dΣ̂."""
    matrix, gain = known.matrix, known.found.gain
    kept, back = _kept(gain, matrix), product(matrix.T, known.weighted)
    information = product(matrix.T, product(known.precision, matrix))
    change_cross = product(matrix, change)
    change_s = symmetrize(product(change_cross, matrix.T))
    return Conditioned(
        product(kept, product(change, back)),
        symmetrize(product(kept, change, kept.T)),
        change_s,
        product(change_cross.T - product(gain, change_s), known.precision),
        0.5 * ((back[:, None] * back[None, :] - information) * change).sum(),
    )


def _by_noise(known: _Known, change: Array) -> Conditioned:
    """-K dR w, K dR Kᵀ, dR, -K dR S⁻¹, ½ (w wᵀ - S⁻¹) : dR."""
    gain, weighted = known.found.gain, known.weighted
    change_s = symmetrize(change)
    across = product(gain, change_s)
    return Conditioned(
        -product(across, weighted),
        symmetrize(product(across, gain.T)),
        change_s,
        -product(across, known.precision),
        0.5 * ((weighted[:, None] * weighted[None, :] - known.precision) * change).sum(),
    )
