"""Losses: one belief and one true state in, a number out.

All take `(belief, state, space, labelled)`; `labelled` says which components of the state are
known and leaves out the others exactly. Objectives average them over the labelled steps.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from filtrax._types import Scalar, State
from filtrax.beliefs import AbstractBelief, GaussianMixture, Particles
from filtrax.linalg import gaussian_log_density, precise
from filtrax.spaces import AbstractSpace

Labelled: TypeAlias = Bool[Array, " x"] | None

Loss = Callable[[AbstractBelief, State, AbstractSpace, Labelled], Scalar]


def nll(
    belief: AbstractBelief, state: State, space: AbstractSpace, labelled: Labelled = None
) -> Scalar:
    """½ [dᵀ Σ⁻¹ d + ln |Σ| + n ln 2π] with d = x - μ: the negative log density of the moments."""
    moments = belief.moments(space)
    difference = space.difference(state, moments.mean)
    return -moments.log_density(difference, labelled)


@precise
def mixture_nll(
    belief: AbstractBelief, state: State, space: AbstractSpace, labelled: Labelled = None
) -> Scalar:
    """-ln Σ wᵢ N(x; μᵢ, Σᵢ): the density of a `GaussianMixture`, or of particles as a mixture.

    Particles have the kernel they carry: μᵢ = xᵢ and Σᵢ = F Fᵀ. Summed in logarithms, so that
    value and gradient are finite far from all means.
    """
    if isinstance(belief, GaussianMixture):
        return -belief.log_density(state, space, labelled)
    if not isinstance(belief, Particles):
        raise TypeError(
            f"`mixture_nll` reads particles or modes as a mixture, got a {type(belief).__name__}. "
            "Use `nll` for beliefs that are Gaussian."
        )
    differences = jax.vmap(space.difference, (None, 0))(state, belief.states)
    log_density = jax.vmap(gaussian_log_density, (0, None, None))
    log_densities = log_density(differences, belief.kernel, labelled)
    return -jax.nn.logsumexp(belief.log_weights + log_densities)


def kernel_nll(
    belief: AbstractBelief, state: State, space: AbstractSpace, labelled: Labelled = None
) -> Scalar:
    """As `nll`, with the moments of the mixture that particles are with the kernel they carry.

    The kernel bounds the loss where a few particles have all the weight; without it the loss of
    such a belief, and training with it, diverges.
    """
    if not isinstance(belief, Particles):
        raise TypeError(
            f"`kernel_nll` reads particles as a mixture, got a {type(belief).__name__}. "
            "Use `nll` for beliefs that are Gaussian."
        )
    return nll(belief.kernel_moments(space), state, space, labelled)


@precise
def squared_error(
    belief: AbstractBelief, state: State, space: AbstractSpace, labelled: Labelled = None
) -> Scalar:
    """Σ (x - μ)², summed over components in natural units."""
    difference = space.difference(state, belief.moments(space).mean)
    if labelled is not None:
        difference = jnp.where(labelled, difference, 0.0)
    return difference @ difference


def mixed(
    belief: AbstractBelief,
    state: State,
    space: AbstractSpace,
    labelled: Labelled = None,
    *,
    density: Loss = nll,
    share: float | Array = 0.5,
) -> Scalar:
    """s · squared error + (1 - s) · negative log density: with s = ½ the paper's L_mix.

    `functools.partial(mixed, density=mixture_nll)` is the one for mixtures.
    """
    error = squared_error(belief, state, space, labelled)
    share = jnp.asarray(share, error.dtype)
    return share * error + (1 - share) * density(belief, state, space, labelled)
