"""The interface of smoothers, and which of them a filter has."""

import abc
import dataclasses
import functools
from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Inputs, Key, Keys, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractFilter, Belief, Info
from filtrax.sensors import Measurement
from filtrax.state_space import StateSpaceModel


class Sequence(eqx.Module):
    """Measurements, inputs and keys of all steps of a sequence, with leading time axes."""

    measurements: Measurement
    inputs: Inputs
    keys: Keys | None

    def first(self) -> "Sequence":
        """The first step."""
        return jax.tree.map(lambda leaf: leaf[0], self)


class Smoothed(eqx.Module, Generic[Belief]):
    """The result of smoothing a sequence.

    **Attributes:**

    - `beliefs`: about the state of each step given all readings, with a leading time axis.
    - `initial`: the same about the state before the first step, which the prior is about.
    - `cross_covariances`: Cov(x_{t-1}, x_t) given all readings, entry t for the pair that ends in
      step t; the first pair begins with the initial state. They are covariances of tangents, as
      the space subtracts.
    - `info`: diagnostics of the filter's steps; `finite` says of the smoothed belief, too.
    - `log_likelihood`: ln p(z_1, ..., z_T), as the filter computes it.
    - `frozen`: which steps used gains of the step before them, from smoothers that stop computing
      gains once they no longer change; None from others.
    """

    beliefs: Belief
    initial: Belief
    cross_covariances: Float[Array, "*t x x"]
    info: Info
    log_likelihood: Float[Array, "*b"] | None
    frozen: Array | None = None


class Paths(eqx.Module):
    """Draws of whole trajectories, with a leading axis.

    **Attributes:**

    - `initial`: the state before the first step.
    - `states`: the states of all steps.
    """

    initial: Float[Array, "*n x"]
    states: Float[Array, "*n t x"]


class AbstractSmoother(eqx.Module, Generic[Belief]):
    """Turns measurements of a sequence into beliefs given all of them.

    A smoother makes a forward pass, which is the filter's, and keeps what leads back. `smooth` and
    `draw` use it.
    """

    @abc.abstractmethod
    def forward(
        self,
        filt: Any,
        model: StateSpaceModel,
        prior: Gaussian,
        sequence: Sequence,
        *,
        key: Key | None,
        recompute: bool | None,
    ) -> Any:
        """Filters, and keeps what `smooth` and `draw` need."""

    @abc.abstractmethod
    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Belief]:
        """The beliefs given all readings, from what `forward` returned."""

    @abc.abstractmethod
    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        """One trajectory given all readings: the initial state, and the others."""


def smoothed(
    beliefs: Any, initial: Any, cross_covariances: Array, info: Info, *, frozen: Any = None
) -> Smoothed:
    """The result with the sum of all likelihoods, and with beliefs that count as finite or not."""
    moments = (beliefs, initial, cross_covariances)
    arrays = filter(eqx.is_inexact_array, jax.tree.leaves((beliefs, cross_covariances)))
    # A weight may be zero, its logarithm -∞.
    fine = [(~jnp.isnan(a) & (a < jnp.inf)).reshape(len(a), -1).all(1) for a in arrays]
    finite = info.finite & jnp.stack(fine).all(0)
    info = dataclasses.replace(info, finite=finite)
    total = None if info.log_likelihood is None else info.log_likelihood.sum()
    return Smoothed(*moments, info, total, frozen)


@functools.singledispatch
def smoother_of(filt: AbstractFilter) -> AbstractSmoother:
    """The smoother that `smooth` uses for a filter where it is told none.

    `smoother_of.register(MyFilter)` gives one to a filter of one's own.
    """
    names = sorted(cls.__name__ for cls in smoother_of.registry if cls is not object)
    raise TypeError(
        f"{type(filt).__name__} has no smoother. The filters that have one are "
        f"{', '.join(names)}, and classes made of them."
    )


def require_filter(filt: Any, kind: type, smoother: Any) -> None:
    """Raises unless a filter is of the kind that a smoother works with."""
    if not isinstance(filt, kind):
        raise TypeError(
            f"{type(smoother).__name__} smooths a filter that is an {kind.__name__}, got "
            f"{type(filt).__name__}. Leave `smoother` out to use the filter's own."
        )
