"""The disc task: data, models and images."""

import dataclasses
import math
import numbers
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, Integer, UInt8

from filtrax._checks import check_known, check_whole
from filtrax._types import Key
from filtrax.lab.measures import Measure, distance_to, low
from filtrax.lab.registry import register
from filtrax.lab.tasks.base import (
    SPLITS,
    AbstractModelSettings,
    AbstractTask,
    Contrast,
    Details,
    Drawing,
    View,
)
from filtrax.lab.tasks.disc.images import CANVAS, SMALLEST, count_visible, draw_frames
from filtrax.lab.tasks.disc.model import DiscModel, build_model
from filtrax.lab.tasks.disc.physics import (
    CORRELATED_POSITION_STD,
    CORRELATED_VELOCITY_STD,
    NoiseKind,
    covariances,
    true_noise,
)
from filtrax.lab.tasks.disc.scenes import Scenes, draw_scenes
from filtrax.networks import Features
from filtrax.noise import AbstractNoise
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

DEFAULT_VELOCITY_STD = 2.0

PERTURBATIONS = {
    5.0: (
        (0.0, 0.0, 0.0, 0.0),
        (-5.587, 3.782, -5.895, -3.441),
        (-10.428, 1.034, 9.516, -1.171),
        (3.053, 4.262, -6.058, 4.927),
        (2.631, 12.652, 7.648, 5.688),
    ),
    10.0: (
        (0.0, 0.0, 0.0, 0.0),
        (3.0377, 18.574, 7.65, -26.14),
        (-17.30, 9.05, 3.23, 9.94),
        (3.1, 1.197, -17.166, -1.94),
        (-12.76, 26.25, -1.98, -1.87),
    ),
}
"""The paper's draws from the prior, by its standard deviation."""


FULL_VIEW = 145
"""The number of visible pixels from which the target, which has 149, is fully visible."""

LIMITS: dict[str, dict[str, Any]] = {
    "smoke": {
        "image_size": 42,
        "num_distractors": 2,
        "num_steps": 4,
        "num_train": 6,
        "num_validation": 2,
        "num_test": 2,
    },
    "small": {"image_size": 60, "num_train": 240, "num_validation": 30, "num_test": 30},
}


