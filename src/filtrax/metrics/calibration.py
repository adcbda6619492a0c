"""Calibration: how well the stated uncertainty agrees with the errors."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.beliefs import AbstractBelief
from filtrax.filters import Info
from filtrax.linalg import cholesky, inverse, marginal_root, precise, product
from filtrax.metrics.steps import by_component, checked_states, over_steps
from filtrax.spaces import AbstractSpace


@eqx.filter_jit
def nees(
    beliefs: AbstractBelief, states: Any, space: AbstractSpace, *, labelled: Any = None
) -> Float[Array, "*b"]:
    """The normalized estimation error squared (x - μ)ᵀ Σ⁻¹ (x - μ) of each step.

    For a consistent filter it is χ² distributed with as many degrees of freedom as components
    are labelled (Bar-Shalom, Li & Kirubarajan 2001, section 5.4).
    """
    states, labels = checked_states(states, labelled, space)

    def of_step(state, belief, labels):
        moments = belief.moments(space)
        difference = jnp.where(labels, space.difference(state, moments.mean), 0.0)
        return _squared_length(difference, marginal_root(moments.factor, labels))

    return over_steps(of_step, states, beliefs, labels)


@eqx.filter_jit
def nis(info: Info) -> Float[Array, "*b"]:
    """The normalized innovation squared (z - ẑ)ᵀ S⁻¹ (z - ẑ) of each step.

    It needs no ground truth, but a run with `info=True`. For a consistent filter it is distributed
    as χ² with as many degrees of freedom as components were observed.
    """
    if info.innovation is None or info.innovation_covariance is None:
        raise ValueError(
            "NIS needs a filter with innovations, run with `info=True`; a recurrent network has "
            "none."
        )

    def of_step(innovation, covariance):
        return _squared_length(innovation, cholesky(covariance))

    return over_steps(of_step, info.innovation, info.innovation_covariance)


def coverage(
    beliefs: AbstractBelief,
    states: Any,
    space: AbstractSpace,
    *,
    probability: float = 0.9,
    labelled: Any = None,
) -> dict[str, Scalar]:
    """The share of steps at which each component lies in its central credible interval, by name.

    For a calibrated filter each number is `probability`, up to chance.
    """
    if not 0 < probability < 1:
        raise ValueError(f"`probability` must lie between 0 and 1, got {probability}.")
    states, labels = checked_states(states, labelled, space)
    half_width = norm.ppf(0.5 + probability / 2).astype(states.dtype)
    return by_component(_inside(beliefs, states, space, half_width), labels, space)


@eqx.filter_jit
def _inside(
    beliefs: AbstractBelief, states: Float[Array, "*b x"], space: AbstractSpace, half_width: Scalar
) -> Float[Array, "*b x"]:
    """Ones where a state is within so many standard deviations of the mean, zeros elsewhere."""

    def of_step(state, belief):
        moments = belief.moments(space)
        stds = jnp.linalg.norm(moments.factor, axis=-1)
        return jnp.abs(space.difference(state, moments.mean)) <= half_width * stds

    return over_steps(of_step, states, beliefs).astype(states.dtype)


@precise
def _squared_length(difference: Float[Array, " n"], root: Float[Array, "n n"]) -> Scalar:
    """The squared length of a difference in units of the covariance L Lᵀ, by its root L."""
    white = product(inverse(root), difference)
    return white @ white
