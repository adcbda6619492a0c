"""The pushing task: data, models and images."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

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
)
from filtrax.lab.tasks.pushing.camera import Camera
from filtrax.lab.tasks.pushing.model import PushingModel, build_model
from filtrax.lab.tasks.pushing.pretraining import TERMS
from filtrax.lab.tasks.pushing.render import random_arm, random_look, visible_pixels
from filtrax.lab.tasks.pushing.scenes import image_of
from filtrax.lab.tasks.pushing.sequences import Sequences, make_sequences
from filtrax.lab.tasks.pushing.shapes import NAMES, SYMMETRY
from filtrax.lab.tasks.pushing.sketches import MEANINGS, projection, sketch
from filtrax.lab.tasks.pushing.space import (
    STATE,
    UNITS,
    observation_features,
    observation_space,
    state_features,
    state_space,
)
from filtrax.networks import Features
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

INITIAL_STDS = (50.0, 50.0, 1e-3, 5.0, 5.0, 50.0, 50.0, 0.5, 0.5, 0.5)
"""Standard deviations of the initial belief. The initial rotation is zero by definition."""

PERTURBATIONS = (
    (0.0,) * 10,
    (
        *(49.8394116, -2.3510439, 0.0, 2.5196417, 1.93745247),
        *(27.6656989, 67.1287098, 0.03124815, -0.18917632, -0.14730855),
    ),
    (
        *(27.9914853, -30.3366791, 0.0, -4.6963326, -2.96631439),
        *(3.6698755, -14.5376077, -0.49956926, 0.56362964, 0.54478971),
    ),
)
"""The paper's draws from the prior."""

SEQUENCES_AT_ONCE = 16
"""The number of sequences whose visible pixels are counted at once, to limit memory."""


LIMITS: dict[str, dict[str, Any]] = {
    "smoke": {
        "image_size": (48, 64),
        "num_steps": 4,
        "num_test_steps": 4,
        # Splits of equal size share a compiled program.
        "num_train": 4,
        "num_validation": 4,
        "num_test": 4,
    },
    "small": {"image_size": (48, 64), "num_train": 240, "num_validation": 30, "num_test": 30},
}


