"""What a task is: data, a model to train on them, and what to look at afterwards."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from filtrax.arrays import Key
from filtrax.model import StateSpaceModel
from filtrax.spaces import Space
from filtrax.trajectory import Trajectory

SPLITS = ("train", "validation", "test")


class Details(eqx.Module):
    """What is known of a data set besides its trajectories; what is not known is None.

    **Attributes:**

    - `visible`: how many pixels of the target each reading shows.
    - `process_covariance`: the true Q of each step.
    """

    visible: Int[Array, "*b t"] | None = None
    process_covariance: Float[Array, "*b t x x"] | None = None


class View(eqx.Module):
    """Where a state is in the image of its reading: pixel (column, row) = matrix x + offset."""

    matrix: Float[np.ndarray, "2 x"]
    offset: Float[np.ndarray, " 2"]


class AbstractTask(abc.ABC):
    """A data set with splits, the models for it, and how it is looked at.

    Tasks are frozen dataclasses: their fields are what a configuration file may set.
    """

    kind: ClassVar[str]
    """The name of the task in configuration files."""

    units: ClassVar[tuple[str, ...]]
    """Of the components of the state."""

    contrast: ClassVar[tuple[float, float, float]]
    """How far good and bad samples are from the true observation when a likelihood is pretrained:
    standard deviation of the good ones, mean and standard deviation of the bad ones."""

    model_settings: ClassVar[type]
    """The dataclass of what a configuration file may say of the model."""

    @property
    @abc.abstractmethod
    def state_space(self) -> Space:
        """What the components of the state mean."""

    @abc.abstractmethod
    def data(self, split: str) -> Trajectory:
        """The trajectories of "train", "validation" or "test", with a leading axis."""

    @abc.abstractmethod
    def details(self, data: Trajectory) -> Details:
        """What else is known of trajectories of this task."""

    @abc.abstractmethod
    def build(self, settings: Any, *, key: Key) -> StateSpaceModel:
        """A model with fresh networks, as the task's settings say."""

    @property
    def augment(self) -> Callable[[Trajectory, Key], Trajectory] | None:
        """What changes each sub-sequence that is drawn for training, or None.

        It must be hashable, because it is compiled in, and is called with one sub-sequence and a
        key. All members of an ensemble see what comes out. Validation and test know nothing of it.
        """
        return None

    @property
    def shape(self) -> "AbstractTask":
        """The task without what changes the numbers of its data, but not their shapes.

        Experiments whose tasks agree in it can train as one ensemble.
        """
        return self

    @abc.abstractmethod
    def perturbations(self) -> Float[np.ndarray, "p x"]:
        """What is added to the initial state in validation and test, one run for each."""

    @abc.abstractmethod
    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        """The images of one trajectory, to look at."""

    @abc.abstractmethod
    def view(self) -> View | None:
        """Where states are in these images, or None where images do not show it."""

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """What is reported of each sequence besides the metrics of all tasks.

        `differences` are those of the true states and the estimates, for the sequences of `data`
        on their last but two axes. A sequence that has no such number has NaN.
        """
        del data, differences
        return {}
