"""Noise that grows with time or distance, and noise with one number for several components."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import as_float
from filtrax._types import Inputs, Scalar, State
from filtrax.noise import AbstractNoise, constant_noise


class TiedNoise(AbstractNoise):
    """Independent components of which some share one standard deviation.

    **Attributes:**

    - `noise`: the standard deviations that there are.
    - `groups`: for each component the number of the one that it has.
    """

    noise: AbstractNoise
    groups: tuple[int, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        return len(self.groups)

    @property
    def std(self) -> Any:
        """Standard deviations of all components."""
        return getattr(self.noise, "std")[np.asarray(self.groups)]  # noqa: B009

    def __call__(self, *features: Any) -> Float[Array, "x x"]:
        return jnp.diag(jnp.diagonal(self.noise(*features))[np.asarray(self.groups)])


def tied_noise(start: Any, groups: Sequence[int], floor: Any = 0.0) -> TiedNoise:
    """Constant noise of components that share standard deviations.

    `start` has the standard deviations, and `groups` the number of one of them for each component:
    `tied_noise([0.1, 0.02], (0, 0, 1))` is 0.1 for two components and 0.02 for a third.
    """
    groups = tuple(int(group) for group in groups)
    start = as_float(start)
    if start.ndim != 1 or not groups or sorted(set(groups)) != list(range(start.size)):
        raise ValueError(
            "`groups` must name each of the standard deviations in `start` by its number, got "
            f"groups {groups} for {start.size} numbers."
        )
    return TiedNoise(constant_noise(start, floor), groups)


class Accumulated(AbstractNoise):
    """Process noise whose variance grows in proportion to an amount of time or distance.

    Zero amount gives zero noise, with a gradient of zero by the amount.

    **Attributes:**

    - `noise`: the noise of one unit.
    - `amount`: `amount(state, inputs)`, a number that is not negative.
    """

    noise: AbstractNoise
    amount: Callable[[State, Inputs], Scalar]

    @property
    def size(self) -> int:
        return self.noise.size

    @property
    def std(self) -> Any:
        """Standard deviations after one unit."""
        return getattr(self.noise, "std", None)

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "x _"]:
        return safe_root(self.amount(state, inputs)) * self.noise(state, inputs)


def per_second(std: Any, time: str = "dt") -> Accumulated:
    """Process noise with standard deviations after one second, which grow with the root of time.

    `std` is a vector of standard deviations, or noise; `time` names the seconds in the inputs.
    """
    return Accumulated(_as_noise(std), _Entry(time))


def per_metre(std: Any, distance: str = "distance") -> Accumulated:
    """Process noise with standard deviations after one metre, which grow with the root of distance.

    `std` is a vector of standard deviations, or noise; `distance` names the metres in the inputs.
    """
    return Accumulated(_as_noise(std), _Entry(distance))


class _Entry(eqx.Module):
    """The size of a named entry of the inputs."""

    name: str = eqx.field(static=True)

    def __call__(self, state: State, inputs: Inputs) -> Scalar:
        del state
        return jnp.abs(inputs[self.name])


def safe_root(amount: Scalar) -> Scalar:
    """The square root, zero with a gradient of zero at zero."""
    return jnp.where(amount > 0, jnp.sqrt(jnp.where(amount > 0, amount, 1.0)), 0.0)


def _as_noise(std: Any) -> AbstractNoise:
    return std if isinstance(std, AbstractNoise) else constant_noise(std)
