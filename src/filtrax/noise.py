"""Noise models: covariances that are valid whatever the optimizer does.

A noise is a *head* (none for constant noise, or a network for heteroscedastic noise) times a
*shape* (diagonal or full) plus a *floor*:

    diagonal   C = diag((o + u b)² + ε)
    full       C = L Lᵀ + diag(ε),   L = lower triangle filled with o + u b

where o is the head's output (zero without a head), u b a learned offset that is set so that C
equals the start value while o is zero, and ε a fixed variance floor (Kloss et al. 2021,
section 4.2, after Haarnoja et al. 2016). The fixed unit u is the start value's standard deviation:
a step of an optimizer then changes noise in proportion to its start, whether it is 30 pixels or
a tenth of a degree.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig
from jaxtyping import Array, Float

from filtrax._checks import as_float, check_covariance, check_shape, is_concrete
from filtrax._given import given_field
from filtrax._types import Context, Inputs, State, bound
from filtrax.linalg import canonical, root_sum, square_root, squared
from filtrax.networks import Features

Head = Callable[..., Float[Array, " outputs"]]
"""Maps features to numbers that are zero at the start value."""


class AbstractNoise(eqx.Module):
    """Noise whose covariance may depend on features.

    The features of process noise are `(state, inputs)`, those of a sensor's noise come from its
    encoder.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of components."""

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Float[Array, "x _"]:
        """A factor F of the covariance F Fᵀ: F times white noise is a draw."""

    def covariance(self, *args: Any, **kwargs: Any) -> Float[Array, "x x"]:
        """The covariance F Fᵀ."""
        return squared(self(*args, **kwargs))


class DiagonalNoise(AbstractNoise):
    """Independent components: variance (o + u b)² + ε."""

    bias: Float[Array, " x"]
    unit: Float[Array, " x"] = given_field()
    floor: tuple[float, ...] = eqx.field(static=True)
    head: Head | None = None

    @property
    def size(self) -> int:
        return len(self.floor)

    @property
    def offset(self) -> Float[Array, " x"]:
        """u b, in natural units."""
        return self.unit * self.bias

    @property
    def std(self) -> Float[Array, " x"]:
        """Standard deviations in natural units; with a head, where it gives zero."""
        return jnp.abs(_floored(self.offset, self.floor))

    def __call__(self, *features: Any) -> Float[Array, "x x"]:
        return jnp.diag(_floored(_entries(self.head, self.offset, features), self.floor))

    def __pdoc__(self, **options: Any) -> Any:
        """The text that Equinox prints, also of a model that holds the noise."""
        del options
        return wadler_lindig.TextDoc(_described(self))


class FullNoise(AbstractNoise):
    """Correlated components: covariance L Lᵀ + diag(ε)."""

    bias: Float[Array, " entries"]
    unit: Float[Array, " entries"] = given_field()
    floor: tuple[float, ...] = eqx.field(static=True)
    head: Head | None = None

    @property
    def size(self) -> int:
        return len(self.floor)

    @property
    def offset(self) -> Float[Array, " entries"]:
        """u b, in natural units."""
        return self.unit * self.bias

    @property
    def std(self) -> Float[Array, " x"]:
        """Standard deviations in natural units; with a head, where it gives zero."""
        triangle = self._triangle(self.offset)
        return jnp.sqrt((triangle**2).sum(1) + np.asarray(self.floor, triangle.dtype))

    def __call__(self, *features: Any) -> Float[Array, "x x"]:
        triangle = self._triangle(_entries(self.head, self.offset, features))
        if not any(self.floor):
            return triangle
        floor = jnp.diag(jnp.sqrt(np.asarray(self.floor, triangle.dtype)))
        return canonical(root_sum(triangle, floor))

    def _triangle(self, entries: Float[Array, " entries"]) -> Float[Array, "x x"]:
        lower = np.tri(self.size, dtype=bool)
        place = np.cumsum(lower).reshape(lower.shape) - 1
        return jnp.where(lower, entries[place], 0.0)

    def __pdoc__(self, **options: Any) -> Any:
        """The text that Equinox prints, also of a model that holds the noise."""
        del options
        return wadler_lindig.TextDoc(_described(self))


class FixedNoise(AbstractNoise):
    """Noise that no training changes."""

    noise: AbstractNoise = given_field()

    def bind(self, context: Context) -> "FixedNoise":
        """The noise for one sequence."""
        return FixedNoise(bound(self.noise, context))

    @property
    def size(self) -> int:
        return self.noise.size

    @property
    def std(self) -> Any:
        """Standard deviations in natural units; None if the noise inside has none."""
        return getattr(self.noise, "std", None)

    def __call__(self, *features: Any) -> Float[Array, "x _"]:
        return jax.lax.stop_gradient(self.noise(*features))


class StateHead(eqx.Module):
    """A network of state and inputs as the head of process noise.

    It gives one number per component or per entry of the lower triangle, in the units of the
    network.
    """

    network: Callable[[Float[Array, " features"]], Float[Array, " outputs"]]
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " outputs"]:
        return _in_natural_units(self.network(self.features(state, inputs)), self.features)


class FeatureHead(eqx.Module):
    """A network of features as the value head of a sensor, or as the head of its noise.

    It gives one number per component or per entry of the lower triangle of the observation,
    in the units of the network, which `units` turns into natural ones.
    """

    network: Callable[[Float[Array, " features"]], Float[Array, " outputs"]]
    units: Features

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " outputs"]:
        return _in_natural_units(self.network(features), self.units)


def _in_natural_units(output: Array, units: Features) -> Array:
    """Outputs of a network, one per component or per entry of the lower triangle."""
    scale = np.asarray(units.scale, output.dtype)
    if scale.ndim == 0 or output.size == scale.size:
        return output * scale
    row, _ = np.tril_indices(scale.size)
    return output * scale[row]


def constant_noise(start: Any, floor: float | Sequence[float] = 0.0) -> DiagonalNoise | FullNoise:
    """Noise that does not depend on anything.

    `start` is a vector of standard deviations (diagonal noise) or a covariance matrix (full
    noise), reached exactly before training. `floor` is a variance, one number or one per
    component, that training cannot go below.
    """
    return _build(None, start, floor)


def heteroscedastic_noise(
    head: Head, start: Any, floor: float | Sequence[float] = 0.0
) -> DiagonalNoise | FullNoise:
    """Noise that depends on features through a network.

    `head` maps them to one number per component (`start` a vector of standard deviations)
    or to one per entry of the lower triangle, row by row (`start` a covariance matrix). The
    start value is reached exactly where the head gives zero, as
    `Perceptron(..., final_std=0.0)` does everywhere before training.
    """
    return _build(head, start, floor)


def head_size(start: Any) -> int:
    """The number of outputs of a head: one per component of the start value, or per entry of L."""
    size = np.shape(start)[0]
    return size if np.ndim(start) == 1 else size * (size + 1) // 2


def _build(head: Head | None, start: Any, floor: Any) -> DiagonalNoise | FullNoise:
    start = as_float(start)
    if start.ndim not in (1, 2):
        raise ValueError(
            "`start` must be a vector of standard deviations or a covariance matrix, "
            f"got an array of shape {start.shape}."
        )
    size = start.shape[-1]
    if np.shape(floor) not in ((), (size,)):
        raise ValueError(f"`floor` must be one number or {size}, got {floor}.")
    floors = np.broadcast_to(np.asarray(floor, float), (size,))
    if not (np.isfinite(floors).all() and (floors >= 0).all()):
        raise ValueError(f"`floor` must be finite and not negative, got {floor}.")
    floor_values = tuple(float(value) for value in floors)
    if start.ndim == 1:
        bias, unit = _in_units(_diagonal_offset(start, floors), start)
        return DiagonalNoise(bias, unit, floor_values, head)
    check_covariance("start", start)
    rows, _ = np.tril_indices(size)
    bias, unit = _in_units(_full_offset(start, floors), jnp.sqrt(jnp.diagonal(start))[rows])
    return FullNoise(bias, unit, floor_values, head)


def _in_units(offset: Array, unit: Array) -> tuple[Array, Array]:
    """An offset in units, and the units, with one in the place of zero."""
    unit = jax.lax.stop_gradient(jnp.where(unit > 0, unit, 1.0))
    return offset / unit, unit


def _diagonal_offset(std: Array, floor: np.ndarray) -> Array:
    if is_concrete(std):
        values = np.asarray(std, np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError(f"Standard deviations must be finite and not negative, got {values}.")
        # The square root of the floor, rounded to the precision of `std`, is not under the floor.
        rounding = 4 * float(jnp.finfo(std.dtype).eps) * floor
        if (values**2 - floor < -rounding).any():
            raise ValueError(
                f"`start` must not be under its floor: got standard deviations {values}, that is "
                f"variances {values**2}, but the variance floor is {floor}."
            )
    above = jnp.sqrt(jnp.maximum(std**2 - floor.astype(std.dtype), 0.0))
    return jnp.where(floor > 0, above, std)


def _full_offset(covariance: Array, floor: np.ndarray) -> Array:
    # The floor, rounded to the precision of the covariance, is not under the floor.
    rounding = 4 * float(jnp.finfo(covariance.dtype).eps) * floor
    diagonal = jnp.diagonal(covariance) - floor.astype(covariance.dtype)
    diagonal = jnp.where(jnp.abs(diagonal) <= rounding.astype(covariance.dtype), 0.0, diagonal)
    above = jnp.where(np.eye(len(floor), dtype=bool), jnp.diag(diagonal), covariance)
    try:
        check_covariance("start", above)
    except ValueError:
        raise ValueError(
            f"`start` must not be under its floor: the covariance\n{covariance}\nminus the "
            f"variance floor {floor} on its diagonal is not positive semi-definite."
        ) from None
    return jax.jit(square_root)(above)[np.tril_indices(len(floor))]


def _entries(head: Head | None, offset: Array, features: Sequence[Any]) -> Array:
    if head is None:
        return offset
    output = head(*features)
    check_shape("output of the noise head", output, offset.shape)
    return output + offset


def _floored(std: Array, floor: tuple[float, ...]) -> Array:
    """√(s² + ε) or, since that has no derivative at zero without a floor, s itself."""
    floors = np.asarray(floor, std.dtype)
    above = jnp.sqrt(std**2 + np.where(floors > 0, floors, 1))
    return jnp.where(floors > 0, above, std)


def _described(noise: "DiagonalNoise | FullNoise") -> str:
    """The noise by its standard deviations."""
    kind = type(noise).__name__
    if not is_concrete(noise.bias) or noise.bias.ndim != 1:
        return f"{kind}(size={noise.size})"
    std = ", ".join(f"{float(value):.4g}" for value in noise.std)
    return f"{kind}(std=[{std}]{'' if noise.head is None else f', head={noise.head}'})"
