"""Numbers that pictures show: moments of sequences, ellipses, and angles that go round."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from filtrax.beliefs import AbstractBelief, GaussianMixture, Particles
from filtrax.metrics.steps import over_steps
from filtrax.spaces import AbstractSpace, Space


@dataclasses.dataclass(frozen=True)
class Moments:
    """Means and covariances of the beliefs of one sequence."""

    mean: Float[np.ndarray, "t x"]
    covariance: Float[np.ndarray, "t x x"]

    @property
    def std(self) -> Float[np.ndarray, "t x"]:
        """The standard deviation of each component."""
        return stds_of(self.covariance)


def moments_of(beliefs: AbstractBelief, space: AbstractSpace) -> Moments:
    """The moments of the beliefs of one sequence."""
    weighted = isinstance(beliefs, Particles | GaussianMixture)
    lead = beliefs.log_weights.shape[:-1] if weighted else beliefs.moments(space).mean.shape[:-1]
    if len(lead) != 1:
        raise ValueError(
            "`beliefs` must be those of one sequence, with a time axis in front, got leading axes "
            f"{lead}. Take one of several by `jax.tree.map(lambda leaf: leaf[0], beliefs)`."
        )
    mean, factor = (np.asarray(part, float) for part in _moments(beliefs, space))
    return Moments(mean, factor @ np.swapaxes(factor, -1, -2))


@eqx.filter_jit
def _moments(beliefs: AbstractBelief, space: AbstractSpace) -> tuple[Array, Array]:
    moments = jax.vmap(lambda belief: belief.moments(space))(beliefs)
    return moments.mean, moments.factor


def masked(values: Any, name: str, mask: Any) -> Float[np.ndarray, "*b x"]:
    """Vectors, not a number where a mask per step, or per step and component, is false."""
    values = np.asarray(values, float)
    return np.where(by_component(name, mask, values.shape), values, np.nan)


def by_component(name: str, mask: Any, shape: tuple[int, ...]) -> Bool[np.ndarray, "*b x"]:
    """A mask per step, or per step and component, or none, with all of its axes."""
    if mask is None:
        return np.ones(shape, bool)
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape not in (shape, shape[:-1]):
        raise ValueError(
            f"`{name}` must be boolean, of shape {shape[:-1]} or {shape}, got {mask.dtype} of "
            f"shape {mask.shape}."
        )
    return np.broadcast_to(mask[..., None] if mask.ndim < len(shape) else mask, shape)


def known(
    states: Any, labelled: Any, shape: tuple[int, ...], name: str = "states"
) -> Float[np.ndarray, "t x"]:
    """True states of one sequence, not a number where they are not labelled."""
    if np.shape(states) != shape:
        raise ValueError(
            f"`{name}` must have shape {shape} like the means of the beliefs, got "
            f"{np.shape(states)}."
        )
    return masked(states, "labelled", labelled)


def differences(
    states: Float[np.ndarray, "t x"], means: Float[np.ndarray, "t x"], space: AbstractSpace
) -> Float[np.ndarray, "t x"]:
    """Errors as the space subtracts, not a number where a state is not known."""
    filled = np.where(np.isnan(states), means, states)
    errors = over_steps(space.difference, jnp.asarray(filled), jnp.asarray(means))
    return np.where(np.isnan(states), np.nan, np.asarray(errors, float))


def half_width(probability: float) -> float:
    """The half width of a normal variable's central interval, in standard deviations."""
    return float(special.ndtri(0.5 + probability / 2))


def stds_of(covariances: Float[np.ndarray, "*b x x"]) -> Float[np.ndarray, "*b x"]:
    """The standard deviations of covariances; zero where rounding made a variance negative."""
    return np.sqrt(np.maximum(np.diagonal(covariances, axis1=-2, axis2=-1), 0.0))


def ellipses(covariances: Float[np.ndarray, "*b 2 2"], scale: float) -> Float[np.ndarray, "*b 3"]:
    """Both semi-axes of ellipses of so many standard deviations, and the angle of the larger one.

    The closed form propagates what is not a number, where an eigenvalue routine may raise.
    """
    a, b, c = covariances[..., 0, 0], covariances[..., 0, 1], covariances[..., 1, 1]
    middle, spread = (a + c) / 2, np.hypot((a - c) / 2, b)
    major = scale * np.sqrt(np.maximum(middle + spread, 0.0))
    minor = scale * np.sqrt(np.maximum(middle - spread, 0.0))
    return np.stack([major, minor, np.arctan2(2 * b, a - c) / 2], axis=-1)


def ellipse_scale(probability: float) -> float:
    """The standard deviations of the ellipse that holds a probability."""
    return float(np.sqrt(special.chdtri(2, 1 - probability)))


def chi_square_band(degrees: Any, probability: float) -> tuple[Any, Any]:
    """The ends of the central interval of χ², for any degrees of freedom."""
    outside = (1 - probability) / 2
    return special.chdtri(degrees, 1 - outside), special.chdtri(degrees, outside)


def mean_and_band(
    values: Float[np.ndarray, "b t"],
    degrees: Int[np.ndarray, "b t"] | Float[np.ndarray, "b t"],
    probability: float,
    axis: int | None,
) -> tuple[Any, Any, Any]:
    """The mean of χ² variables where there are degrees of freedom, and the ends of its band.

    A sum of independent variables is χ² with the sum of their degrees (Bar-Shalom, Li & Kirubarajan
    2001, section 5.4). The results are not a number where nothing counts.
    """
    counted = degrees > 0
    count = counted.sum(axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(counted, values, 0.0).sum(axis) / count
        lower, upper = (end / count for end in chi_square_band(degrees.sum(axis), probability))
    return mean, lower, upper


def period_of(space: AbstractSpace, number: int) -> float | None:
    """The period of a component that is an angle, or None."""
    period = space.periods[number] if isinstance(space, Space) else None
    return float(period) if period is not None and float(period) > 0 else None


def turns(
    values: Float[np.ndarray, " t"], width: Float[np.ndarray, " t"], period: float | None
) -> list[tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]]:
    """Copies of a curve and the half width of its band, so that no copy jumps at the wrap.

    An angle goes on beyond the end of its interval, and a copy of it, shifted by a period, comes in
    at the other end. Each copy is not a number where it is far outside. Anything but an angle has
    one copy, itself.
    """
    finite = np.isfinite(values)
    if period is None or not finite.any():
        return [(values, width)]
    straight = values.copy()
    straight[finite] = np.unwrap(values[finite], period=period)
    width = np.minimum(width, period / 2)  # a wider band is all of the circle
    lowest, highest = np.nanmin(straight - width), np.nanmax(straight + width)
    first, last = (int(np.floor(end / period + 0.5)) for end in (lowest, highest))
    copies = []
    for number in range(first, last + 1):
        shifted = straight - number * period
        near = _with_neighbours(np.abs(shifted) - width <= period / 2)
        if near.any():
            copies.append((np.where(near, shifted, np.nan), width))
    return copies


def _with_neighbours(mask: Bool[np.ndarray, " t"]) -> Bool[np.ndarray, " t"]:
    """A mask with the steps before and after, so that lines go on to the edge."""
    wide = mask.copy()
    wide[1:] |= mask[:-1]
    wide[:-1] |= mask[1:]
    return wide
