"""Generated drives by seed and name: along pose files, or eleven of a driver model, as in KITTI."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from filtrax.lab.tasks.kitti.recordings import files
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.streets.driver import drive_path
from filtrax.lab.tasks.kitti.streets.generate import Progress, generate_drive

NAMES = tuple(f"{number:02d}" for number in range(11))
"""The names of the driver model's drives, as many as KITTI has with poses."""

HIGHWAY = "01"
"""The name of the drive on a highway, which is much faster than the others, as in KITTI."""

NUM_FRAMES = 1000
"""The default number of frames of the driver model's drives."""

CAMERAS = ("image_2", "image_3")


def street_names(poses: str | Path = "") -> list[str]:
    """Returns the names of the pose files in a folder, or of the driver model's drives."""
    return files.pose_names(poses) if poses else [*NAMES]


def street_path(
    name: str, *, poses: str | Path = "", num_frames: int = 0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns poses and times of a drive.

    `num_frames` is the length of the driver model's drives (0: `NUM_FRAMES`), and the largest
    length of those along pose files (0: no limit).
    """
    if not poses:
        own, highway = _seed(seed, name), name == HIGHWAY
        return drive_path(own, num_frames or NUM_FRAMES, highway=highway)
    path, times = files.read_path(poses, name)
    stop = num_frames or len(path)
    return path[:stop], times[:stop]


def street_drive(
    name: str,
    *,
    poses: str | Path = "",
    num_frames: int = 0,
    image_size: tuple[int, int] = files.IMAGE_SIZE,
    cameras: Sequence[str] = CAMERAS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Drive:
    """Generates a drive with its images; streets and light depend on seed and name."""
    path, times = street_path(name, poses=poses, num_frames=num_frames, seed=seed)
    return generate_drive(
        name,
        path,
        times,
        image_size=image_size,
        cameras=cameras,
        seed=_seed(seed, name),
        progress=progress,
    )


def _seed(seed: int, name: str) -> int:
    return zlib.crc32(f"{seed} {name}".encode())
