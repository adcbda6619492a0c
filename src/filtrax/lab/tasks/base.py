"""The interface of tasks: data, a model to train on them, and drawings for reports."""

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
    """Facts about a data set besides its trajectories; None if unknown.

    **Attributes:**

    - `visible`: the number of visible pixels of the target in each reading.
    - `process_covariance`: the true Q of each step.
    """

    visible: Int[Array, "*b t"] | None = None
    process_covariance: Float[Array, "*b t x x"] | None = None


class View(eqx.Module):
    """The map from states to pixels: (column, row) = matrix x + offset."""

    matrix: Float[np.ndarray, "2 x"]
    offset: Float[np.ndarray, " 2"]


class Sketch(eqx.Module):
    """Drawings of states on the plane of their first two components, in the same units.

    **Attributes:**

    - `outlines`: a closed polygon for each state, the outline of the target.
    - `arrows`: start and end of some arrows for each state; equal ones are drawn as a point.
    """

    outlines: Float[np.ndarray, "t points 2"]
    arrows: Float[np.ndarray, "t arrows 2 2"]


class AbstractTask(abc.ABC):
    """A data set with splits, the models for it, and drawings of it.

    Tasks are frozen dataclasses, whose fields can be set in configuration files.
    """

    kind: ClassVar[str]
    """The name of the task in configuration files."""

    units: ClassVar[tuple[str, ...]]
    """The units of the state's components."""

    meanings: ClassVar[tuple[str, ...] | None] = None
    """Descriptions of the state's components; None if their names suffice."""

    position: ClassVar[tuple[int, ...]] = (0, 1)
    """The components of an observation that are the target's position, to relate to visibility."""

    full_view: ClassVar[int | None] = None
    """The number of visible pixels from which the target is fully visible, if it is constant."""

    contrast: ClassVar[tuple[float, float, float]]
    """Distances of samples from the true observation in the pretraining of a likelihood: the
    standard deviation of good ones, and mean and standard deviation of bad ones."""

    contrast_units: ClassVar[tuple[float, ...] | None] = None
    """The unit of `contrast` for each component of an observation; None: the component's own."""

    sets_of_images: ClassVar[int] = 4
    """The number of data sets of images to train on together on a GPU. It should be 1 if a step of
    one model saturates the GPU, because several convolutions at once are then slower."""

    model_settings: ClassVar[type]
    """The dataclass of the model's settings."""

    @property
    @abc.abstractmethod
    def state_space(self) -> Space:
        """The space of states: names, angles and bounds of their components."""

    @property
    @abc.abstractmethod
    def state_features(self) -> Features:
        """The inputs that networks see of a state, and the units of their outputs."""

    @property
    @abc.abstractmethod
    def observation_features(self) -> Features:
        """The inputs that networks see of an observation, and the units of their outputs."""

    @abc.abstractmethod
    def data(self, split: str) -> Trajectory:
        """Returns the trajectories of "train", "validation" or "test", with a leading axis."""

    @abc.abstractmethod
    def details(self, data: Trajectory) -> Details:
        """Returns visibility and true process noise of trajectories, if known."""

    @abc.abstractmethod
    def build(self, settings: Any, *, key: Key) -> StateSpaceModel:
        """Builds a model with fresh networks; `settings` is an instance of `model_settings`."""

    @property
    def augment(self) -> Callable[[Trajectory, Key], Trajectory] | None:
        """The augmentation of sub-sequences for training, or None.

        It is called with one sub-sequence and a key, and must be hashable, because it is static in
        the compiled program. All members of an ensemble share its result. Validation and test do
        not use it. If it keeps readings and context unchanged, it may have a true attribute
        `keeps_readings`; an encoder that is not trained then runs only once.
        """
        return None

    @property
    def terms(self) -> Mapping[str, Callable[..., Any]]:
        """Additional objectives by name, which training stages can weight.

        They have the signature of objectives, `term(filt, model, trajectory, progress, key)`.
        """
        return {}

    @property
    def shape(self) -> "AbstractTask":
        """The task with defaults for fields that do not change the shapes of its data.

        Experiments whose tasks have equal `shape` can train as one ensemble.
        """
        return self

    @abc.abstractmethod
    def perturbations(self) -> Float[np.ndarray, "p x"]:
        """Returns offsets of the initial state in validation and test, with one run for each."""

    @abc.abstractmethod
    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        """Returns the images of one trajectory for display."""

    @abc.abstractmethod
    def view(self) -> View | None:
        """Returns the map from states to pixels of `frames`; None if images show no positions."""

    def projection(self) -> Float[np.ndarray, "3 3"] | None:
        """Returns the homography from the plane of the first two components to pixels, if any.

        Its product with (x, y, 1) is (s column, s row, s) with a scale s.
        """
        return None

    def sketch(self, trajectory: Trajectory, states: Float[np.ndarray, "t x"]) -> Sketch | None:
        """Returns drawings of states in one trajectory; None if positions suffice."""
        del trajectory, states
        return None

    def companions(self, trajectory: Trajectory) -> dict[str, Float[np.ndarray, "t 2"]]:
        """Returns paths of other moving objects on that plane by name."""
        del trajectory
        return {}

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """Returns additional metrics of each sequence by name; NaN where undefined.

        `differences` are true states minus estimates; axis -3 runs over the sequences of `data`.
        """
        del data, differences
        return {}
