"""Runs experiments: training, evaluation, and resuming after an interruption."""

import contextlib
import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from filtrax.lab import config
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.building import blank_ensemble
from filtrax.lab.experiments.ensembles import EnsembleTraining, Silent, Watch
from filtrax.lab.experiments.evaluation import Evaluation, select
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import as_json, read_json
from filtrax.lab.provenance import provenance
from filtrax.lab.registry import registered
from filtrax.lab.tasks import AbstractRecordedTask, AbstractTask
from filtrax.training.checkpoints import load, save, stored_shape
from filtrax.training.devices import Devices
from filtrax.trajectory import Trajectory


def train(
    experiment: Experiment,
    folder: Path,
    watch: Watch | None = None,
    *,
    resume: bool = False,
    devices: Devices = "one",
) -> dict[str, Any]:
    """Trains all stages of an experiment, tests the result, and records both in a folder.

    Every epoch ends with a checkpoint. With `resume`, the run continues from the newest readable
    checkpoint in the folder, and gives the same result as without the interruption. `devices` are
    those to train on at once: "one", "all" or a list.
    """
    run = Run(experiment, RunFolder(Path(folder)), watch or Silent(), devices)
    with contextlib.ExitStack() as lock:
        data, state = run.begin(resume, lock)
        filt, model = run.keep(run.training.train(data, state, resume=resume))
        evaluation = Evaluation(experiment, filt, model, "test")
        result = run.result(evaluation, "test")
        run.folder.write_arrays(run.folder.evaluation, evaluation.arrays(0))
        run.folder.write_json(run.folder.result, result)
    return result


def evaluate(folder: Path, split: str = "test") -> dict[str, Any]:
    """Evaluates a finished run on any split of its task; returns its result."""
    run = open_run(folder)
    return run.result(Evaluation(run.experiment, *run.trained(), split), split)


