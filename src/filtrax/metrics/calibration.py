"""Whether the stated uncertainty is true."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from filtrax.arrays import Scalar
from filtrax.beliefs import AbstractBelief
from filtrax.filters import Info
from filtrax.linalg import cholesky, marginal, precise, solve_lower
from filtrax.metrics.steps import by_component, checked_states, over_steps
from filtrax.spaces import Space


@eqx.filter_jit
def nees(
    beliefs: AbstractBelief, states: Any, space: Space, *, labelled: Any = None
) -> Float[Array, "*b"]:
    """The normalized estimation error squared (x - μ)ᵀ Σ⁻¹ (x - μ) of each step.

    For a consistent filter it is χ² distributed with as many degrees of freedom as components
    are labelled (Bar-Shalom, Li & Kirubarajan 2001, section 5.4).
    """
    states, labels = checked_states(states, labelled, space)

    def one(state, belief, labels):
        moments = belief.moments(space)
        difference = jnp.where(labels, space.difference(state, moments.mean), 0.0)
        return _squared_length(difference, marginal(moments.covariance, labels))

    return over_steps(one, states, beliefs, labels)


@eqx.filter_jit
def nis(info: Info) -> Float[Array, "*b"]:
    """The normalized innovation squared (z - ẑ)ᵀ S⁻¹ (z - ẑ) of each step.

    It needs no ground truth. For a consistent filter it is χ² distributed with as many degrees
    of freedom as components were observed.
    """
    if info.innovation is None or info.innovation_covariance is None:
        raise ValueError("NIS needs a filter with innovations; a recurrent network has none.")
    return over_steps(_squared_length, info.innovation, info.innovation_covariance)


def coverage(
    beliefs: AbstractBelief,
    states: Any,
    space: Space,
    *,
    probability: float = 0.9,
    labelled: Any = None,
) -> dict[str, Scalar]:
    """How often each component lies in its central credible interval, by name.

    For a calibrated filter each number is `probability`, up to chance.
    """
    if not 0 < probability < 1:
        raise ValueError(f"`probability` must lie between 0 and 1, got {probability}.")
    states, labels = checked_states(states, labelled, space)
    half_width = norm.ppf(0.5 + probability / 2).astype(states.dtype)
    return by_component(_inside(beliefs, states, space, half_width), labels, space)


@eqx.filter_jit
def _inside(
    beliefs: AbstractBelief, states: Float[Array, "*b x"], space: Space, half_width: Scalar
) -> Float[Array, "*b x"]:
    """One where a state is within so many standard deviations of the mean, zero elsewhere."""

    def one(state, belief):
        moments = belief.moments(space)
        stds = jnp.sqrt(jnp.diagonal(moments.covariance))
        return jnp.abs(space.difference(state, moments.mean)) <= half_width * stds

    return over_steps(one, states, beliefs).astype(states.dtype)


@precise
def _squared_length(difference: Float[Array, " n"], covariance: Float[Array, "n n"]) -> Scalar:
    white = solve_lower(cholesky(covariance), difference)
    return white @ white
