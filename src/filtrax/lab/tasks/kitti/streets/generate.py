"""Drives through generated streets: along any poses, with images of all cameras."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import UInt8

from filtrax._checks import check_known
from filtrax.lab.tasks.kitti.camera import CAMERA_OFFSETS, COLOR_CAMERAS, views
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.streets.light import lights
from filtrax.lab.tasks.kitti.streets.renderer import RAYS, render_frames
from filtrax.lab.tasks.kitti.streets.roads import follow
from filtrax.lab.tasks.kitti.streets.scene import Scene, build_scene

CHUNK_RAYS = {"cpu": 5e5, "gpu": 4e7}
"""How many rays are followed at the same time."""

GRAY = np.asarray([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Street:
    """A world along the path of a drive, ready to be drawn.

    **Attributes:**

    - `poses`: of the drive.
    - `scene`: roads, and what stands beside them.
    - `seed`: of scene and light.
    """

    poses: np.ndarray
    scene: Scene
    seed: int

    @classmethod
    def along(cls, poses: np.ndarray, times: np.ndarray, seed: int = 0) -> "Street":
        """The world along poses. Highways are where the car is fast, so times are needed, too."""
        return cls(poses, build_scene(follow(poses, times), seed), seed)

    def draw(
        self,
        camera: str,
        image_size: tuple[int, int],
        frames: np.ndarray | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> UInt8[np.ndarray, "n height width channels"]:
        """Images of one camera.

        **Arguments:**

        - `camera`: one of KITTI's four; the first two are gray.
        - `image_size`: height and width.
        - `frames`: the numbers of the frames to be drawn; all, if there are none.
        - `progress`: told how many are done.
        """
        frames = np.arange(len(self.poses)) if frames is None else np.asarray(frames)
        seen, light = views(self.poses, CAMERA_OFFSETS[camera]), lights(self.poses, self.seed)
        size, images = _chunk(image_size, len(frames)), []
        scene = jax.tree.map(jax.numpy.asarray, self.scene)
        for first in range(0, len(frames), size):
            some = frames[first : first + size]
            # Chunks of one size are one program; what is drawn too much is not kept.
            full = np.concatenate([some, np.full(size - len(some), some[-1])])
            view, lit = jax.tree.map(lambda part: part[full], (seen, light))  # noqa: B023
            drawn = np.asarray(render_frames(scene, view, lit, image_size))[: len(some)]
            images.append(drawn if camera in COLOR_CAMERAS else _gray(drawn))
            if progress is not None:
                progress(first + len(some))
        return np.concatenate(images)


def generate_drive(
    name: str,
    poses: np.ndarray,
    times: np.ndarray,
    *,
    image_size: tuple[int, int] = (50, 150),
    cameras: Sequence[str] = COLOR_CAMERAS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Drive:
    """A drive along poses through streets that are made for them.

    **Arguments:**

    - `name`: of the drive.
    - `poses`, `times`: KITTI's or those of `drive_path`.
    - `image_size`: height and width; images show the whole field of view of KITTI's cameras.
    - `cameras`: any of KITTI's four: `image_0` and `image_1` are gray, `image_2` and `image_3` have
      colours.
    - `seed`: another one gives other streets and another light along the same path.
    - `progress`: told how many images of how many are done.
    """
    unknown = [camera for camera in cameras if camera not in CAMERA_OFFSETS]
    check_known("`cameras` must be KITTI's", unknown, list(CAMERA_OFFSETS))
    if len(poses) != len(times):
        raise ValueError(
            f"There must be one time for each pose, got {len(poses)} poses and {len(times)} times."
        )
    street = Street.along(poses, times, seed)
    images, total = {}, len(poses) * len(cameras)
    for number, camera in enumerate(cameras):
        report = _counting_from(number * len(poses), total, progress)
        images[camera] = street.draw(camera, image_size, progress=report)
    return Drive(name, poses, times, images)


def _chunk(image_size: tuple[int, int], num_frames: int) -> int:
    """How many frames are drawn at once: few on a CPU, whose caches are small.

    Short drives are drawn at once, rounded up to a power of two for fewer programs.
    """
    rays = CHUNK_RAYS.get(jax.default_backend(), CHUNK_RAYS["gpu"])
    most = int(rays / (RAYS**2 * image_size[0] * image_size[1]))
    return max(min(most, 1 << (num_frames - 1).bit_length()), 1)


def _gray(images: np.ndarray) -> np.ndarray:
    return np.round(images.astype(np.float32) @ GRAY)[..., None].astype(np.uint8)


def _counting_from(
    done: int, total: int, progress: Progress | None
) -> Callable[[int], None] | None:
    return None if progress is None else lambda number: progress(done + number, total)
