"""The KITTI task: a car, its cameras, and where it is."""

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt8

from filtrax._checks import check_known, check_whole
from filtrax._types import Key
from filtrax.lab.tasks.base import SPLITS, AbstractTask, Details, View
from filtrax.lab.tasks.kitti.augment import Augment, Augmentation
from filtrax.lab.tasks.kitti.model import (
    SCALES,
    KittiModel,
    build_model,
    state_features,
    state_space,
)
from filtrax.lab.tasks.kitti.motion import Velocities
from filtrax.lab.tasks.kitti.recordings import files
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.windows import Cutting, Fold, Frames, Part, Window, trajectories
from filtrax.metrics import end_errors
from filtrax.networks import Features
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

PERTURBATIONS = (
    (0.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, -5.09878697, 2.4157549),
    (0.0, 0.0, 0.0, 1.13696468, 7.36979061),
)
"""The paper's draws of what is not known at the start: speed and heading rate."""


@dataclasses.dataclass(frozen=True)
class KittiTask(AbstractTask):
    """A car drives, and its cameras show how fast it goes and turns; where is it?

    The drives are KITTI's, or generated streets along KITTI's paths, or along those of a driver
    model. A data set is windows of them (`filtrax.lab.tasks.kitti.windows`), whose inputs are the
    time steps. Positions are those of the drive, but models make no use of where it begins.

    **Attributes:**

    - `root`: a folder in KITTI's layout; if empty, streets are generated.
    - `poses`: a folder with the pose files that generated streets follow; if empty, a driver
      model makes up eleven drives.
    - `split`: which drive is tested ("fold"), how one drive is cut ("frames"), or which part of one
      tests what was trained elsewhere ("part").
    - `velocities`: those of a frame are the motion to the next one ("forward", as in the paper)
      or the one from the frame before, which the difference image shows ("aligned").
    - `mirrored`, `mirrored_test`: whether training and validation, and whether the test, also see
      each camera's images mirrored.
    - `cameras`: names like "image_2"; if empty, the colour pair, or what there is.
    - `image_size`: height and width to which images are made smaller.
    - `num_steps`: of a window, which has one more frame.
    - `windows_per_variant`: how many windows for training are drawn from each drive, for each
      camera, mirrored or not.
    - `test_stride`, `most_test_windows`: frames between the starts of windows that test, and their
      largest number for each camera, mirrored or not.
    - `num_frames`: of each drive that is generated; if 0, as many as its pose file has.
    - `augmentation`: how training windows are changed, which is not at all by default.
    - `seed`: of windows, and of streets.
    """

    kind: ClassVar[str] = "kitti"
    units: ClassVar[tuple[str, ...]] = ("m", "m", "°", "m/s", "°/s")
    contrast: ClassVar[tuple[float, float, float]] = (0.01, 4.0, 2.0)
    sets_of_images: ClassVar[int] = 1
    model_settings: ClassVar[type] = KittiModel

    root: str = ""
    poses: str = ""
    split: Fold | Frames | Part = dataclasses.field(default_factory=Fold)
    velocities: Velocities = "forward"
    mirrored: bool = True
    mirrored_test: bool = True
    cameras: tuple[str, ...] = ()
    image_size: tuple[int, int] = files.IMAGE_SIZE
    num_steps: int = 99
    windows_per_variant: int = 50
    test_stride: int = 33
    most_test_windows: int = 100
    num_frames: int = 0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    seed: int = 0

    def __post_init__(self):
        for name in ("num_steps", "windows_per_variant", "test_stride", "most_test_windows"):
            check_whole(name, getattr(self, name), 1)
        for name in ("num_frames", "seed"):
            check_whole(name, getattr(self, name), 0)
        for size in self.image_size:
            check_whole("image_size", size, 1)
        generated = [name for name in ("poses", "num_frames") if getattr(self, name)]
        if self.root and generated:
            raise ValueError(
                f"{generated[0]} is for generated streets, but the images come from root: give one "
                f"of them, got {getattr(self, generated[0])!r} and {self.root!r}."
            )

    @property
    def state_space(self) -> Space:
        return state_space()

    @property
    def state_features(self) -> Features:
        return state_features()

    @property
    def observation_space(self) -> Space:
        """What the components of a measurement mean."""
        return Space(("speed", "rate"), angles={"rate": 360.0})

    @property
    def observation_features(self) -> Features:
        space = self.observation_space
        return Features(space, scale={name: SCALES[name] for name in space.names})

    def drive_names(self) -> list[str]:
        """The names of all drives."""
        if self.root:
            return files.drive_names(self.root)
        return _streets().street_names(self.poses)

    def drive(self, name: str) -> Drive:
        """A drive by its name. Drives are read or generated once, for all tasks that have them."""
        if self.root:
            return _read(self.root, name, self.image_size, self.cameras)
        return _generate(
            self.poses, name, self.num_frames, self.image_size, self.cameras, self.seed
        )

    def windows(self, split: str) -> list[Window]:
        """The windows of a split, as parts of drives whose images are not copied."""
        check_known("`split` must be one of a data set's", {split} - {*SPLITS}, SPLITS)
        cutting = Cutting(
            self.num_steps,
            self.velocities,
            self.windows_per_variant,
            self.test_stride,
            self.most_test_windows,
            self.seed,
        )
        mirrored = self.mirrored_test if split == "test" else self.mirrored
        names = self.drive_names()
        return self.split.windows(split, names, self.drive, cutting, mirrored=mirrored)

    def num_sequences(self, split: str) -> int:
        """How many windows a split has; drives must be read for it."""
        return len(self.windows(split))

    def data(self, split: str) -> Trajectory:
        return trajectories(self.windows(split), self.num_steps)

    def details(self, data: Trajectory) -> Details:
        """Nothing: neither what is visible nor the true process noise is known."""
        del data
        return Details()

    def build(self, settings: KittiModel, *, key: Key) -> StateSpaceModel:
        return build_model(self, settings, self._num_channels(), key=key)

    @property
    def augment(self) -> Augment | None:
        changes = self.augmentation.changes_anything
        return Augment(self.augmentation, self.velocities) if changes else None

    @property
    def shape(self) -> "KittiTask":
        """Folds have equally many windows each, unless drives are too short for their share."""
        split = Fold() if isinstance(self.split, Fold) else self.split
        return dataclasses.replace(self, split=split, seed=0)

    def perturbations(self) -> Float[np.ndarray, "p x"]:
        return np.asarray(PERTURBATIONS)

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """How far off the pose is at the end, for each metre driven."""
        translation, rotation = end_errors(data.initial, data.states, differences)
        return {"translation_error": translation, "rotation_error": rotation}

    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        images = np.asarray(trajectory.context["frames"])[1:]
        images = images[:, :, ::-1] if trajectory.context["mirrored"] else images
        return np.broadcast_to(images, (*images.shape[:3], 3))

    def view(self) -> View | None:
        """None: the camera looks from where the car is, not at it."""
        return None

    def _num_channels(self) -> int:
        """Of the images; streets have colours."""
        if not self.root:
            return 3
        name = self.drive_names()[0] if isinstance(self.split, Fold) else self.split.sequence
        return self.drive(name).num_channels


@functools.lru_cache(maxsize=32)
def _read(root: str, name: str, image_size: tuple[int, int], cameras: tuple[str, ...]) -> Drive:
    return files.read_drive(root, name, image_size=image_size, cameras=cameras or None)


@functools.lru_cache(maxsize=32)
def _generate(
    folder: str,
    name: str,
    num_frames: int,
    image_size: tuple[int, int],
    cameras: tuple[str, ...],
    seed: int,
) -> Drive:
    chosen = {"cameras": cameras} if cameras else {}
    return _streets().street_drive(
        name, poses=folder, num_frames=num_frames, image_size=image_size, seed=seed, **chosen
    )


def _streets() -> Any:
    # Loaded where it is needed: whoever has recorded drives needs no renderer.
    from filtrax.lab.tasks.kitti import streets

    return streets
