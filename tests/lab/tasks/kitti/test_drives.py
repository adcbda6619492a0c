"""Drives: what they know of themselves, and what they refuse."""

import dataclasses

import numpy as np
import pytest

from kitti_data import poses_at, tiny_drive


def test_a_drive_knows_its_sizes():
    drive = tiny_drive(num_frames=5)
    assert (drive.num_frames, drive.image_size, drive.num_channels) == (5, (6, 9), 3)
    assert tiny_drive(channels=1).num_channels == 1


def test_the_length_is_that_of_the_path_seen_from_above():
    # Rejects the distance from start to end, and climbing counted as driving.
    poses = poses_at([0.0, 3.0, 3.0, 0.0], [0.0, 4.0, 0.0, 0.0], 0.0)
    poses[:, 1, 3] = [0.0, -1.0, 2.0, 0.0]
    assert dataclasses.replace(tiny_drive(), poses=poses).length == pytest.approx(5 + 4 + 3)


def test_a_part_of_a_drive_keeps_its_coordinates():
    drive = tiny_drive(num_frames=6)
    part = drive.frames(2, 5)
    assert (part.name, part.num_frames) == ("00", 3)
    np.testing.assert_array_equal(part.poses, drive.poses[2:5])
    np.testing.assert_array_equal(part.times, drive.times[2:5])
    for camera, images in drive.cameras.items():
        np.testing.assert_array_equal(part.cameras[camera], images[2:5])


@pytest.mark.parametrize(("first", "stop"), [(0, 7), (-1, 3), (3, 3), (4, 2)])
def test_a_part_must_lie_in_the_drive(first, stop):
    with pytest.raises(ValueError, match=rf"within 0:6 and be one at least, got {first}:{stop}"):
        tiny_drive(num_frames=6).frames(first, stop)


FRAMES = np.zeros((4, 6, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"poses": np.zeros((4, 4, 4))}, r"shape \(n, 3, 4\) .* got \(4, 4, 4\)"),
        ({"poses": np.zeros((0, 3, 4))}, r"with one at least, got \(0, 3, 4\)"),
        ({"poses": np.full((4, 3, 4), np.nan)}, "with 48 that are not finite"),
        ({"poses": np.zeros((4, 3, 4), np.float32)}, "of type float64, got float32"),
        ({"times": np.arange(3.0)}, r"one per pose, shape \(4,\), got \(3,\)"),
        ({"times": np.array([0.0, 1.0, np.inf, 3.0])}, "with 1 that are not finite"),
        ({"times": np.array([0.0, 2.0, 2.0, 3.0])}, "frame 2 comes at 2 s after frame 1 at 2 s"),
        ({"cameras": {}}, "must have a camera at least"),
        ({"cameras": {"image_2": FRAMES[:3]}}, r"image_2 of drive 00 .* got .*\(3, 6, 9, 3\)"),
        ({"cameras": {"image_2": FRAMES[..., :2]}}, r"1 or 3\), got .*\(4, 6, 9, 2\)"),
        ({"cameras": {"image_2": FRAMES.astype(float)}}, "must be uint8 .* got float64"),
        (
            {"cameras": {"image_0": FRAMES[..., :1], "image_2": FRAMES}},
            "one shape, .* either the gray or the colour cameras",
        ),
    ],
)
def test_what_does_not_fit_is_named(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(tiny_drive(), **changes)
