"""Generates drives through streets along any poses, with images of all cameras."""

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
"""The number of rays to trace at once, by backend."""

GRAY = np.asarray([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Street:
    """A world along the path of a drive.

    **Attributes:**

    - `poses`: the poses of the drive.
    - `scene`: the roads, and the objects beside them.
    - `seed`: the seed of scene and light.
    """

    poses: np.ndarray
    scene: Scene
    seed: int

    @classmethod
    def along(cls, poses: np.ndarray, times: np.ndarray, seed: int = 0) -> "Street":
        """Builds the world along poses; times are needed because fast roads become highways."""
        return cls(poses, build_scene(follow(poses, times), seed), seed)

    def draw(
        self,
        camera: str,
        image_size: tuple[int, int],
        frames: np.ndarray | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> UInt8[np.ndarray, "n height width channels"]:
        """Renders images of one camera.

        **Arguments:**

        - `camera`: one of KITTI's four; the first two are gray.
        - `image_size`: height and width.
        - `frames`: the indices of the frames to render; by default all.
        - `progress`: called with the number of finished frames.
        """
        frames = np.arange(len(self.poses)) if frames is None else np.asarray(frames)
        seen, light = views(self.poses, CAMERA_OFFSETS[camera]), lights(self.poses, self.seed)
        size, images = _chunk(image_size, len(frames)), []
        scene = jax.tree.map(jax.numpy.asarray, self.scene)
        for first in range(0, len(frames), size):
            some = frames[first : first + size]
            # Pad the last chunk to a fixed size, so that nothing recompiles.
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
    """Generates a drive along poses, through streets that are built along them.

    **Arguments:**

    - `name`: the name of the drive.
    - `poses`, `times`: KITTI's or those of `drive_path`.
    - `image_size`: height and width; images show the whole field of view of KITTI's cameras.
    - `cameras`: any of KITTI's four: `image_0` and `image_1` are gray, `image_2` and `image_3` have
      colours.
    - `seed`: the seed of streets and light.
    - `progress`: called with the number of finished images and their total.
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
    """Returns the number of frames to render at once, which is small on CPUs for their caches.

    Short drives are rendered at once, rounded up to a power of two for fewer compilations.
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
