"""Reads and writes drives in KITTI's layout."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from filtrax._checks import check_known
from filtrax._files import write_whole
from filtrax.lab.tasks.kitti.recordings.cache import cache_folders, cached_images
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP, Drive
from filtrax.lab.tasks.kitti.recordings.images import image_files
from filtrax.lab.tasks.kitti.recordings.layout import (
    drive_names,
    find_drive,
    find_poses,
    find_times,
    pose_names,
)

__all__ = [
    "IMAGE_SIZE",
    "check_absent",
    "drive_names",
    "has_times",
    "pose_names",
    "read_drive",
    "read_path",
    "write_drive",
]

Progress = Callable[[int, int], None]
"""Callback that gets the number of finished images and their total."""

IMAGE_SIZE = (50, 150)
"""Height and width of images in the paper."""


def read_drive(
    root: str | Path,
    name: str,
    *,
    image_size: tuple[int, int] = IMAGE_SIZE,
    cameras: Sequence[str] | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Drive:
    """Reads a drive; its images are resized once, cached, and mapped into memory.

    Args:
        root: a folder in KITTI's layout; see `filtrax.lab.tasks.kitti.recordings.layout`.
        name: the number of the drive, such as "00".
        image_size: height and width; larger images are averaged over areas.
        cameras: names of cameras; by default the colour pair, else the gray pair, else the first
            one that is there.
        cache: the folder of resized images; by default the user's cache folder, or `root` if
            nothing can be written there.
        progress: called with the number of finished images and their total.
    """
    root, place = Path(root), find_drive(root, name)
    _check_size(image_size)
    folders = place.chosen(cameras)
    poses = _read_poses(place.poses)
    numbered = {camera: image_files(folder) for camera, folder in folders.items()}
    _check_numbers(place.poses, len(poses), folders, numbered)
    numbers = next(iter(numbered.values()))
    times = _times(place.times, len(poses), numbers)
    caches = cache_folders(root, None if cache is None else Path(cache))
    total = len(poses) * len(numbered)
    images = {}
    for index, (camera, files) in enumerate(numbered.items()):
        report = _counting_from(index * len(poses), total, progress)
        images[camera] = cached_images(
            [*files.values()], image_size, f"{name}_{camera}", caches, report
        )
    return Drive(name, poses, times, images)


def read_path(
    root: str | Path, name: str
) -> tuple[Float[np.ndarray, "n 3 4"], Float[np.ndarray, " n"]]:
    """Reads poses and times of a drive, which need not have images."""
    root = Path(root)
    names = pose_names(root)
    check_known(f"A drive in {root} must be one of those with poses", {name} - {*names}, names)
    path = find_poses(root, name)
    if path is None:
        raise FileNotFoundError(f"There is no pose file of drive {name} in {root}.")
    poses = _read_poses(path)
    return poses, _times(find_times(root, name), len(poses), range(len(poses)))


def has_times(root: str | Path, name: str) -> bool:
    """Returns True if there is a file of times of a drive; otherwise `MEAN_STEP` is used."""
    return find_times(Path(root), name) is not None


def write_drive(drive: Drive, root: str | Path, *, progress: Progress | None = None) -> None:
    """Writes a drive in KITTI's layout, with numbers in full precision.

    The pose file is written last, to mark a complete drive. Existing drives are not overwritten.
    """
    root = Path(root)
    check_absent(root, drive.name)
    folder, pose_file = root / "sequences" / drive.name, root / "poses" / f"{drive.name}.txt"
    total = drive.num_frames * len(drive.cameras)
    done = itertools.count(1)
    for camera, images in drive.cameras.items():
        (folder / camera).mkdir(parents=True)
        for frame, image in enumerate(images):
            pixels = image[:, :, 0] if drive.num_channels == 1 else image
            path = folder / camera / f"{frame:06d}.png"
            Image.fromarray(np.ascontiguousarray(pixels)).save(path, format="PNG")
            if progress is not None:
                progress(next(done), total)
    pose_file.parent.mkdir(exist_ok=True)
    _write_numbers(folder / "times.txt", drive.times[:, None])
    _write_numbers(pose_file, drive.poses.reshape(-1, 12))


def check_absent(root: str | Path, name: str) -> None:
    """Raises if the name is not valid, or if there is a drive of this name already."""
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"The name of a drive must be that of a folder, got {name!r}.")
    if (Path(root) / "sequences" / name).exists() or find_poses(Path(root), name) is not None:
        raise ValueError(
            f"A drive is written where none of its name is, but {root} has one named {name}: "
            "choose another folder, or remove it."
        )


def _check_size(image_size: tuple[int, int]) -> None:
    if len(image_size) != 2 or min(image_size) < 1:
        raise ValueError(
            f"`image_size` must be height and width, at least 1 pixel each, got {image_size}."
        )


def _check_numbers(
    pose_file: Path,
    num_poses: int,
    folders: Mapping[str, Path],
    numbered: Mapping[str, Mapping[int, Path]],
) -> None:
    """Raises unless every camera has an image for every pose, under the same numbers."""
    for camera, files in numbered.items():
        if len(files) != num_poses:
            raise ValueError(
                f"A drive must have one pose per image, but {pose_file} has {num_poses} and "
                f"{folders[camera]} holds {len(files)} images: restore what is missing."
            )
    begins = {camera: min(files) for camera, files in numbered.items()}
    if len({*begins.values()}) > 1:
        raise ValueError(
            f"The images of all cameras must have the same numbers, but with the poses of "
            f"{pose_file} they begin with {begins}: restore what is missing."
        )


def _counting_from(
    done: int, total: int, progress: Progress | None
) -> Callable[[int], None] | None:
    return None if progress is None else lambda number: progress(done + number, total)


def _read_poses(path: Path) -> Float[np.ndarray, "n 3 4"]:
    return _read_numbers(path, 12).reshape(-1, 3, 4)


def _times(
    path: Path | None, num_frames: int, numbers: Iterable[int]
) -> Float[np.ndarray, " num_frames"]:
    """Reads the times of a drive's images; the file may have lines for further frames.

    Without a file, they are multiples of `MEAN_STEP`.
    """
    if path is None:
        return MEAN_STEP * np.arange(num_frames)
    times = _read_numbers(path, 1)[:, 0]
    lines = np.arange(num_frames) if len(times) == num_frames else np.array([*numbers])
    if len(times) <= lines.max():
        raise ValueError(
            f"A file of times must have a line per image, but {path} has {len(times)} lines for "
            f"{num_frames} images up to number {lines.max()}: restore it, or remove it and the "
            f"mean step of {MEAN_STEP} s is taken."
        )
    times = times[lines]
    backward = np.flatnonzero(np.diff(times) <= 0)
    if len(backward):
        raise ValueError(
            f"Times must increase, but line {lines[backward[0]] + 2} of {path} does not: restore "
            f"the file, or remove it and the mean step of {MEAN_STEP} s is taken."
        )
    return times


def _read_numbers(path: Path, columns: int) -> Float[np.ndarray, "n columns"]:
    """Reads finite numbers from a text file; every line must have the given number of columns."""
    lines = path.read_text(errors="replace").rstrip().splitlines()
    if not lines:
        raise ValueError(f"{path} must hold {columns} numbers a line, but it is empty.")
    return np.array([_numbers(line, columns, path, index + 1) for index, line in enumerate(lines)])


def _numbers(line: str, columns: int, path: Path, number: int) -> list[float]:
    what = "a finite number" if columns == 1 else f"{columns} finite numbers"
    rule = f"Line {number} of {path} must be {what}"
    words = line.split()
    if len(words) != columns:
        raise ValueError(f"{rule}, but it has {len(words)} words.")
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        shown = line.strip()
        raise ValueError(f"{rule}, got {shown if len(shown) < 60 else shown[:60] + ' …'}.")
    return values


def _write_numbers(path: Path, rows: Float[np.ndarray, "n columns"]) -> None:
    # `repr` of a float is the shortest text that restores it exactly.
    lines = "".join(" ".join(map(repr, row)) + "\n" for row in rows.tolist())
    write_whole(path, lambda file: file.write(lines.encode()))