@register
@dataclasses.dataclass(frozen=True)
class PushingTask(AbstractTask):
    """Tracking of an object that a robot pushes over a table, and of the contact with the robot.

    Pushes are simulated (`filtrax.lab.tasks.pushing.sequences`), with disturbances that were fitted
    to real pushes. A reading has the pose of the object, positions of the pusher before and after
    the coming push, and the true contact; the context has the object, colours, light, arm and the
    first scene of the sequence. Sensors render the image from them. Data depend only on these
    fields, the default dtype of JAX and its random generator.

    Rotations are relative to the first image of a sequence, even in sub-sequences; in the paper,
    they are relative to the start of the sub-sequence.

    **Attributes:**

    - `objects`: the objects of the MIT Push data set to push.
    - `image_size`: height and width of the images, which always show the whole scene.
    - `num_steps`, `num_test_steps`: the length of sequences for training and validation, and for
      the test.
    - `num_train`, `num_validation`, `num_test`: the number of sequences in each split.
    - `seed`: the seed of all random draws.
    """

    kind: ClassVar[str] = "pushing"
    units: ClassVar[tuple[str, ...]] = UNITS
    contrast: ClassVar[Contrast | None] = Contrast(
        0.1, 10.0, 5.0, units=(10.0, 10.0, 2.0, 1.0, 1.0, 0.1, 0.1, 0.1)
    )
    sets_of_images: ClassVar[int] = 1
    model_settings: ClassVar[type[AbstractModelSettings]] = PushingModel
    measures: ClassVar[Mapping[str, Measure]] = {
        "distance": Measure("mean distance", "mm, °, cm² together", badness=low),
        "sensor_error": Measure("sensor error", "mm, ° together", badness=low),
        "nll": Measure("NLL", decimals=1, badness=low),
        "nees": Measure("NEES (ideal 10)", badness=distance_to(10.0)),
        "translation": Measure("translation error", "mm", badness=low),
        "rotation": Measure("rotation error", "°", badness=low),
    }

    objects: tuple[str, ...] = NAMES
    image_size: tuple[int, int] = (192, 256)
    num_steps: int = 20
    num_test_steps: int = 50
    num_train: int = 5515
    num_validation: int = 624
    num_test: int = 751
    seed: int = 0

    def __post_init__(self):
        for name in ("num_steps", "num_test_steps", "num_train", "num_validation", "num_test"):
            check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed, 0)
        for size in self.image_size:
            check_whole("image_size", size, 1)
        check_known("`objects` must be those of the data set", {*self.objects} - {*NAMES}, NAMES)
        if not self.objects:
            raise ValueError("`objects` must name at least one object, got none.")

    @property
    def state_space(self) -> Space:
        return state_space()

    @property
    def observation_space(self) -> Space:
        """The space of observations; its orientation has a period after `bind`."""
        return observation_space()

    @property
    def state_features(self) -> Features:
        return state_features()

    @property
    def observation_features(self) -> Features:
        return observation_features()

    @property
    def camera(self) -> Camera:
        """The camera that looks at the table."""
        return Camera(*self.image_size)

    @property
    def terms(self) -> Mapping[str, Callable[..., Any]]:
        return TERMS

    @property
    def shape(self) -> "PushingTask":
        return dataclasses.replace(self, objects=NAMES, seed=0)

    def num_sequences(self, split: str) -> int:
        """Returns the number of sequences of a split."""
        _check_split(split)
        return getattr(self, f"num_{split}")

    def sequences(self, split: str) -> Sequences:
        """Simulates the pushes of a split."""
        return make_sequences(
            split,
            num_sequences=self.num_sequences(split),
            num_steps=self.num_test_steps if split == "test" else self.num_steps,
            seed=self.seed,
            objects=self.objects,
        )

    def data(self, split: str) -> Trajectory:
        return self.as_seen(split, self.sequences(split))

    def as_seen(self, split: str, sequences: Sequences) -> Trajectory:
        """Adds random colours, light and arms to the pushes of a split, as trajectories."""
        key = jr.fold_in(jr.key(self.seed), SPLITS.index(split))
        looks, arms = _draw_looks(key, sequences.shape)
        return trajectories(sequences, looks, arms)

    def details(self, data: Trajectory) -> Details:
        """Counts the visible pixels of the object."""
        return Details(visible=count_visible(data, self.camera))

    def build(self, settings: PushingModel, *, key: Key) -> StateSpaceModel:
        return build_model(self, settings, key=key)

    def perturbations(self) -> Float[np.ndarray, "p x"]:
        return np.asarray(PERTURBATIONS)

    @property
    def drawing(self) -> Drawing:
        """Images, to whose pixels a projection leads, outlines, and the path of the pusher."""
        return Drawing(
            frames=self.frames,
            projection=projection(self.camera),
            sketch=sketch,
            companions=lambda trajectory: {"pusher": np.asarray(trajectory.readings["tip"])},
            meanings=MEANINGS,
        )

    def limits(self, scale: str) -> Mapping[str, Any]:
        return LIMITS[scale]

    @classmethod
    def origin(cls, settings: Mapping[str, Any]) -> str:
        del settings
        return "simulated pushes, rendered images"

    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        """Renders the images of one trajectory."""
        images = _rgb(trajectory.readings, trajectory.context, self.camera)
        return np.round(255 * np.asarray(images)).astype(np.uint8)

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """Returns mean errors of position in mm and rotation in degrees.

        Differences of rotations are wrapped by the symmetry of the object. The rotation error of a
        circle is NaN.
        """
        translation = np.hypot(differences[..., 0], differences[..., 1]).mean(-1)
        rotation = np.abs(differences[..., 2]).mean(-1)
        turns = np.asarray(data.context["period"]) > 0
        return {"translation": translation, "rotation": np.where(turns, rotation, np.nan)}