def evaluate_recording(
    folder: Path,
    root: str,
    sequence: str,
    frames: tuple[int, int] | None = None,
    cameras: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates a finished run on another recording, if its task can; the run's data are not used.

    `frames` is the range to use, by default all frames, and `cameras` are by default the run's.
    """
    run = open_run(folder)
    task = run.experiment.task
    if not isinstance(task, AbstractRecordedTask):
        tasks = registered(AbstractTask) or {}
        able = [repr(kind) for kind, cls in tasks.items() if issubclass(cls, AbstractRecordedTask)]
        raise ValueError(
            f"Recordings can be scored with runs of the task {' or '.join(able)}, but {folder} is "
            f"one of the task {task.kind!r}."
        )
    task = task.on_recording(root, sequence, frames, cameras)
    elsewhere = Run(dataclasses.replace(run.experiment, task=task), run.folder, run.watch)
    evaluation = Evaluation(elsewhere.experiment, *elsewhere.trained("test"), "test")
    result = elsewhere.result(evaluation, "test")
    return result | {"windows": over_windows(evaluation)}


def open_run(folder: Path) -> "Run":
    """Opens the run in an existing folder."""
    records = RunFolder(Path(folder))
    records.check()
    records.check_plugins()
    return Run(config.read(Experiment, records.config), records, Silent())


class Run:
    """An experiment with the folder of its records."""

    def __init__(
        self, experiment: Experiment, folder: RunFolder, watch: Watch, devices: Devices = "one"
    ):
        self.experiment, self.folder, self.watch = experiment, folder, watch
        self.training = EnsembleTraining([experiment], folder, watch, devices=devices)

    def fit(self, resume: bool) -> tuple[Any, Any]:
        """Trains from the start, or from the newest checkpoint, and saves filters and models."""
        with contextlib.ExitStack() as lock:
            data, state = self.begin(resume, lock)
            return self.keep(self.training.train(data, state, resume=resume))

    def begin(
        self, resume: bool, lock: contextlib.ExitStack
    ) -> tuple[list[Trajectory], tuple[Any, Any]]:
        """Makes the folder; returns the data to train on, and the filters and models before.

        No other process can train in the folder until `lock` is closed.
        """
        if not self.experiment.stages:
            raise ValueError("stages must name at least one stage of training, got none.")
        if resume:
            self.folder.check()
            lock.enter_context(self.folder.locked())
            check_unchanged(self.experiment, self.folder, self.watch)
        data = [self.experiment.task.data("train")]
        state = self.training.begin(data, trained_parts)
        # Make the folder after the model, so that a failed build leaves no files.
        self.folder.create(resume=resume)
        if not resume:
            lock.enter_context(self.folder.locked())
            config.write(self.folder.config, self.experiment)
        if not self.folder.provenance.is_file():
            origin = provenance(seed=self.experiment.seed)
            settings = {"settings": config.as_dict(self.experiment)}
            self.folder.write_json(self.folder.provenance, origin | settings)
        return data, state

    def keep(self, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """Saves the filters and models with the best learning rate, and returns them."""
        filt, model = select(state, np.asarray(self.training.chosen(0)))
        with self.folder.writing(self.folder.model):
            save(self.folder.model, filt, model)
        return filt, model

    def trained(self, split: str = "validation") -> tuple[Any, Any]:
        """Loads the trained filters and models, one for each seed.

        `split` must have data, because the models are built for the shapes of its data first.
        """
        if not self.folder.model.is_file():
            raise FileNotFoundError(
                f"The run in {self.folder.path} has not finished training: go on with "
                f"`filtrax train --resume {self.folder.path}`."
            )
        self.training.lines = self.folder.read_metrics()
        template = blank_ensemble(self.experiment, self.experiment.task.data(split))
        check_channels(self.folder.model, template[1])
        return load(self.folder.model, *template)

    def result(self, evaluation: Evaluation, split: str) -> dict[str, Any]:
        """Returns metrics and settings of an evaluation, for the best learning rate."""
        summary = self.training.summary()
        members = [
            summary[chosen] | {"metrics": evaluation.metrics(i)}
            for i, chosen in enumerate(self.training.chosen(0))
        ]
        return {
            "name": self.experiment.name,
            "task": config.as_dict(self.experiment.task),
            "filter": self.experiment.filter.kind,
            "split": split,
            "num_sequences": int(evaluation.data.initial.shape[0]),
            "perturbations": len(evaluation.perturbations),
            "members": members,
        } | averages(members)


def check_unchanged(experiment: Experiment, folder: RunFolder, watch: Watch) -> None:
    """Raises if settings differ from those that the run in a folder began with.

    Names, and the folders where things are, may change; the watch is told.
    """
    if not folder.provenance.is_file():
        return
    origin = read_json(folder.provenance)
    before = origin.get("settings") if isinstance(origin, dict) else None
    if before is None:
        return
    # Settings that a newer version has added have their defaults.
    before = json.loads(as_json(config.completed(before, experiment)))
    now = json.loads(as_json(config.as_dict(experiment)))
    changes = [
        f"{key} is {new!r}, was {old!r}" for key, old, new in config.differences(before, now)
    ]
    harmful = [change for change in changes if change.split(" is ")[0] not in MAY_CHANGE]
    if harmful:
        raise ValueError(
            f"A resumed run keeps its settings, but those of {folder.path} were changed after it "
            f"began: {'; '.join(harmful)}. Change them back, or train with them in another folder: "
            f"`filtrax train {shlex.quote(str(folder.config))} --out OTHER`."
        )
    if changes:
        watch.message(f"Settings were changed after the run began: {'; '.join(changes)}.")


MAY_CHANGE = ("name", "task.root", "task.poses", "task.cache", "start.run")
"""Settings of a run that may be changed before it is resumed."""


def check_channels(path: Path, model: Any) -> None:
    """Raises if a saved image sensor was trained on another number of channels than the model's."""
    network = getattr(getattr(model.sensor, "encoder", None), "network", None)
    kernels = getattr(network, "kernels", None)
    if kernels is None:
        return
    name, wanted = "model.sensor.encoder.network.kernels[0]", kernels[0].shape
    found = stored_shape(path, name) or wanted
    if len(found) != len(wanted):
        return  # which loading refuses
    if found[:-2] == wanted[:-2] and found[-1] == wanted[-1] and found[-2] != wanted[-2]:
        raise ValueError(
            f"The images must have as many channels as those that the sensor in {path} was trained "
            f"on, which sees {found[-2]} with their differences, got {wanted[-2]}: choose a camera "
            "that is gray (image_0, image_1) or in colour (image_2, image_3) alike."
        )


def over_windows(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Computes mean and standard error over sequences, of averages over members.

    Overlapping windows are not independent, so that their standard error is too small.
    """
    steps = evaluation.steps
    distance = np.sqrt((steps["difference"] ** 2).sum(-1))
    values = {"distance": distance.mean(-1), "nll": steps["nll"].mean(-1)} | evaluation.scores
    found = {}
    for name, numbers in values.items():
        each = np.nanmean(numbers, axis=(0, 1))
        each = each[np.isfinite(each)]
        error = each.std(ddof=1) / math.sqrt(each.size) if each.size > 1 else math.nan
        found[name] = {"mean": float(each.mean()), "standard_error": float(error)}
    return found


def trained_parts(experiment: Experiment) -> tuple[Any, Any, int]:
    """Loads filters, models and the number of members of the run that an experiment starts from."""
    other = open_run(Path(experiment.start.run))
    return *other.trained(), other.experiment.num_seeds


def averages(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Averages metrics over members; the standard error of one member is None."""
    count = len(members)
    values = {
        name: np.asarray([member["metrics"][name] for member in members])
        for name in members[0]["metrics"]
    }
    return {
        "mean": {name: float(value.mean()) for name, value in values.items()},
        "standard_error": {
            name: float(value.std(ddof=1) / math.sqrt(count)) if count > 1 else None
            for name, value in values.items()
        },
    }
