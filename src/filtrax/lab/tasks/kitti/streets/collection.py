"""The drives that a seed stands for: along pose files, or eleven of a driver model as in KITTI."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from filtrax.lab.tasks.kitti.recordings import files
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.streets.driver import drive_path
from filtrax.lab.tasks.kitti.streets.generate import Progress, generate_drive

NAMES = tuple(f"{number:02d}" for number in range(11))
"""Of the driver model's drives: as many as KITTI has with poses."""

HIGHWAY = "01"
"""The one of them that is much faster than the others, as in KITTI."""

NUM_FRAMES = 1000
"""How long such a drive is if nothing is said."""

CAMERAS = ("image_2", "image_3")


def street_names(poses: str | Path = "") -> list[str]:
    """The names of the drives along the pose files of a folder, or of the driver model."""
    return files.pose_names(poses) if poses else [*NAMES]


def street_path(
    name: str, *, poses: str | Path = "", num_frames: int = 0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and times of a drive; of so many frames, unless there are none or fewer."""
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
    """A drive with its images. Each has streets and a light of its own, whatever the seed is."""
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
