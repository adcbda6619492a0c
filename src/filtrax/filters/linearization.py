"""Linear relations between states and measurements near a belief, for filters and smoothers."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Inputs, Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractBayesFilter, Predicted
from filtrax.linalg import product
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class Transition(eqx.Module):
    """The joint distribution of two states, one step apart.

        x = μ + M ξ,   x' = μ̂ + D ξ + N w,   ξ, w ~ N(0, I)

    **Attributes:**

    - `mean`: μ̂.
    - `slope`: D, with a column for each column of the factor M of the belief.
    - `noise`: N, a factor of all that ξ does not explain.
    """

    mean: State
    slope: Float[Array, "x _"]
    noise: Float[Array, "x _"]

    def predicted(self) -> Gaussian:
        """The distribution of x'."""
        return Gaussian.of_factor(self.mean, jnp.concatenate([self.slope, self.noise], axis=1))


class Affine(eqx.Module):
    """A function that is linear about a point, with noise: y = v + J (x - p) + N w.

    **Attributes:**

    - `point`, `value`: p and v.
    - `slope`: J.
    - `noise`: N, a factor of a covariance.
    """

    point: Float[Array, "*b x"]
    value: Float[Array, "*b y"]
    slope: Float[Array, "*b y x"]
    noise: Float[Array, "*b y _"]

    def image(self, belief: Gaussian, space: AbstractSpace, image_space: AbstractSpace) -> State:
        """The image of the mean of a belief."""
        offset = product(self.slope, space.difference(belief.mean, self.point))
        return image_space.add(self.value, offset)

    def transition(self, belief: Gaussian, space: AbstractSpace) -> Transition:
        """The step from a belief, for a function that maps states to states."""
        mean = space.inside(self.image(belief, space, space))
        return Transition(mean, product(self.slope, belief.factor), self.noise)


class AbstractKalmanFilter(AbstractBayesFilter[Gaussian, Predicted]):
    """A filter whose beliefs are Gaussian, and which treats models as linear near a belief."""

    along_root: ClassVar[bool]
    """True if the result depends on which factor of a covariance it is computed from, because
    points lie along its columns."""

    @abc.abstractmethod
    def transition(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Transition:
        """The step from a belief, of which `predict` returns the distribution of the end."""

    @abc.abstractmethod
    def affine_process(
        self, model: StateSpaceModel, about: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Affine:
        """The process as a linear function about a belief, with its noise."""

    @abc.abstractmethod
    def affine_observation(
        self,
        model: StateSpaceModel,
        about: Gaussian,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> Affine:
        """The observation as a linear function about a belief, with the noise of a measurement."""
