"""What a filter is."""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Control, Key
from filtrax.beliefs import AbstractBelief, Gaussian
from filtrax.fusion import joined
from filtrax.model import StateSpaceModel
from filtrax.sensors import Measurement

Belief = TypeVar("Belief", bound=AbstractBelief)
Predicted = TypeVar("Predicted")


class Info(eqx.Module):
    """Diagnostics of one step; what a filter does not have is None.

    **Attributes:**

    - `finite`: whether the belief is finite, and every covariance of a Kalman filter has a square
      root (`linalg.square_root`): a matrix of finite numbers that is indefinite is no covariance.
      One that is singular to rounding is, although it has no density. Nothing is repaired.
    - `log_likelihood`: ln p(z_t | z_1, ..., z_{t-1}), zero where nothing was observed.
    - `innovation`, `innovation_covariance`: z - ẑ and S. Components that were not observed have
      zero innovation and unit variance.
    - `gain`: the Kalman gain.
    - `effective_sample_size`: of the updated particles.
    - `novelty`: how unlike the training data the reading was, if the sensor says so.
    """

    finite: Bool[Array, "*b"]
    log_likelihood: Float[Array, "*b"] | None = None
    innovation: Float[Array, "*b z"] | None = None
    innovation_covariance: Float[Array, "*b z z"] | None = None
    gain: Float[Array, "*b x z"] | None = None
    effective_sample_size: Float[Array, "*b"] | None = None
    novelty: Float[Array, "*b"] | None = None


class AbstractFilter(eqx.Module, Generic[Belief]):
    """Turns a belief, a control and a measurement into the next belief."""

    @abc.abstractmethod
    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key) -> Belief:
        """The belief before the first step."""

    @abc.abstractmethod
    def step(
        self,
        model: StateSpaceModel,
        belief: Belief,
        control: Control,
        measurement: Measurement,
        *,
        key: Key,
    ) -> tuple[Belief, Info]:
        """The belief after a control has acted and a measurement was made."""


class AbstractBayesFilter(AbstractFilter[Belief], Generic[Belief, Predicted]):
    """A filter whose step is a prediction by the process and an update by the measurement."""

    @abc.abstractmethod
    def predict(
        self, model: StateSpaceModel, belief: Belief, control: Control, *, key: Key
    ) -> Predicted:
        """What is believed once the control has acted."""

    @abc.abstractmethod
    def update(
        self, model: StateSpaceModel, predicted: Predicted, measurement: Measurement, *, key: Key
    ) -> tuple[Belief, Info]:
        """What is believed once the measurement is known."""

    def step(
        self,
        model: StateSpaceModel,
        belief: Belief,
        control: Control,
        measurement: Measurement,
        *,
        key: Key,
    ) -> tuple[Belief, Info]:
        predict_key, update_key = jr.split(key)

        def both():
            predicted = self.predict(model, belief, control, key=predict_key)
            return self.update(model, predicted, measurement, key=update_key)

        return joined(both)


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number in a tree is finite."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
