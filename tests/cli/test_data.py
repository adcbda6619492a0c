"""`filtrax data kitti` and `filtrax data streets`: what they print, write and refuse."""

import importlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from filtrax.cli import app
from filtrax.lab.tasks.kitti.recordings import preview
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.kitti.recordings.files import read_drive, write_drive
from filtrax.lab.tasks.kitti.streets import collection
from kitti_data import poses_at, tiny_drive

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def root():
    """A turning drive without times, a straight one, and poses without images."""
    drive = tiny_drive("00", num_frames=3)
    turning = Drive("01", poses_at([0, 3, 6], [0, 4, 0], [0, 30, -10]), drive.times, drive.cameras)
    write_drive(drive, "kitti")
    write_drive(turning, "kitti")
    shutil.copy("kitti/poses/00.txt", "kitti/poses/09.txt")
    Path("kitti/sequences/01/times.txt").unlink()
    return Path("kitti")


@pytest.fixture
def calls(monkeypatch):
    """The generator is replaced by one that draws what it is asked for at once."""
    calls = []

    def drive_path(seed, num_frames, *, highway=False):
        calls.append(("path", seed, num_frames, highway))
        drive = tiny_drive(num_frames=num_frames)
        return drive.poses, drive.times

    def generate_drive(name, poses, times, *, image_size, cameras, seed, progress):
        calls.append(("drive", name, seed))
        drive = tiny_drive(name, len(poses), image_size, cameras)
        progress(len(poses), len(poses))
        return Drive(name, poses, times, drive.cameras)

    module = "filtrax.lab.tasks.kitti.streets.collection"
    monkeypatch.setattr(f"{module}.drive_path", drive_path)
    monkeypatch.setattr(f"{module}.generate_drive", generate_drive)
    return calls


@pytest.fixture
def drawn(monkeypatch):
    """Which drives are drawn, and how."""
    drawn = []

    def note(kind):
        return lambda drives, path: drawn.append((kind, [drive.name for drive in drives], path))

    monkeypatch.setattr(preview, "contact_sheet", note("sheet"))
    monkeypatch.setattr(preview, "animation", note("animation"))
    return drawn


def call(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], prog_name="filtrax")


def words(done):
    return [line.split() for line in done.stdout.splitlines()]


def test_kitti_converts_and_describes(root, drawn):
    done = call("kitti", "--root", root, "--size", "3x4", "--preview", "a.PNG")
    assert done.exit_code == 0, done.output
    # 2 m in 0.101 s and in 0.103 s; 5 m and 30 or -40 degrees in a mean step.
    straight = "00 3 image_2, image_3 (colour) 3 x 4 4 m 19.4 to 19.8 m/s 0.0 to 0.0 °/s file"
    turning = "01 3 image_2, image_3 (colour) 3 x 4 10 m 48.2 to 48.2 m/s -385.7 to 289.3 °/s mean"
    assert straight.split() in words(done)
    assert [*turning.split(), "step"] in words(done)
    assert done.stdout.count("the mean step of 0.1037 s is taken") == 1
    assert "Poses without images, left out: 09.\n" in done.stdout
    (kept,) = Path(os.environ["XDG_CACHE_HOME"]).rglob(f"{root.name}-*/01_image_3_3x4.npy")
    assert f"Images are kept in: {kept.parent}\n" in done.stdout
    assert not (root / ".filtrax").exists()
    assert drawn == [("sheet", ["00", "01"], Path("a.PNG"))]


def test_kitti_takes_the_drives_and_the_cache_that_it_is_told(root, drawn):
    arguments = ("--root", root, "--size", "6x9", "--cache", "kept", "--preview", "a.gif")
    done = call("kitti", "--sequence", "00", "--sequence", "0", *arguments)
    assert done.exit_code == 0, done.output
    assert [row[0] for row in words(done) if row and row[0].isdigit()] == ["00"]
    assert "mean step" not in done.stdout
    assert "left out" not in done.stdout
    assert not (root / ".filtrax").exists()
    assert len([*Path("kept").rglob("00_image_2_6x9.npy")]) == 1
    assert drawn == [("animation", ["00"], Path("a.gif"))]