@jax.jit  # one program instead of one per array
def trajectories(sequences: Sequences, looks: Any, arms: Float[Array, "n 3"]) -> Trajectory:
    """Makes trajectories of pushes with colours, light and arms."""
    states = _states(sequences)
    tips, poses = sequences.tips, sequences.poses
    touches = sequences.touches[..., None].astype(states.dtype)
    contact = jnp.concatenate([sequences.points, sequences.normals, touches], -1)
    count = states.shape[0]
    periods = jnp.asarray([SYMMETRY[name] for name in NAMES], states.dtype)[sequences.shape]
    theta = np.asarray(STATE) == "theta"
    return Trajectory(
        initial=states[:, 0],
        initial_covariance=np.tile(np.diag(np.square(INITIAL_STDS)), (count, 1, 1)),
        inputs=tips[:, 1:-1] - tips[:, :-2],
        readings={
            "pose": poses[:, 1:],
            "tip": tips[:, 1:-1],
            "next_tip": tips[:, 2:],
            "contact": contact[:, 1:],
        },
        states=states[:, 1:],
        context={
            "shape": sequences.shape,
            "period": periods,
            "look": looks,
            "arm": arms,
            "first": {"pose": poses[:, 0], "tip": tips[:, 0]},
        },
        undefined=jnp.asarray(theta)[None, :] & (periods == 0)[:, None],
    )


def _states(sequences: Sequences) -> Float[Array, "n t 10"]:
    """Returns the states of all moments, with rotations relative to the first one."""
    poses = sequences.poses
    shape = poses.shape[:2]
    constant = [sequences.friction, sequences.half_angle]
    parts = [
        poses[..., :2],
        poses[..., 2:] - poses[:, :1, 2:],
        *(jnp.broadcast_to(numbers[:, None, None], (*shape, 1)) for numbers in constant),
        sequences.points,
        sequences.normals,
        sequences.touches[..., None].astype(poses.dtype),
    ]
    states = jnp.concatenate(parts, -1)
    periods = jnp.asarray([SYMMETRY[name] for name in NAMES], poses.dtype)[sequences.shape]

    def wrapped(states, period):
        return jax.vmap(state_space().bind({"period": period}).wrap)(states)

    return jax.vmap(wrapped)(states, periods)


def count_visible(data: Trajectory, camera: Camera) -> Int[Array, "n t"]:
    """Counts the visible pixels of the object in each image."""
    counts = []
    for first in range(0, data.initial.shape[0], SEQUENCES_AT_ONCE):
        chunk = slice(first, first + SEQUENCES_AT_ONCE)
        part = jax.tree.map(lambda leaf, chunk=chunk: leaf[chunk], (data.readings, data.context))
        counts.append(_count_visible(part, camera))
    return jnp.concatenate(counts)


@eqx.filter_jit
def _count_visible(data, camera):
    def one(readings, context):
        see = lambda reading: visible_pixels(image_of(reading, context, camera))  # noqa: E731
        return jax.vmap(see)(readings)

    return jax.vmap(one)(*data)


@eqx.filter_jit
def _rgb(readings, context, camera):
    return jax.vmap(lambda reading: image_of(reading, context, camera).rgb)(readings)


@jax.jit
def _draw_looks(key: Key, shapes: Int[Array, " n"]) -> Any:
    """Draws look and arm of each sequence, which depend only on key and index."""

    def one(number):
        look_key, arm_key = jr.split(jr.fold_in(key, number))
        return random_look(key=look_key), random_arm(key=arm_key)

    return jax.vmap(one)(jnp.arange(len(shapes)))


def _check_split(split: str) -> None:
    check_known("`split` must be one of a data set's", {split} - {*SPLITS}, SPLITS)
