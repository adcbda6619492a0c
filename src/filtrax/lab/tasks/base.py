"""What a task is: data, a model to train on them, and what to look at afterwards."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from filtrax._types import Key
from filtrax.networks import Features
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel
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


class Sketch(eqx.Module):
    """What states look like on the plane of their first two components, in the units of these.

    **Attributes:**

    - `outlines`: of what is tracked, closed polygons, one for each state.
    - `arrows`: from where to where, some for each state. One that ends where it begins is a point.
    """

    outlines: Float[np.ndarray, "t points 2"]
    arrows: Float[np.ndarray, "t arrows 2 2"]


class AbstractTask(abc.ABC):
    """A data set with splits, the models for it, and how it is looked at.

    Tasks are frozen dataclasses: their fields are what a configuration file may set.
    """

    kind: ClassVar[str]
    """The name of the task in configuration files."""

    units: ClassVar[tuple[str, ...]]
    """Of the components of the state."""

    meanings: ClassVar[tuple[str, ...] | None] = None
    """What the components of the state are, in words, where their names do not say it."""

    position: ClassVar[tuple[int, ...]] = (0, 1)
    """Which components of an observation are where the target is: visible pixels tell of these."""

    full_view: ClassVar[int | None] = None
    """From so many visible pixels on the target counts as fully visible, if that is one number."""

    contrast: ClassVar[tuple[float, float, float]]
    """How far good and bad samples are from the true observation when a likelihood is pretrained:
    standard deviation of the good ones, mean and standard deviation of the bad ones."""

    contrast_units: ClassVar[tuple[float, ...] | None] = None
    """What these are counted in, one for each component of an observation; None: natural units."""

    sets_of_images: ClassVar[int] = 4
    """Of how many data sets models with a network for images should train together on a GPU. One,
    if a step of one model keeps it busy: several convolutions at once are slower than in turn."""

    model_settings: ClassVar[type]
    """The dataclass of what a configuration file may say of the model."""

    @property
    @abc.abstractmethod
    def state_space(self) -> Space:
        """What the components of the state mean."""

    @property
    @abc.abstractmethod
    def state_features(self) -> Features:
        """The part of a state that networks see, and the units in which they answer."""

    @property
    @abc.abstractmethod
    def observation_features(self) -> Features:
        """The part of an observation that networks see, and the units in which they answer."""

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
        If it leaves readings and context as they are, it may say so by an attribute
        `keeps_readings`: an encoder that is not trained then runs once.
        """
        return None

    @property
    def terms(self) -> Mapping[str, Callable[..., Any]]:
        """Objectives of the task's own, by the names that stages of training give weights to.

        They are called as all objectives are: `term(filt, model, trajectory, progress, key)`.
        """
        return {}

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

    def projection(self) -> Float[np.ndarray, "3 3"] | None:
        """How images show the plane of the first two components, where they do it in perspective.

        The pixel (column, row), times some number, and that number are this matrix times (x, y, 1).
        """
        return None

    def sketch(self, trajectory: Trajectory, states: Float[np.ndarray, "t x"]) -> Sketch | None:
        """What states would look like in one trajectory; None where positions say it all."""
        del trajectory, states
        return None

    def companions(self, trajectory: Trajectory) -> dict[str, Float[np.ndarray, "t 2"]]:
        """The paths of what else moves on that plane, and is no part of the state, by name."""
        del trajectory
        return {}

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """What is reported of each sequence besides the metrics of all tasks.

        `differences` are those of the true states and the estimates, for the sequences of `data`
        on their last but two axes. A sequence that has no such number has NaN.
        """
        del data, differences
        return {}