def test_streets_writes_what_kitti_reads(calls, drawn):
    arguments = ("--frames", 3, "--size", "4x5", "--cameras", "image_0", "--seed", 2)
    done = call("streets", "out", *arguments, "--preview", "a.gif")
    assert done.exit_code == 0, done.output
    names = [f"{number:02d}" for number in range(11)]
    paths = [entry for entry in calls if entry[0] == "path"]
    assert [entry[2:] for entry in paths] == [(3, name == "01") for name in names]
    assert len({seed for _, seed, *_ in paths}) == len(names)
    # Rejects streets that are others than those of a task with the same seed.
    expected = [("drive", name, path[1]) for name, path in zip(names, paths, strict=True)]
    assert [entry for entry in calls if entry[0] == "drive"] == expected
    assert [row[0] for row in words(done) if row and row[0].isdigit()] == names
    assert drawn == [("animation", names[:4], Path("a.gif"))]
    drive = read_drive("out", "10", image_size=(4, 5))
    expected = tiny_drive("10", 3, (4, 5), ("image_0",))
    np.testing.assert_array_equal(drive.cameras["image_0"], expected.cameras["image_0"])
    np.testing.assert_array_equal(drive.times, expected.times)


def test_streets_follows_given_poses(root, calls):
    done = call("streets", "out", "--poses", root, "--frames", 2, "--size", "4x5")
    assert done.exit_code == 0, done.output
    assert [entry for entry in calls if entry[0] == "path"] == []
    for name in ("00", "01", "09"):
        drive = read_drive("out", name, image_size=(4, 5))
        np.testing.assert_array_equal(drive.poses, read_poses(root, name)[:2])
    assert call("streets", "whole", "--poses", root, "--sequence", "01").exit_code == 0
    assert len(read_drive("whole", "01").poses) == 3


def read_poses(root, name):
    return np.loadtxt(root / "poses" / f"{name}.txt").reshape(-1, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("kitti",), ("--root", "`filtrax data kitti --help`")),
        (("kitti", "--root", "none"), ("There is no folder of drives at none.",)),
        (("kitti", "--root", "."), ("poses/NN.txt",)),
        (("kitti", "--root", "kitti", "--sequence", "2"), ("got ['02']", "['00', '01']")),
        (("kitti", "--root", "kitti", "--sequence", "09"), ("poses, but no images",)),
        (("kitti", "--root", "kitti"), ("to 50 x 150 pixels", "6 x 9: ask for that size")),
        (("kitti", "--root", "kitti", "--size", "50"), ("as in 50x150, got '50'",)),
        (("kitti", "--root", "kitti", "--preview", "a.jpg"), (".png or .gif", "a.jpg")),
        (("streets",), ("OUT",)),
        (("streets", "kitti"), ("kitti has one named 00", "choose another folder")),
        (("streets", "out", "--frames", "1"), ("--frames",)),
        (("streets", "out", "--cameras", "image_5"), ("'image_5'", "Did you mean 'image_")),
        (("streets", "out", "--sequence", "../a"), ("'../a'", "'00'")),
        (("streets", "out", "--sequence", "one"), ("'one'", "'00'")),
        (("streets", "out", "--poses", "kitti/sequences"), ("poses/NN.txt", "none in kitti/seq")),
        (("streets", "out", "--poses", "kitti", "--sequence", "7"), ("got ['07']",)),
    ],
)
def test_mistakes_end_with_one_sentence(root, calls, arguments, parts):
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr
    assert calls == []
    assert not Path("out").exists()


@pytest.mark.parametrize("verb", ["kitti", "streets"])
def test_help_has_an_example(verb):
    done = call(verb, "--help")
    assert done.exit_code == 0
    assert f"Example: filtrax data {verb}" in done.stdout


def test_the_help_of_streets_names_the_length_of_a_drive():
    command = importlib.import_module("filtrax.cli.data.streets")
    assert command.NUM_FRAMES == collection.NUM_FRAMES
