"""The interface of tasks: data, the models for them, and how reports draw them.

A task needs five members: `kind`, `num_steps`, `state_space`, `data` and `build`. All others have
defaults.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from filtrax._types import Key
from filtrax.lab.measures import Measure
from filtrax.lab.registry import family
from filtrax.networks import Features
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

SPLITS = ("train", "validation", "test")

LIMITS: dict[str, dict[str, Any]] = {
    "smoke": {"num_steps": 4, "num_train": 6, "num_validation": 2, "num_test": 2},
    "small": {"num_train": 240, "num_validation": 30, "num_test": 30},
}
"""The largest values of settings in tables at small scales, unless a task has its own."""


class Details(eqx.Module):
    """Facts about a data set besides its trajectories; None if unknown.

    **Attributes:**

    - `visible`: the number of visible pixels of the target in each reading. The first two
      components of an observation are then the target's position.
    - `full_view`: the number of visible pixels from which the target is fully visible, if it is
      the same in all sequences.
    - `process_covariance`: the true Q of each step.
    """

    visible: Int[Array, "*b t"] | None = None
    process_covariance: Float[Array, "*b t x x"] | None = None
    full_view: int | None = eqx.field(default=None, static=True)


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


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How a report shows the sequences of a task. Every part may be missing.

    - `frames`: makes the images of one trajectory.
    - `view`: the map from states to pixels of the images.
    - `projection`: the homography from the plane of the first two components to pixels of the
      images: its product with (x, y, 1) is (s column, s row, s) with a scale s.
    - `sketch`: draws states of one trajectory on that plane.
    - `companions`: makes the paths of other moving objects on that plane, by name.
    - `meanings`: descriptions of the state's components, where their names do not suffice.
    """

    frames: Callable[[Trajectory], UInt8[np.ndarray, "t height width 3"]] | None = None
    view: View | None = None
    projection: Float[np.ndarray, "3 3"] | None = None
    sketch: Callable[[Trajectory, Float[np.ndarray, "t x"]], Sketch] | None = None
    companions: Callable[[Trajectory], dict[str, Float[np.ndarray, "t 2"]]] | None = None
    meanings: tuple[str, ...] | None = None


class Contrast(NamedTuple):
    """Distances of samples from the true observation, for the pretraining of a likelihood.

    - `near_std`: the standard deviation of good samples.
    - `far_mean`, `far_std`: mean and standard deviation of bad ones.
    - `units`: the unit of these numbers for each component; None: the component's own.
    """

    near_std: float
    far_mean: float
    far_std: float
    units: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class AbstractModelSettings:
    """The settings of a task's model: the section `[model]` of a configuration."""

    @property
    def program(self) -> "AbstractModelSettings":
        """These settings with defaults for all numbers that compiled programs take as arguments.

        Models with equal `program` can train as one ensemble.
        """
        return self

    @property
    def learns_likelihood(self) -> bool:
        """True if the model has a likelihood with parameters to train."""
        return False


@dataclasses.dataclass(frozen=True)
class NoSettings(AbstractModelSettings):
    """The settings of a model that has none."""


@family
class AbstractTask(abc.ABC):
    """A data set with splits, the models for it, and how reports draw it.

    Tasks are frozen dataclasses, whose fields can be set in configuration files.
    """

    # Every task has these.

    kind: ClassVar[str]
    """The name of the task in configuration files."""

    num_steps: int
    """The number of steps of sequences to train on."""

    @property
    @abc.abstractmethod
    def state_space(self) -> Space:
        """The space of states: names, angles and bounds of their components."""

    @abc.abstractmethod
    def data(self, split: str) -> Trajectory:
        """Returns the trajectories of "train", "validation" or "test", with a leading axis."""

    @abc.abstractmethod
    def build(self, settings: Any, *, key: Key) -> StateSpaceModel:
        """Builds a model with fresh networks; `settings` is an instance of `model_settings`."""

    # The data, besides.

    num_train: Any = None
    """The number of sequences to train on; None if it is unknown before the data are read."""

    units: ClassVar[tuple[str, ...]] = ()
    """The units of the state's components."""

    def details(self, data: Trajectory) -> Details:
        """Returns visibility and true process noise of trajectories, if known."""
        del data
        return Details()

    def perturbations(self) -> Float[np.ndarray, "p x"]:
        """Returns offsets of the initial state in validation and test, with one run for each."""
        return np.zeros((1, len(self.state_space.names)))

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """Returns additional metrics of each sequence by name; NaN where undefined.

        `differences` are true states minus estimates; axis -3 runs over the sequences of `data`.
        """
        del data, differences
        return {}

    # Models and their training.

    model_settings: ClassVar[type[AbstractModelSettings]] = NoSettings
    """The dataclass of the model's settings."""

    contrast: ClassVar[Contrast | None] = None
    """Samples for the pretraining of a learned likelihood, which is not possible without them."""

    @property
    def state_features(self) -> Features:
        """The inputs that networks see of a state, and the units of their outputs."""
        return Features(self.state_space)

    @property
    def observation_features(self) -> Features | None:
        """The same of an observation; None: the components of the model's observation space."""
        return None

    @property
    def augment(self) -> Callable[[Trajectory, Key], Trajectory] | None:
        """The augmentation of sub-sequences for training, or None.

        It is called with one sub-sequence and a key, and must be hashable, because it is static in
        the compiled program. All members of an ensemble share its result. Validation and test do
        not use it. If it keeps readings and context unchanged, an `AbstractAugmentation` says so,
        and an encoder that is not trained runs only once.
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

    # Reports.

    @property
    def drawing(self) -> Drawing:
        """How reports draw its sequences; by default as a plane of two components, no images."""
        return Drawing()

    # Tables of experiments.

    sets_of_images: ClassVar[int] = 4
    """The number of data sets of images to train on together on a GPU. It should be 1 if a step of
    one model saturates the GPU, because several convolutions at once are then slower."""

    measures: ClassVar[Mapping[str, Measure]] = {}
    """Headings, units and formats of metrics that are the task's own, by name."""

    def limits(self, scale: str) -> Mapping[str, Any]:
        """Returns the largest values of settings at scale "smoke" or "small"."""
        return LIMITS[scale]

    def fewest_train(self) -> int:
        """Returns `num_train`, or a lower bound if it is unknown."""
        return self.num_train or 1

    @classmethod
    def origin(cls, settings: Mapping[str, Any]) -> str:
        """Describes the origin of the data of a record with these settings of the task."""
        del settings
        return ""


class AbstractRecordedTask(AbstractTask):
    """A task whose trained filters can also be tested on other recordings."""

    @abc.abstractmethod
    def on_recording(
        self,
        root: str,
        sequence: str,
        frames: tuple[int, int] | None = None,
        cameras: Sequence[str] = (),
    ) -> "AbstractRecordedTask":
        """Returns the task whose test is one recording below the folder `root`.

        `frames` is the range to use, by default all frames, and `cameras` are those to use, by
        default the task's own.
        """
