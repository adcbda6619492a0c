"""Drives of a few frames around curves, whose pixels tell which frame they are of."""

import functools
import tempfile

import numpy as np

from filtrax.lab.tasks.kitti import Fold, KittiTask
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.recordings.files import write_drive
from kitti_data import poses_at

SIZE = (19, 35)
"""The smallest images that the paper's network can see."""

CAMERAS = ("image_2", "image_3")


def curved_drive(name="00", num_frames=12, *, size=SIZE, channels=3, cameras=CAMERAS):
    """Speeds and turns that change from frame to frame.

    The first pixel of an image is the number of its frame, the second that of its camera.
    """
    draw = np.random.default_rng([int(name), num_frames])
    heading = 170.0 + np.cumsum(draw.uniform(-4, 4, num_frames))  # across the half turn
    length = draw.uniform(0.3, 1.5, num_frames)
    angles = np.radians(heading)
    x, y = np.cumsum(length * np.cos(angles)), np.cumsum(length * np.sin(angles))
    images = {}
    for number, camera in enumerate(cameras):
        images[camera] = draw.integers(0, 256, (num_frames, *size, channels), np.uint8)
        images[camera][:, 0, 0, :] = np.arange(num_frames)[:, None]
        images[camera][:, 0, 1, :] = number
    times = np.cumsum(draw.uniform(0.1, 0.11, num_frames))
    return Drive(name, poses_at(x, y, heading), times, images)


@functools.cache
def folder() -> str:
    """Three drives in KITTI's layout."""
    root = tempfile.mkdtemp(prefix="filtrax-kitti-")
    for name in ("00", "01", "02"):
        write_drive(curved_drive(name), root)
    return root


def tiny_task(**changes):
    """Windows of four steps on these drives."""
    settings = {
        "root": folder(),
        "split": Fold("01"),
        "image_size": SIZE,
        "num_steps": 4,
        "windows_per_variant": 2,
        "test_stride": 3,
    }
    return KittiTask(**(settings | changes))
