"""Drives of a car: poses, times and images."""

import dataclasses
from collections.abc import Mapping

import numpy as np

MEAN_STEP = 0.1037
"""The mean step of KITTI's drives in seconds, the default without a file of times."""


@dataclasses.dataclass(frozen=True)
class Drive:
    """One recorded or generated drive, as NumPy arrays.

    Poses are KITTI's: matrices [R t] of shape (3, 4) that map points from the camera's frame to
    that of the first frame (x to the right, y down, z forward, in metres). Images may be memory
    maps, which need no memory until they are read.
    """

    name: str
    """The number of the drive in KITTI's folders, such as 00."""
    poses: np.ndarray
    """float64 [n, 3, 4]."""
    times: np.ndarray
    """float64 [n], in seconds, strictly increasing."""
    cameras: Mapping[str, np.ndarray]
    """uint8 [n, height, width, channels] by the name of the camera; one channel is gray."""

    def __post_init__(self):
        _check_poses(self.name, self.poses)
        _check_times(self.name, self.times, self.num_frames)
        if not self.cameras:
            raise ValueError(f"Drive {self.name} must have a camera at least, got none.")
        for camera, images in self.cameras.items():
            _check_images(f"{camera} of drive {self.name}", images, self.num_frames)
        shapes = {camera: images.shape[1:] for camera, images in self.cameras.items()}
        if len({*shapes.values()}) > 1:
            raise ValueError(
                f"The cameras of drive {self.name} must have images of one shape, got {shapes}: "
                "take either the gray or the colour cameras."
            )

    @property
    def num_frames(self) -> int:
        """The number of frames."""
        return len(self.poses)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        height, width = next(iter(self.cameras.values())).shape[1:3]
        return height, width

    @property
    def num_channels(self) -> int:
        """1 for gray images, 3 for colour."""
        return next(iter(self.cameras.values())).shape[3]

    @property
    def length(self) -> float:
        """The horizontal length of the path in metres."""
        steps = np.diff(self.poses[:, (0, 2), 3], axis=0)
        return float(np.hypot(steps[:, 0], steps[:, 1]).sum())

    def frames(self, first: int, stop: int) -> "Drive":
        """Returns the frames from `first` to before `stop`; poses keep their coordinates."""
        if not 0 <= first < stop <= self.num_frames:
            raise ValueError(
                f"Frames of drive {self.name} must lie within 0:{self.num_frames} and be one at "
                f"least, got {first}:{stop}."
            )
        return dataclasses.replace(
            self,
            poses=self.poses[first:stop],
            times=self.times[first:stop],
            cameras={camera: images[first:stop] for camera, images in self.cameras.items()},
        )


def _check_poses(name: str, poses: np.ndarray) -> None:
    if poses.ndim != 3 or poses.shape[1:] != (3, 4) or len(poses) == 0:
        raise ValueError(
            f"The poses of drive {name} must have shape (n, 3, 4) with one at least, got "
            f"{poses.shape}."
        )
    if poses.dtype != np.float64 or not np.isfinite(poses).all():
        raise ValueError(
            f"The poses of drive {name} must be finite numbers of type float64, got {poses.dtype} "
            f"with {int((~np.isfinite(poses)).sum())} that are not finite."
        )


def _check_times(name: str, times: np.ndarray, num_frames: int) -> None:
    if times.shape != (num_frames,):
        raise ValueError(
            f"The times of drive {name} must be one per pose, shape ({num_frames},), got "
            f"{times.shape}."
        )
    if times.dtype != np.float64 or not np.isfinite(times).all():
        raise ValueError(
            f"The times of drive {name} must be finite numbers of type float64, got {times.dtype} "
            f"with {int((~np.isfinite(times)).sum())} that are not finite."
        )
    backward = np.flatnonzero(np.diff(times) <= 0)
    if len(backward):
        frame = int(backward[0])
        raise ValueError(
            f"The times of drive {name} must increase, but frame {frame + 1} comes at "
            f"{times[frame + 1]:g} s after frame {frame} at {times[frame]:g} s."
        )


def _check_images(what: str, images: np.ndarray, num_frames: int) -> None:
    right = images.ndim == 4 and images.shape[0] == num_frames and images.shape[3] in (1, 3)
    if not right or images.dtype != np.uint8:
        raise ValueError(
            f"The images of {what} must be uint8 of shape ({num_frames}, height, width, 1 or 3), "
            f"got {images.dtype} of shape {images.shape}."
        )
