"""The interface of filters, and the diagnostics of their steps."""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from filtrax._types import Inputs, Key, State
from filtrax.beliefs import AbstractBelief, Gaussian
from filtrax.sensors import Measurement
from filtrax.state_space import StateSpaceModel

Belief = TypeVar("Belief", bound=AbstractBelief)
Predicted = TypeVar("Predicted")


class Info(eqx.Module):
    """Diagnostics of one step; what a filter does not have, or nobody asked for, is None.

    **Attributes:**

    - `finite`: whether the belief is finite. A covariance is a square and cannot be indefinite.
      Nothing is repaired.
    - `log_likelihood`: ln p(z_t | z_1, ..., z_{t-1}), zero where nothing was observed.
    - `novelty`: how unlike the training data the reading was, if the sensor says so.
    - `innovation`, `innovation_covariance`: z - ẑ and S. Components that were not observed have
      zero innovation and unit variance.
    - `gain`: the Kalman gain.
    - `effective_sample_size`: of the updated particles.
    - `resolved`: whether the mean is so near to zero that its rounding cannot reach a hundredth of
      its standard deviation; in single precision that is up to 10,000 deviations.
    """

    finite: Bool[Array, "*b"]
    log_likelihood: Float[Array, "*b"] | None = None
    novelty: Float[Array, "*b"] | None = None
    innovation: Float[Array, "*b z"] | None = None
    innovation_covariance: Float[Array, "*b z z"] | None = None
    gain: Float[Array, "*b x z"] | None = None
    effective_sample_size: Float[Array, "*b"] | None = None
    resolved: Bool[Array, "*b"] | None = None


class AbstractFilter(eqx.Module, Generic[Belief]):
    """Turns a belief, a measurement and what else is known at a step into the next belief."""

    @abc.abstractmethod
    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Belief:
        """The belief before the first step."""

    @abc.abstractmethod
    def step(
        self,
        model: StateSpaceModel,
        belief: Belief,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Belief, Info]:
        """The belief at the next step, at which a measurement was made."""


class AbstractBayesFilter(AbstractFilter[Belief], Generic[Belief, Predicted]):
    """A filter whose step is a prediction by the process and an update by the measurement."""

    @abc.abstractmethod
    def predict(
        self, model: StateSpaceModel, belief: Belief, inputs: Inputs, *, key: Key | None = None
    ) -> Predicted:
        """The belief at the next step, before its measurement is known."""

    @abc.abstractmethod
    def update(
        self,
        model: StateSpaceModel,
        predicted: Predicted,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Belief, Info]:
        """The belief once the measurement is known."""

    def step(
        self,
        model: StateSpaceModel,
        belief: Belief,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Belief, Info]:
        predict_key, update_key = (None, None) if key is None else jr.split(key)
        predicted = self.predict(model, belief, inputs, key=predict_key)
        return self.update(model, predicted, measurement, inputs, key=update_key)


def require_key(key: Key | None, drawing: Any) -> Key:
    """The key, or an error that names the object that draws random numbers."""
    if key is None:
        raise ValueError(f"{type(drawing).__name__} draws: give `key=`, as in `jax.random.key(0)`.")
    return key


def resolved(
    mean: State, factor: Float[Array, "x k"], predicted: Float[Array, "x n"]
) -> Bool[Array, ""]:
    """True if eight roundings of the mean are below a hundredth of its standard deviation.

    A number far from zero has coarse steps, ε |μᵢ|. Each step of a filter is rounded once or more
    often, and readings outweigh the error only over some steps: up to eight roundings were found
    in a mean (`benchmarks/single_precision.py`). So what readings say is lost, as for a position
    of 1000 km in single precision that is known to a metre. What is known exactly has no deviation
    to compare with: it is zero, or the rounding of that of the prediction.
    """
    coarse = 800 * float(jnp.finfo(mean.dtype).eps)
    variances, before = (factor**2).sum(-1), (predicted**2).sum(-1)
    fine = ((coarse * mean) ** 2 <= variances) | (variances <= coarse**2 * before)
    return fine.all()


def all_finite(tree: Any) -> Bool[Array, ""]:
    """True if every number in a tree is finite."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