@register
@dataclasses.dataclass(frozen=True)
class DiscTask(AbstractTask):
    """Tracking of a red disc among others that hide it, from images.

    A reading holds the centre pixels of all discs, and the context their radii and colours; sensors
    render the image (`filtrax.lab.tasks.disc.images.render`). Data depend only on these fields, the
    default dtype of JAX and its random generator. A sequence depends on its split and its index
    there, but not on the size of the split.

    **Attributes:**

    - `num_distractors`: the number of other discs.
    - `noise`: the kind of process noise: "constant", "heteroscedastic" or "correlated".
    - `position_std`, `velocity_std`: standard deviations of the process noise. The velocity noise
      of "heteroscedastic", and both of "correlated", are fixed by the paper.
    - `image_size`: height and width of the images, which always show the whole scene.
    - `num_steps`: the length of all sequences.
    - `num_train`, `num_validation`, `num_test`: the number of sequences in each split.
    - `initial_std`: the standard deviation of all components of the initial state.
    - `seed`: the seed of all random draws.
    """

    kind: ClassVar[str] = "disc"
    units: ClassVar[tuple[str, ...]] = ("px", "px", "px/step", "px/step")
    contrast: ClassVar[Contrast | None] = Contrast(2.0, 40.0, 20.0)
    model_settings: ClassVar[type[AbstractModelSettings]] = DiscModel
    measures: ClassVar[Mapping[str, Measure]] = {
        "distance": Measure("mean distance", "px", badness=low),
        "sensor_error": Measure("sensor error", "px", badness=low),
        "sensor_std_visible": Measure("predicted sensor std, disc visible", "px"),
        "sensor_std_hidden": Measure("predicted sensor std, disc hidden", "px"),
        "nees": Measure("NEES (ideal 4)", badness=distance_to(4.0)),
    }

    num_distractors: int = 30
    noise: NoiseKind = "constant"
    position_std: float = 3.0
    velocity_std: float = DEFAULT_VELOCITY_STD
    image_size: int = CANVAS
    num_steps: int = 50
    num_train: int = 2400
    num_validation: int = 300
    num_test: int = 303
    initial_std: float = 5.0
    seed: int = 0

    def __post_init__(self):
        for name in ("num_steps", "num_train", "num_validation", "num_test"):
            check_whole(name, getattr(self, name), 1)
        check_whole("num_distractors", self.num_distractors, 0)
        check_whole("seed", self.seed, 0)
        check_whole("image_size", self.image_size, SMALLEST, CANVAS)
        for name in ("position_std", "velocity_std", "initial_std"):
            _check_std(name, getattr(self, name))
        if self.initial_std == 0:
            raise ValueError("`initial_std` must be positive, got 0.")
        known = typing.get_args(NoiseKind)
        check_known("`noise` must be a known one", {self.noise} - set(known), known)
        self._check_fixed_stds()

    def _check_fixed_stds(self) -> None:
        fixed = {
            "constant": {},
            "heteroscedastic": {"velocity_std": DEFAULT_VELOCITY_STD},
            "correlated": {
                "position_std": CORRELATED_POSITION_STD,
                "velocity_std": CORRELATED_VELOCITY_STD,
            },
        }[self.noise]
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"`{name}` cannot be chosen for {self.noise} noise, which the paper fixes: "
                    f"leave it at {value}, got {getattr(self, name)}."
                )

    @property
    def state_space(self) -> Space:
        return Space(("x", "y", "vx", "vy"))

    @property
    def observation_space(self) -> Space:
        return Space(("x", "y"))

    @property
    def state_features(self) -> Features:
        return Features(self.state_space, scale=CANVAS / 2)

    @property
    def observation_features(self) -> Features:
        return Features(self.observation_space, scale=CANVAS / 2)

    @property
    def shape(self) -> "DiscTask":
        noise = {"noise": "constant", "position_std": 0.0, "velocity_std": DEFAULT_VELOCITY_STD}
        return dataclasses.replace(self, **noise, seed=0)

    @property
    def process_noise(self) -> AbstractNoise:
        """The true process noise."""
        return true_noise(self.noise, self.position_std, self.velocity_std)

    def num_sequences(self, split: str) -> int:
        """Returns the number of sequences of a split."""
        _check_split(split)
        return getattr(self, f"num_{split}")

    def scenes(self, split: str, num_sequences: int | None = None) -> Scenes:
        """Draws the sequences of a split, or its first ones, including their starts."""
        available = self.num_sequences(split)
        count = available if num_sequences is None else num_sequences
        check_whole("num_sequences", count, 1, available)
        key = _key(np.asarray(self.seed), np.asarray(SPLITS.index(split)))
        discs = 1 + self.num_distractors
        return draw_scenes(self.process_noise, count, discs, self.num_steps, key=key)

    def data(self, split: str) -> Trajectory:
        scenes = self.scenes(split)
        prior = self.initial_std**2 * np.eye(4, dtype=scenes.states.dtype)
        return Trajectory(
            initial=jax.device_put(scenes.states[:, 0]),
            initial_covariance=jax.device_put(np.tile(prior, (len(scenes.states), 1, 1))),
            readings=scenes.centres[:, 1:],
            states=jax.device_put(scenes.states[:, 1:]),
            context={"radii": scenes.radii, "colors": scenes.colors},
        )

    def details(self, data: Trajectory) -> Details:
        """Returns visible pixels and true Q; the initial states of `data` must be the true ones."""
        if data.states is None:
            raise ValueError("The details need true states, but `states` of the data is None.")
        states, context = np.asarray(data.states), data.context
        before = np.concatenate([np.asarray(data.initial)[:, None], states[:, :-1]], 1)
        visible = count_visible(data.readings, context["radii"], context["colors"])
        return Details(
            visible=jax.device_put(visible),
            process_covariance=covariances(self.process_noise, before),
            full_view=FULL_VIEW,
        )

    def build(self, settings: DiscModel, *, key: Key) -> StateSpaceModel:
        return build_model(self, settings, key=key)

    def perturbations(self) -> Float[np.ndarray, "p x"]:
        paper = 10.0 if self.initial_std == 10.0 else 5.0
        return np.asarray(PERTURBATIONS[paper]) * (self.initial_std / paper)

    def limits(self, scale: str) -> Mapping[str, Any]:
        return LIMITS[scale]

    @property
    def drawing(self) -> Drawing:
        return Drawing(frames=self.frames, view=self.view())

    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        """Renders the images of one trajectory."""
        radii, colors = trajectory.context["radii"], trajectory.context["colors"]
        return np.asarray(draw_frames(trajectory.readings, radii, colors, self.image_size))

    def view(self) -> View:
        """Returns the map from states to pixels, whose centres have integer coordinates."""
        matrix = np.eye(2, 4) * self.image_size / CANVAS
        return View(matrix, np.full(2, (self.image_size - 1) / 2))


@jax.jit
def _key(seed: Integer[Any, ""], split: Integer[Any, ""]) -> Key:
    return jr.fold_in(jr.key(seed), split)


def _check_split(split: str) -> None:
    check_known("`split` must be one of a data set's", {split} - set(SPLITS), SPLITS)


def _check_std(name: str, value: Any) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and 0 <= float(value) < math.inf):
        raise ValueError(
            f"`{name}` must be a standard deviation, finite and not negative: got {value!r}."
        )
