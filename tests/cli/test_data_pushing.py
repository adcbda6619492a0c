"""`filtrax data pushing`: what it prints, writes and refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from filtrax.cli import app
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS

pytestmark = pytest.mark.usefixtures("own_folder")

TINY = [
    part
    for setting in ("num_test=2", "num_test_steps=4", "image_size=[24,32]", 'objects=["rect1"]')
    for part in ("--set", f"task.{setting}")
]


def call(*arguments):
    return CliRunner().invoke(app, ["data", "pushing", *map(str, arguments)], prog_name="filtrax")


def write_trial(name):
    """The tip pushes a square to the right, 10 mm in each fifth of a second."""
    times = np.linspace(0.0, 1.0, 26)
    zeros = 0 * times
    touching = 0.045 + TIP_RADIUS / 1000
    tables = {
        "tip_pose": np.stack([times, 0.05 * times - touching, zeros, zeros], 1),
        "object_pose": np.stack([times, 0.05 * times, zeros, zeros], 1),
        "ft_wrench": np.zeros((26, 4)),
    }
    path = Path(name)
    path.write_text(json.dumps({name: table.tolist() for name, table in tables.items()}))
    return path


@pytest.mark.long
def test_simulated_pushes_are_described_drawn_and_written():
    done = call(*TINY, "--preview", "pushes.png", "--export", "files")
    assert done.exit_code == 0, done.output
    assert "pushing, test: 2 sequences of 4 steps" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if "rect1" in line)
    assert row[:2] == ["rect1", "2"]
    with Image.open("pushes.png") as sheet:
        assert sheet.size == (5 * 32 + 4 * 2, 2 * 24 + 2)
    assert json.loads(Path("files/dataset.json").read_text())["parameters"]["num_test"] == 2
    assert Path("files/sequence_0001/object.txt").read_text() == "rect1\n"
    with Path("files/sequence_0001/states.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["moment"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert float(rows[0]["theta"]) == 0
    assert rows[0]["next_tip_x"] == rows[1]["tip_x"]
    assert {float(row["s"]) for row in rows} <= {0.0, 1.0}
    with Image.open("files/sequence_0001/frame_04.png") as frame:
        assert frame.size == (32, 24)
    again = call(*TINY, "--export", "files")
    assert again.exit_code == 2
    assert "must be new or empty" in again.stderr


@pytest.mark.long
def test_recorded_pushes_become_one_sequence_that_the_same_camera_sees():
    path = write_trial("motion_surface=abs_shape=rect1_v=50.json")
    size = ("--set", "image_size=[24,32]", "--preview", "trials.gif")
    done = call("--trial", path, "--trial", path, *size)
    assert done.exit_code == 0, done.output
    assert "pushing, recorded: one sequence of" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "rect1" in line)
    assert "10.0 mm / 0.0°" in row
    with Image.open("trials.gif") as animation:
        # Twice five steps, and one more at least in which the pusher goes back.
        assert getattr(animation, "n_frames", 1) > 11


def test_wrong_arguments_are_refused():
    square, disc = (write_trial(f"motion_shape={name}_v=50.json") for name in ("rect1", "ellip1"))
    for arguments, message in (
        (["--preview", "pushes.jpg"], ".png or .gif"),
        (["--trial", square, "--trial", disc], "one object, got ellip1, rect1"),
        (["--trial", write_trial("motion_v=50.json")], "as in shape=hex"),
        (["--set", "objects=['rect9']"], "rect"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2, done.output
        assert message in " ".join(done.stderr.split())
