"""The layout of the files of drives.

KITTI's odometry benchmark (Geiger, Lenz, Urtasun 2012) is downloaded as

    poses/00.txt                    12 numbers a line
    sequences/00/times.txt          seconds, one number a line
    sequences/00/image_2/000000.png left colour camera; image_3 is the right one,
                                    image_0 and image_1 are the gray ones

The archive of the authors of differentiable particle filters (Jonschkowski, Rastogi, Brock 2018)
has the folders 00 to 10 and the pose files 00_image1.txt to 10_image1.txt at its root. A folder
with only pose files may have its times in times/00.txt.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filtrax._checks import check_known
from filtrax.lab.tasks.kitti.recordings.images import has_images

CAMERAS = ("image_0", "image_1", "image_2", "image_3")
"""Left and right gray camera, left and right colour camera."""

_PREFERENCES = (
    ("image_2", "image_3"),
    ("image_0", "image_1"),
    *(("image_2",), ("image_3",), ("image_0",), ("image_1",)),
)

_POSE_FILES = ("poses/{}.txt", "poses/{}_image1.txt", "{}_image1.txt", "{}.txt")
_TIME_FILES = ("sequences/{}/times.txt", "{}/times.txt", "times/{}.txt")
_SEQUENCES = ("sequences/{}", "{}")


@dataclasses.dataclass(frozen=True)
class Place:
    """The files of one drive."""

    name: str
    poses: Path
    times: Path | None
    cameras: Mapping[str, Path]
    """Folders with at least one image, by the name of the camera."""

    def chosen(self, wanted: Sequence[str] | None) -> dict[str, Path]:
        """Returns the folders of cameras, by default the colour pair, the gray pair, or one."""
        if wanted is None:
            wanted = next(names for names in _PREFERENCES if {*names} <= {*self.cameras})
        missing = [camera for camera in wanted if camera not in self.cameras]
        what = f"Cameras of drive {self.name} must be those with images"
        check_known(what, missing, list(self.cameras))
        if not wanted:
            raise ValueError(f"{what}, {list(self.cameras)}, got none.")
        return {camera: self.cameras[camera] for camera in wanted}


def drive_names(root: str | Path) -> list[str]:
    """Returns the drives in a folder that have both poses and images; raises if there are none."""
    root = Path(root)
    names = [name for name in pose_names(root) if _camera_folders(root, name)]
    if names:
        return names
    deeper = root / "dataset"
    advice = f" Did you mean {deeper}?" if (deeper / "sequences").is_dir() else ""
    raise FileNotFoundError(
        "A folder of drives must have poses in poses/NN.txt and images in sequences/NN/image_2 "
        f"(or image_0, image_1, image_3), but {root} has none with both.{advice}"
    )


def pose_names(root: str | Path) -> list[str]:
    """Returns the drives in a folder that have poses, with or without images."""
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder of drives at {root}.")
    inside = _matching((root / "poses").glob("*.txt"), r"([\w-]+?)(?:_image1)?\.txt")
    above = _matching(root.glob("*.txt"), r"(\d+)(?:_image1)?\.txt")
    return sorted(inside | above)


def find_drive(root: str | Path, name: str) -> Place:
    """Finds the files of a drive; raises unless it has both poses and images."""
    root = Path(root)
    poses, cameras = find_poses(root, name), _camera_folders(root, name)
    if poses is None and cameras:
        raise FileNotFoundError(
            f"Drive {name} in {root} has images, but no poses: poses/{name}.txt is missing. KITTI "
            "has published poses of the drives 00 to 10."
        )
    if poses is None:
        what = f"A drive in {root} must be one of those with poses and images"
        check_known(what, [name], drive_names(root))
    if poses is None or not cameras:
        raise FileNotFoundError(
            f"Drive {name} in {root} has poses, but no images: there must be PNG files in "
            f"sequences/{name}/image_2 (or image_0, image_1, image_3)."
        )
    return Place(name, poses, find_times(root, name), cameras)


def find_poses(root: Path, name: str) -> Path | None:
    """Returns the file with the poses of a drive, or None."""
    return _first_file(root, name, _POSE_FILES)


def find_times(root: Path, name: str) -> Path | None:
    """Returns the file with the times of a drive, or None."""
    return _first_file(root, name, _TIME_FILES)


def _first_file(root: Path, name: str, patterns: Iterable[str]) -> Path | None:
    paths = (root / pattern.format(name) for pattern in patterns)
    return next((path for path in paths if path.is_file()), None)


def _camera_folders(root: Path, name: str) -> dict[str, Path]:
    for pattern in _SEQUENCES:
        folders = {camera: root / pattern.format(name) / camera for camera in CAMERAS}
        found = {camera: folder for camera, folder in folders.items() if has_images(folder)}
        if found:
            return found
    return {}


def _matching(paths: Iterable[Path], pattern: str) -> set[str]:
    matches = (re.fullmatch(pattern, path.name) for path in paths)
    return {match[1] for match in matches if match}
