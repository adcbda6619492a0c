"""Small drives that are known exactly, and where real ones are if this machine has them."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from filtrax.lab.tasks.kitti.recordings.drives import Drive

BESIDE = Path(__file__).parents[2] / "shared" / "data"
"""Data may lie beside the checkout."""

REAL_NAMES = [f"{number:02d}" for number in range(11)]


def find_real_kitti() -> Path | None:
    """A folder in KITTI's layout with images: the one named in FILTRAX_KITTI, or beside us."""
    named = os.environ.get("FILTRAX_KITTI")
    folder = Path(named) if named else BESIDE / "kitti_00_gray"
    return folder if (folder / "sequences").is_dir() else None


def find_real_poses() -> Path | None:
    """A folder with the poses of all eleven drives of KITTI."""
    named = os.environ.get("FILTRAX_KITTI")
    folders = [Path(named)] if named else []
    for folder in [*folders, BESIDE / "kitti_poses"]:
        if all((folder / "poses" / f"{name}.txt").is_file() for name in REAL_NAMES):
            return folder
    return None


def poses_at(x, y, heading):
    """KITTI's poses of a car at x forward and y to the left, headings in degrees to the left."""
    x, y, heading = np.broadcast_arrays(*(np.asarray(part, float) for part in (x, y, heading)))
    cosine, sine = np.cos(np.radians(heading)), np.sin(np.radians(heading))
    poses = np.zeros((len(x), 3, 4))
    poses[:, 0, 0], poses[:, 0, 2] = cosine, -sine
    poses[:, 2, 0], poses[:, 2, 2] = sine, cosine
    poses[:, 1, 1] = 1.0
    poses[:, 0, 3], poses[:, 2, 3] = -y, x
    return poses


def tiny_drive(name="00", num_frames=4, size=(6, 9), cameras=("image_2", "image_3"), channels=3):
    """A drive of 2 m a frame straight ahead with random images."""
    draw = np.random.default_rng([len(name), num_frames])
    images = {
        camera: draw.integers(0, 256, (num_frames, *size, channels), np.uint8) for camera in cameras
    }
    frames = np.arange(num_frames)
    return Drive(name, poses_at(2.0 * frames, 0.0, 0.0), 0.1 * frames + 0.001 * frames**2, images)


def save_png(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path)
