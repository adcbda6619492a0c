"""Previews are read again: which images are on them, and where the path goes."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from filtrax.lab.tasks.kitti.recordings.preview import (
    CAR,
    GAP,
    INK,
    SMALLEST_VIEW,
    animation,
    contact_sheet,
)
from kitti_data import poses_at, tiny_drive

SIDE = SMALLEST_VIEW
TOP = 16


def read(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def marks(picture, colour):
    """Rows and columns of pixels of a colour."""
    return np.argwhere((picture == colour).all(axis=2))


def test_the_contact_sheet_shows_a_drive_from_start_to_end(tmp_path):
    # Rejects other frames or another order, blurred images, and rows for columns.
    drive = tiny_drive(num_frames=17)
    contact_sheet([drive, drive], tmp_path / "folder" / "sheet.png", zoom=2)
    sheet = read(tmp_path / "folder" / "sheet.png")
    assert sheet.shape == (2 * (TOP + SIDE) + GAP, SIDE + 3 * (18 + GAP), 3)
    for index in range(9):
        row, column = divmod(index, 3)
        top, left = TOP + row * (12 + GAP), SIDE + GAP + column * (18 + GAP)
        shown = sheet[top : top + 12 : 2, left : left + 18 : 2]
        np.testing.assert_array_equal(shown, drive.cameras["image_2"][2 * index])
    np.testing.assert_array_equal(sheet[: TOP + SIDE], sheet[TOP + SIDE + GAP :])


def test_the_path_is_seen_from_above(tmp_path):
    """20 m ahead, then 10 m to the left: up and then left on the paper.

    Rejects a mirrored path, one that lies on its side, and other scales along the two axes.
    """
    poses = poses_at([0.0, 10.0, 20.0, 20.0], [0.0, 0.0, 0.0, 10.0], 0.0)
    contact_sheet([dataclasses.replace(tiny_drive(), poses=poses)], tmp_path / "sheet.png")
    view = read(tmp_path / "sheet.png")[TOP : TOP + SIDE, :SIDE]
    line, car = marks(view, INK), marks(view, CAR).mean(axis=0)
    (top, left), (bottom, right) = line.min(axis=0), line.max(axis=0)
    assert abs((bottom - top - 8) - 2 * (right - left - 8)) <= 14
    assert abs(car[0] - top) < 8
    assert abs(car[1] - left) < 8
    start = line[line[:, 0] > bottom - 6]
    assert abs(start[:, 1].mean() - right) < 8


def test_the_animation_moves(tmp_path):
    # Rejects a still picture, one camera for two, and a car that stays where it was.
    drive, short = tiny_drive(num_frames=5), tiny_drive("01", num_frames=2)
    animation([drive, short], tmp_path / "drives.gif", num_images=4, zoom=1)
    cars = []
    with Image.open(tmp_path / "drives.gif") as gif:
        assert (gif.n_frames, gif.info["duration"]) == (4, 100)
        assert gif.size == (SIDE + 2 * (9 + GAP), 2 * (TOP + SIDE) + GAP)
        for time in range(4):
            gif.seek(time)
            shown = np.asarray(gif.convert("RGB")).astype(int)
            for index, camera in enumerate(drive.cameras):
                left = SIDE + GAP + index * (9 + GAP)
                image = shown[TOP : TOP + 6, left : left + 9]
                # A GIF has 256 colours.
                assert np.abs(image - drive.cameras[camera][time]).mean() < 20
            view = shown[TOP : TOP + SIDE, :SIDE]
            cars.append(np.argwhere(np.abs(view - CAR).sum(axis=2) < 40).mean(axis=0))
    rows = [row for row, _ in cars]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] - rows[-1] > 50


def test_gray_images_and_single_frames_are_drawn(tmp_path):
    drive = tiny_drive(channels=1, cameras=("image_0",)).frames(0, 1)
    contact_sheet([drive], tmp_path / "sheet.png", zoom=1)
    sheet = read(tmp_path / "sheet.png")[TOP : TOP + 6, SIDE + GAP : SIDE + GAP + 9]
    np.testing.assert_array_equal(sheet, np.repeat(drive.cameras["image_0"][0], 3, axis=2))
    animation([drive], tmp_path / "drives.gif")


@pytest.mark.parametrize(
    ("drives", "options", "sentence"),
    [
        ([], {}, "must be a drive at least"),
        ([tiny_drive()], {"zoom": 0}, "`zoom` must be at least 1, got 0"),
        ([tiny_drive()], {"num_images": 0}, "`num_images` must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_named(tmp_path, drives, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        animation(drives, tmp_path / "drives.gif", **options)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"^The preview cannot be written to .*a\.png: .*\.$"):
        contact_sheet([tiny_drive()], tmp_path / "file" / "a.png")
