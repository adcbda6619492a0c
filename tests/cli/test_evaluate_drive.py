"""`filtrax evaluate` on a drive that the run knows nothing of."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from filtrax.cli import app
from filtrax.lab.config import write
from filtrax.lab.config.filters import Ekf
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments import run
from filtrax.lab.experiments.building import build_ensemble
from filtrax.lab.tasks.disc import DiscTask
from filtrax.lab.tasks.kitti import Frames
from filtrax.lab.tasks.kitti.recordings.files import write_drive
from filtrax.training.checkpoints import save
from tiny_kitti import curved_drive, tiny_task


def call(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def drives(tmp_path_factory):
    """Gray drives, and one in colour."""
    root = tmp_path_factory.mktemp("drives")
    for name in ("00", "07"):
        write_drive(curved_drive(name, channels=1, cameras=("image_0",), num_frames=18), root)
    write_drive(curved_drive("03", num_frames=18), root)
    return root


@pytest.fixture(scope="module")
def trained(drives, tmp_path_factory):
    """A run without any training, whose own data are gone."""
    split = Frames("00", (0, 6), (6, 12), (12, 18))
    task = tiny_task(root=str(drives), split=split, num_steps=3)
    experiment = Experiment(task=task, filter=Ekf(), stages=())
    folder = tmp_path_factory.mktemp("run")
    save(folder / "model.npz", *build_ensemble(experiment, task.data("validation")))
    gone = dataclasses.replace(task, root="gone")
    write(folder / "config.toml", dataclasses.replace(experiment, task=gone))
    return folder


def test_a_drive_is_scored_without_the_data_of_the_run(drives, trained, tmp_path):
    # Rejects frames of another part of the drive, mirrored windows, and a test of the run's own.
    place = ("--root", drives, "--sequence", "07", "--frames", "2:12")
    code, shown, complaint = call("evaluate", trained, *place, "--out", tmp_path / "out.json")
    assert code == 0, complaint
    assert "translation error:" in shown
    assert "m/m (± standard error over windows)" in shown
    result = json.loads((tmp_path / "out.json").read_text())
    # Frames 2 to 10 have forward velocities; windows of 3 steps begin at 2, 5 and not later than 8.
    assert result["num_sequences"] == 2
    assert result["task"]["split"] == {"kind": "part", "sequence": "07", "frames": [2, 12]}
    windows = result["windows"]
    for name in ("translation_error", "rotation_error", "distance", "nll"):
        np.testing.assert_allclose(windows[name]["mean"], result["mean"][name], rtol=1e-5)
        assert windows[name]["standard_error"] > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"--sequence": None}, "must be named by --root and --sequence both"),
        ({"--root": None}, "must be named by --root and --sequence both"),
        ({"--frames": "9:3"}, "--frames must be two whole numbers A:B"),
        ({"--frames": "few"}, "got 'few'"),
        ({"--frames": "0:3"}, "at least 5 frames for windows of 3 steps"),
        ({"--frames": "0:99"}, "must lie within 0:18"),
        ({"--sequence": "70"}, "07"),
        ({"--sequence": "03"}, "as many channels as those that the sensor"),
        ({"--root": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_scored_is_named(drives, trained, changes, sentence):
    options = {"--root": drives, "--sequence": "07", "--frames": "0:10"} | changes
    arguments = [part for pair in options.items() if pair[1] is not None for part in pair]
    code, shown, complaint = call("evaluate", trained, *arguments)
    assert (code, shown) == (2, "")
    assert complaint.count("\n") == 1
    assert sentence in complaint


def test_a_run_of_another_task_is_refused(drives, tmp_path):
    write(tmp_path / "config.toml", Experiment(task=DiscTask()))
    (tmp_path / "model.npz").write_bytes(b"")
    code, _, complaint = call("evaluate", tmp_path, "--root", drives, "--sequence", "00")
    assert code == 2
    assert "runs of the task 'kitti'" in complaint
    assert "'disc'" in complaint


def test_all_frames_are_taken_where_none_are_named(drives, trained, monkeypatch):
    told = []

    def stop(experiment, *_):
        told.append(experiment.task)
        raise ValueError("enough")

    monkeypatch.setattr(run, "Evaluation", stop)
    call("evaluate", trained, "--root", drives, "--sequence", "00", "--camera", "image_0")
    assert told[0].split.frames == (0, 18)
    assert told[0].cameras == ("image_0",)
    assert jax.tree.leaves(told[0].data("test"))
