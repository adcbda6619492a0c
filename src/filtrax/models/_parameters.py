"""Numbers of a motion or a sensor: learned, given, or a state that walks."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from filtrax._checks import as_float
from filtrax._given import Given
from filtrax.models._noise import tied_noise
from filtrax.noise import AbstractNoise, FixedNoise, constant_noise


class RandomWalk(eqx.Module):
    """A number that is estimated as a component of the state, because it changes slowly.

        b_t = b_{t-1} + q,   q ~ N(0, σ² Δt)

    **Arguments:**

    - `std`: σ, the standard deviation of its change in one second.
    """

    noise: AbstractNoise

    def __init__(self, std: Any):
        self.noise = as_noise("std", std, 1)


def parameter(name: str, value: Any, shapes: Sequence[tuple[int, ...]]) -> Any:
    """A number that training may change, or one that is given, of one of these shapes."""
    if isinstance(value, RandomWalk):
        return value
    array = value if isinstance(value, Given) else as_float(value)
    shape = jnp.shape(array.value if isinstance(array, Given) else array)
    if shape not in shapes:
        wanted = " or ".join(str(s) for s in shapes)
        raise ValueError(f"`{name}` must have shape {wanted}, got {shape}.")
    return array


def optional(name: str, value: Any, shapes: Sequence[tuple[int, ...]]) -> Any:
    """The same, or None for a number that is not there."""
    return None if value is None else parameter(name, value, shapes)


def as_noise(name: str, std: Any, size: int) -> AbstractNoise:
    """Noise of one standard deviation for all components, of one for each, or noise itself.

    `filtrax.given(std)` makes it noise that is not trained.
    """
    if isinstance(std, AbstractNoise):
        if std.size != size:
            raise ValueError(f"`{name}` must be noise of size {size}, got one of size {std.size}.")
        return std
    if isinstance(std, Given):
        return FixedNoise(as_noise(name, std.value, size))
    values = np.asarray(std, float)
    if values.shape not in ((), (size,)):
        raise ValueError(
            f"`{name}` must be one standard deviation or {size}, got shape {values.shape}."
        )
    if values.ndim == 1:
        return constant_noise(values)
    return constant_noise(values[None]) if size == 1 else tied_noise(values[None], (0,) * size)
