"""A disc experiment that trains in seconds, and a run of it that many tests look at."""

import dataclasses
import functools
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments import building, ensembles, run
from filtrax.lab.experiments.evaluation import select
from filtrax.lab.tasks.disc import DiscTask

TASK = DiscTask(
    num_distractors=2, image_size=42, num_steps=4, num_train=4, num_validation=2, num_test=3
)
STAGE = StageSettings(num_epochs=2, length=2, frames_per_batch=8, warmup_steps=2)
EXPERIMENT = Experiment(name="tiny", num_seeds=2, task=TASK, stages=(STAGE,))
"""Two members, so that programs are shared with runs of one seed and two learning rates."""


def changed(**changes):
    return dataclasses.replace(EXPERIMENT, **changes)


class Recorder:
    """A watch that writes everything down."""

    def __init__(self):
        self.starts, self.steps, self.records, self.messages = [], [], [], []

    def start(self, stage, num_epochs, num_steps_per_epoch):
        self.starts.append((stage, num_epochs, num_steps_per_epoch))

    def step(self, done):
        self.steps.append(done)

    def epoch(self, record):
        self.records.append(record)

    def message(self, text):
        self.messages.append(text)


BUILT_SEEDS = 4


@functools.cache
def _built(task, model, filt):
    experiment = Experiment(
        num_seeds=BUILT_SEEDS, task=task, model=model, filter=filt, stages=(STAGE,)
    )
    return building.build_ensemble(experiment, task.data("train"))


def build_once(experiment, data):
    """Instead of `build_ensemble`: the same, but compiled once for all runs that begin alike."""
    del data
    seeds = np.asarray([seed for seed, _ in experiment.members])
    assert seeds.max() < BUILT_SEEDS
    return select(_built(experiment.task, experiment.model, experiment.filter), seeds)


@functools.cache
def finished() -> tuple[Path, dict, Recorder]:
    """The folder of a finished run, its result, and what its watch was told."""
    folder = Path(tempfile.mkdtemp(prefix="filtrax-")) / "tiny"
    watch = Recorder()
    with mock.patch.object(ensembles, "build_ensemble", build_once):
        return folder, run.train(EXPERIMENT, folder, watch), watch


def environment() -> dict[str, str]:
    """For a process that shall do what this one does."""
    here = Path(__file__).parent
    folders = filter(None, [str(here), str(here / "lab"), os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "JAX_ENABLE_X64": "1"}


def content(folder: Path) -> dict[str, bytes]:
    """What must not depend on interruptions."""
    return {name: (folder / name).read_bytes() for name in ("result.json", "model.npz")}
