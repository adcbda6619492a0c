"""The KITTI task: visual odometry of a car."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt8

from filtrax._checks import check_known, check_whole
from filtrax._types import Key
from filtrax.lab.measures import Measure, distance_to, low
from filtrax.lab.registry import register
from filtrax.lab.tasks.base import (
    SPLITS,
    AbstractModelSettings,
    AbstractRecordedTask,
    Contrast,
    Drawing,
)
from filtrax.lab.tasks.kitti.augment import Augment, Augmentation
from filtrax.lab.tasks.kitti.camera import COLOR_CAMERAS
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
from filtrax.lab.tasks.kitti.windows import (
    VALIDATION_PART,
    Cutting,
    Fold,
    Frames,
    Part,
    Window,
    trajectories,
)
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
"""The paper's random perturbations of the initial state: of speed and heading rate only."""


LIMITS: dict[str, dict[str, Any]] = {
    "smoke": {
        "image_size": (19, 35),
        "num_steps": 4,
        "num_frames": 8,
        "windows_per_variant": 1,
        "most_test_windows": 1,
    },
    "small": {
        "image_size": (25, 75),
        "num_steps": 50,
        "num_frames": 150,
        "windows_per_variant": 6,
        "most_test_windows": 8,
    },
}


@register
@dataclasses.dataclass(frozen=True)
class KittiTask(AbstractRecordedTask):
    """Visual odometry: the pose of a car from images that show its speed and heading rate.

    Drives are KITTI's, or generated streets along KITTI's paths, or along those of a driver model.
    Data are windows of drives (`filtrax.lab.tasks.kitti.windows`), whose inputs are the time steps.
    Positions are those of the drive, but models do not depend on its origin.

    **Attributes:**

    - `root`: a folder in KITTI's layout; if empty, streets are generated.
    - `poses`: a folder with pose files for generated streets; if empty, eleven drives of a driver
      model are generated.
    - `split`: the drive to test on ("fold"), the parts of one drive ("frames"), or a part of a
      drive to test models that were trained elsewhere ("part").
    - `velocities`: velocities of a frame belong to the motion to the next frame ("forward", as in
      the paper), or from the previous frame ("aligned"), which the difference image shows.
    - `mirrored`, `mirrored_test`: add mirrored windows to training and validation, and to the test.
    - `cameras`: names like "image_2"; if empty, the colour pair, or those that there are.
    - `image_size`: height and width to which images are resized.
    - `num_steps`: the number of steps of a window, which has one more frame.
    - `windows_per_variant`: the number of training windows for each drive and camera, and for each
      mirrored camera.
    - `test_stride`, `most_test_windows`: the number of frames between the starts of test windows,
      and the largest number of these windows for each camera, and each mirrored camera.
    - `num_frames`: the largest number of frames of generated drives; 0 for all frames of a pose
      file, or the driver model's default.
    - `augmentation`: random changes of training windows; none by default.
    - `seed`: the seed of windows and streets.
    """

    kind: ClassVar[str] = "kitti"
    units: ClassVar[tuple[str, ...]] = ("m", "m", "°", "m/s", "°/s")
    contrast: ClassVar[Contrast | None] = Contrast(0.01, 4.0, 2.0)
    sets_of_images: ClassVar[int] = 1
    model_settings: ClassVar[type[AbstractModelSettings]] = KittiModel
    measures: ClassVar[Mapping[str, Measure]] = {
        "distance": Measure("mean distance", "m, °, m/s, °/s together", badness=low),
        "sensor_error": Measure("sensor error", "m/s, °/s together", badness=low),
        "nll": Measure("NLL", decimals=1, badness=low),
        "nees": Measure("NEES (ideal 5)", badness=distance_to(5.0)),
        "translation_error": Measure("translation error at the end", "m/m", 3, False, low),
        "rotation_error": Measure("rotation error at the end", "°/m", 3, False, low),
    }

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
        """The space of observations: speed and heading rate."""
        return Space(("speed", "rate"), angles={"rate": 360.0})

    @property
    def observation_features(self) -> Features:
        space = self.observation_space
        return Features(space, scale={name: SCALES[name] for name in space.names})

    def drive_names(self) -> list[str]:
        """Returns the names of all drives."""
        if self.root:
            return files.drive_names(self.root)
        return _streets().street_names(self.poses)

    def drive(self, name: str) -> Drive:
        """Reads or generates a drive by its name; drives are cached for all tasks."""
        if self.root:
            return _read(self.root, name, self.image_size, self.cameras)
        return _generate(
            self.poses, name, self.num_frames, self.image_size, self.cameras, self.seed
        )

    def windows(self, split: str) -> list[Window]:
        """Returns the windows of a split, which refer to drives without copying images."""
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
        """Returns the number of windows of a split; this reads or generates its drives."""
        return len(self.windows(split))

    def data(self, split: str) -> Trajectory:
        return trajectories(self.windows(split), self.num_steps)

    def build(self, settings: KittiModel, *, key: Key) -> StateSpaceModel:
        return build_model(self, settings, self._num_channels(), key=key)

    @property
    def augment(self) -> Augment | None:
        changes = self.augmentation.changes_anything
        return Augment(self.augmentation, self.velocities) if changes else None

    @property
    def shape(self) -> "KittiTask":
        """The task with the default fold; all folds have equally many windows of long drives."""
        split = Fold() if isinstance(self.split, Fold) else self.split
        return dataclasses.replace(self, split=split, seed=0)

    def perturbations(self) -> Float[np.ndarray, "p x"]:
        return np.asarray(PERTURBATIONS)

    def scores(
        self, data: Trajectory, differences: Float[np.ndarray, "*b n t x"]
    ) -> dict[str, Float[np.ndarray, "*b n"]]:
        """Returns the errors of the final pose per metre driven."""
        translation, rotation = end_errors(data.initial, data.states, differences)
        return {"translation_error": translation, "rotation_error": rotation}

    @property
    def drawing(self) -> Drawing:
        """Images alone, because they do not show the car."""
        return Drawing(frames=self.frames)

    def frames(self, trajectory: Trajectory) -> UInt8[np.ndarray, "t height width 3"]:
        """Returns the images of one trajectory, without the first one."""
        images = np.asarray(trajectory.context["frames"])[1:]
        images = images[:, :, ::-1] if trajectory.context["mirrored"] else images
        return np.broadcast_to(images, (*images.shape[:3], 3))

    def on_recording(
        self,
        root: str,
        sequence: str,
        frames: tuple[int, int] | None = None,
        cameras: Sequence[str] = (),
    ) -> "KittiTask":
        """Returns the task that tests on a drive in KITTI's layout, without mirrored windows.

        Windows start every `test_stride` frames. The training data are not needed.
        """
        drive = {"root": root, "poses": "", "num_frames": 0}
        cameras = tuple(cameras) or self.cameras
        task = dataclasses.replace(self, **drive, cameras=cameras, mirrored_test=False)
        if frames is None:
            names = task.drive_names()
            check_known("`sequence` must name a drive", {sequence} - {*names}, names)
            frames = (0, task.drive(sequence).num_frames)
        return dataclasses.replace(task, split=Part(sequence, frames))

    def limits(self, scale: str) -> Mapping[str, Any]:
        limits = LIMITS[scale]
        # The length of recorded drives is no setting.
        return {name: limits[name] for name in limits if not (self.root and name == "num_frames")}

    def fewest_train(self) -> int:
        if not isinstance(self.split, Fold):
            return self.windows_per_variant
        cameras = len(self.cameras) or (1 if self.root else len(COLOR_CAMERAS))
        drives = len(self.drive_names()) - 1
        windows = drives * cameras * (1 + self.mirrored) * self.windows_per_variant
        return windows - math.ceil(windows / VALIDATION_PART)

    @classmethod
    def origin(cls, settings: Mapping[str, Any]) -> str:
        if settings.get("root"):
            return "images and trajectories of a folder"
        return f"generated images, {'real' if settings.get('poses') else 'generated'} trajectories"

    def _num_channels(self) -> int:
        """Returns the number of image channels, which is 3 for generated streets."""
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
    # Imported lazily, because recorded drives need no renderer.
    from filtrax.lab.tasks.kitti import streets

    return streets
