"""How far it is from the command line to the equations of a filter."""

import sys
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

import filtrax
from filtrax.cli import app

ROOT = str(Path(filtrax.__file__).parent)
SETTINGS = [
    "task.num_distractors=2",
    "task.image_size=42",
    "task.num_steps=4",
    "task.num_train=4",
    "task.num_validation=2",
    "task.num_test=2",
    "stages.0.length=2",
    "stages.0.frames_per_batch=8",
]


class ReachedError(Exception):
    """Ends the run where the filter is."""


@pytest.mark.parametrize("num_seeds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_few_frames_lead_from_the_command_line_to_the_update(num_seeds, own_folder, monkeypatch):
    """Rejects layers that only hand on: whoever reads a traceback reads all of them."""
    frames = []

    def update(*arguments, **options):
        stack = traceback.extract_stack(sys._getframe(1))
        frames.extend(f"{f.filename}:{f.name}" for f in stack if f.filename.startswith(ROOT))
        raise ReachedError

    monkeypatch.setattr(filtrax.ExtendedKalmanFilter, "update", update)
    settings = [*SETTINGS, f"num_seeds={num_seeds}"]
    done = CliRunner().invoke(app, ["train", *(p for s in settings for p in ("--set", s))])
    assert isinstance(done.exception, ReachedError), done.output
    verb = frames.index(str(Path(ROOT, "cli", "train.py")) + ":train")
    assert frames[-1].endswith("base.py:step")
    # The verb is the first one, and the update of the filter the last.
    assert len(frames[verb:]) + 1 <= 15, frames
