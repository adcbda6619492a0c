"""Mapping over the leading axes of beliefs, and averages over what is labelled."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax._checks import as_float, check_plain, check_shape
from filtrax._types import Scalar
from filtrax.spaces import AbstractSpace
from filtrax.trajectory import known_states


def over_steps(function: Callable, states: Array, *arguments: Any) -> Any:
    """Maps a function of one step over all leading axes that the states have."""
    for argument in arguments:
        _check_axes(states, argument)
    for _ in range(states.ndim - 1):
        function = jax.vmap(function)
    return function(states, *arguments)


def _check_axes(states: Array, belief: Any) -> None:
    """Raises unless beliefs or measurements have the leading axes of the states."""
    for name in ("mean", "log_weights", "value"):
        array = getattr(belief, name, None) if isinstance(belief, eqx.Module) else None
        if array is not None and jnp.shape(array)[:-1] != states.shape[:-1]:
            raise ValueError(
                f"There must be one state for each belief, whose leading axes are "
                f"{jnp.shape(array)[:-1]}, got states of shape {states.shape}."
            )


def checked_states(
    states: Any, labelled: Any, space: AbstractSpace, *, name: str = "states"
) -> tuple[Array, Array]:
    """True states with zeros where they are not labelled, and the mask per component."""
    check_plain(name, states)
    states = as_float(states)
    if space.size is not None:
        check_shape(name, states, (*states.shape[:-1], space.size))
    return known_states(states, None if labelled is None else jnp.asarray(labelled))


def by_component(values: Array, labels: Array, space: AbstractSpace) -> dict[str, Scalar]:
    """The mean of each component over its labelled entries, in the order of the space."""
    names = space.names_of(values.shape[-1])
    return {name: masked_mean(values[..., j], labels[..., j]) for j, name in enumerate(names)}


def masked_mean(values: Array, mask: Array) -> Scalar:
    """The mean of the values where the mask is true; not a number where it never is."""
    total = jnp.where(mask, values, 0.0).sum()
    return total / mask.sum().astype(total.dtype)
