"""From an experiment to the folder of its run, and from there on after an interruption."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from filtrax.experiments import config
from filtrax.experiments.building import blank_ensemble
from filtrax.experiments.ensembles import EnsembleTraining, Silent, Watch
from filtrax.experiments.evaluation import Evaluation, select
from filtrax.experiments.provenance import provenance
from filtrax.experiments.records import RunFolder
from filtrax.experiments.settings import Experiment
from filtrax.training.checkpoints import load, save


def train(
    experiment: Experiment, folder: Path, watch: Watch | None = None, *, resume: bool = False
) -> dict[str, Any]:
    """Trains all stages of an experiment, tests what comes out, and records both.

    Every epoch ends with a checkpoint. With `resume` the run in the folder goes on from its
    newest readable one, and ends with the same result as if it had not been interrupted.
    """
    return Run(experiment, RunFolder(Path(folder)), watch or Silent()).train(resume)


def evaluate(folder: Path, split: str = "test") -> dict[str, Any]:
    """The result of a finished run on any split of its task."""
    run = open_run(folder)
    return run.result(Evaluation(run.experiment, *run.trained(), split), split)


def open_run(folder: Path) -> "Run":
    """A run that is in a folder already."""
    records = RunFolder(Path(folder))
    records.check()
    return Run(config.read(Experiment, records.config), records, Silent())


class Run:
    """An experiment and the folder that it is recorded in."""

    def __init__(self, experiment: Experiment, folder: RunFolder, watch: Watch):
        self.experiment, self.folder = experiment, folder
        self.training = EnsembleTraining([experiment], folder, watch)

    def train(self, resume: bool) -> dict[str, Any]:
        """Trains from the start or from the newest checkpoint, then tests."""
        if not self.experiment.stages:
            raise ValueError("stages must name at least one stage of training, got none.")
        if resume:
            self.folder.check()
        data = [self.experiment.task.data("train")]
        state = self.training.begin(data, trained_parts)
        # Created once the model is built: what cannot be built leaves nothing behind.
        self.folder.create(resume=resume)
        if not resume:
            config.write(self.folder.config, self.experiment)
        if not self.folder.provenance.is_file():
            origin = provenance(seed=self.experiment.seed)
            self.folder.write_json(self.folder.provenance, origin)
        state = self.training.train(data, state, resume=resume)
        filt, model = select(state, np.asarray(self.training.chosen(0)))
        with self.folder.writing(self.folder.model):
            save(self.folder.model, filt, model)
        evaluation = Evaluation(self.experiment, filt, model, "test")
        result = self.result(evaluation, "test")
        self.folder.write_arrays(self.folder.evaluation, evaluation.arrays(0))
        self.folder.write_json(self.folder.result, result)
        return result

    def trained(self) -> tuple[Any, Any]:
        """The trained filters and models, one for each seed."""
        if not self.folder.model.is_file():
            raise FileNotFoundError(
                f"The run in {self.folder.path} has not finished training: go on with "
                f"`filtrax train --resume {self.folder.path}`."
            )
        template = blank_ensemble(self.experiment, self.experiment.task.data("validation"))
        return load(self.folder.model, *template)

    def result(self, evaluation: Evaluation, split: str) -> dict[str, Any]:
        """What the trained filters achieve on a split; of several learning rates the best one."""
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


def trained_parts(experiment: Experiment) -> tuple[Any, Any, int]:
    """The trained filters and models of the run that an experiment starts from."""
    other = open_run(Path(experiment.start.run))
    return *other.trained(), other.experiment.num_seeds


def averages(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard error of the metrics of members; one member has no standard error."""
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
