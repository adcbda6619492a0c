"""Distances between estimates and the truth."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._types import Scalar
from filtrax.beliefs import AbstractBelief
from filtrax.losses import Loss, mixture_nll, nll
from filtrax.metrics.steps import by_component, checked_states, masked_mean, over_steps
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.trajectory import known_states


@eqx.filter_jit
def mean_distance(
    beliefs: AbstractBelief,
    states: Any,
    space: AbstractSpace,
    *,
    components: Sequence[str] | None = None,
    labelled: Any = None,
) -> Scalar:
    """The mean Euclidean distance ‖x - μ‖ over the named components (all by default).

    The paper's tables call this RMSE, though no square is averaged. Steps count in which any of
    these components is labelled.
    """
    states, labels = checked_states(states, labelled, space)
    if components is not None:
        names = space.names_of(states.shape[-1])
        unknown = [name for name in components if name not in names]
        check_known("`components` must be named as in the space", unknown, names)
        labels = labels & np.broadcast_to(np.isin(names, components), labels.shape)
    squares = jnp.where(labels, _errors(beliefs, states, space) ** 2, 0.0).sum(-1)
    return masked_mean(jnp.sqrt(squares), labels.any(-1))


def component_errors(
    beliefs: AbstractBelief, states: Any, space: AbstractSpace, *, labelled: Any = None
) -> dict[str, Scalar]:
    """The mean absolute error |xⱼ - μⱼ| of each component, by name."""
    states, labels = checked_states(states, labelled, space)
    return by_component(jnp.abs(_errors(beliefs, states, space)), labels, space)


@eqx.filter_jit
def sensor_error(
    measurements: Measurement, expected: Any, space: AbstractSpace, *, observed: Any = None
) -> Scalar:
    """The mean distance of the sensor's values from what it should have seen, h(x).

    Only what was observed counts: by the measurements themselves, and by `observed`.
    """
    expected, seen = checked_states(expected, observed, space, name="expected")
    _, reported = known_states(expected, jnp.asarray(measurements.observed))
    errors = over_steps(space.difference, measurements.value, expected)
    seen = seen & reported
    squares = jnp.where(seen, errors**2, 0.0).sum(-1)
    return masked_mean(jnp.sqrt(squares), seen.any(-1))


@eqx.filter_jit
def mean_nll(
    beliefs: AbstractBelief, states: Any, space: AbstractSpace, *, labelled: Any = None
) -> Scalar:
    """The mean negative log density of the true states under the beliefs' moments."""
    return _mean_loss(nll, beliefs, states, space, labelled)


@eqx.filter_jit
def mean_mixture_nll(
    beliefs: AbstractBelief, states: Any, space: AbstractSpace, *, labelled: Any = None
) -> Scalar:
    """The mean negative log density of the true states under beliefs read as mixtures."""
    return _mean_loss(mixture_nll, beliefs, states, space, labelled)


def _mean_loss(
    loss: Loss, beliefs: AbstractBelief, states: Any, space: AbstractSpace, labelled: Any
) -> Scalar:
    states, labels = checked_states(states, labelled, space)

    def of_step(state, belief, labels):
        return loss(belief, state, space, labels)

    return masked_mean(over_steps(of_step, states, beliefs, labels), labels.any(-1))


@eqx.filter_jit
def _errors(
    beliefs: AbstractBelief, states: Float[Array, "*b x"], space: AbstractSpace
) -> Float[Array, "*b x"]:
    def of_step(state, belief):
        return space.difference(state, belief.moments(space).mean)

    return over_steps(of_step, states, beliefs)
