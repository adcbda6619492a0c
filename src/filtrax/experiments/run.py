"""From an experiment to the folder of its run, and from there on after an interruption."""

import math
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from filtrax.experiments import config
from filtrax.experiments.building import blank_ensemble, build_ensemble, build_stage
from filtrax.experiments.evaluation import Evaluation, select
from filtrax.experiments.events import EventLog
from filtrax.experiments.provenance import provenance
from filtrax.experiments.records import RunFolder
from filtrax.experiments.settings import Experiment
from filtrax.training.checkpoints import load, load_parts, save, save_parts
from filtrax.training.ensembles import Ensemble, EpochRecord, Training
from filtrax.training.parts import trainable, transfer
from filtrax.trajectory import Trajectory

KEPT_CHECKPOINTS = 2
"""So that there is an older one to go back to when the newest is damaged."""


@runtime_checkable
class Watch(Protocol):
    """What is told of a run while it goes on."""

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        """A stage begins, or goes on."""

    def step(self, done: int) -> None:
        """So many steps of the present epoch are done."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is over; the record is the one that stands in metrics.jsonl."""

    def message(self, text: str) -> None:
        """Something else that the user should know."""


class Silent:
    """A watch that says nothing."""

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        """Says nothing."""

    def step(self, done: int) -> None:
        """Says nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Says nothing."""

    def message(self, text: str) -> None:
        """Says nothing."""


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
        self.experiment, self.folder, self.watch = experiment, folder, watch

    def train(self, resume: bool) -> dict[str, Any]:
        """Trains from the start or from the newest checkpoint, then tests."""
        if resume:
            self.folder.check()
        data = self.experiment.task.data("train")
        state = self._begin(data)
        for settings in self.experiment.stages:
            trainable(*state, settings.train)  # raises if it names what is not there
        # Created once the model is built: what cannot be built leaves nothing behind.
        self.folder.create(resume=resume)
        if not resume:
            config.write(self.folder.config, self.experiment)
        if not self.folder.provenance.is_file():
            origin = provenance(seed=self.experiment.seed)
            self.folder.write_json(self.folder.provenance, origin)
        state = self._stages(data, state, resume)
        filt, model = select(state, np.asarray(self._chosen()))
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
        summary = self._summary()
        members = [
            summary[chosen] | {"metrics": evaluation.metrics(i)}
            for i, chosen in enumerate(self._chosen())
        ]
        values = {
            name: np.asarray([member["metrics"][name] for member in members])
            for name in members[0]["metrics"]
        }
        count = len(members)
        return {
            "name": self.experiment.name,
            "task": config.as_dict(self.experiment.task),
            "filter": self.experiment.filter.kind,
            "split": split,
            "num_sequences": int(evaluation.data.initial.shape[0]),
            "perturbations": len(evaluation.perturbations),
            "members": members,
            "mean": {name: float(value.mean()) for name, value in values.items()},
            "standard_error": {
                name: float(value.std(ddof=1) / math.sqrt(count)) if count > 1 else None
                for name, value in values.items()
            },
        }

    def _begin(self, data: Trajectory) -> tuple[Any, Any]:
        """Fresh filters and models, perhaps with the trained parts of another run."""
        state = build_ensemble(self.experiment, data)
        start = self.experiment.start
        if not start.run:
            return state
        other = open_run(Path(start.run))
        source = other.trained()
        count, wanted = other.experiment.num_seeds, len(self.experiment.members)
        if count not in (1, wanted):
            raise ValueError(
                f"start.run must have one member or as many as this run, {wanted}: "
                f"{start.run} has {count}."
            )
        return transfer(*state, select(source, np.arange(wanted) % count), start.parts)

    def _stages(self, data: Trajectory, state: tuple[Any, Any], resume: bool) -> tuple[Any, Any]:
        """All stages, one after another; from a checkpoint on if there is one."""
        validation = self.experiment.task.data("validation")
        perturbations = self.experiment.task.perturbations()
        seeds = [seed for seed, _ in self.experiment.members]
        checkpoint = self._newest_checkpoint() if resume else None
        first = 0
        if checkpoint is not None:
            first = self._stage_of(checkpoint)
            (state,) = load_parts(self.folder.checkpoint(checkpoint), start=state)
        self.folder.truncate_metrics(checkpoint or 0)
        with EventLog(self.folder.events) as events:
            for index in range(first, len(self.experiment.stages)):
                stage = build_stage(self.experiment, self.experiment.stages[index])
                training = Training(stage, *state, data, validation, perturbations, seeds)
                ensemble = None
                if checkpoint is not None:
                    path = self.folder.checkpoint(checkpoint)
                    (ensemble,) = load_parts(path, ensemble=training.template())
                    checkpoint = None
                state = self._stage(index, training, ensemble, state, events)
        return state

    def _stage(
        self,
        index: int,
        training: Training,
        ensemble: Ensemble | None,
        start: tuple[Any, Any],
        events: EventLog,
    ) -> tuple[Any, Any]:
        """One stage; `ensemble` is where it goes on, `start` where it began."""
        settings = self.experiment.stages[index]
        self.watch.start(settings.name, settings.num_epochs, training.steps_per_epoch)
        began = time.perf_counter()

        def keep(ensemble: Ensemble, record: EpochRecord) -> None:
            seconds = time.perf_counter() - began
            line = self._line(settings.name, record, seconds, ensemble)
            self.folder.append_metrics(line)
            with self.folder.writing(self.folder.events):
                events.write(line)
            self._checkpoint(self._number(index, record.epoch), start, ensemble)
            self.watch.epoch(line)

        if ensemble is None:
            ensemble, record = training.begin()
            keep(ensemble, record)
        rollbacks = np.asarray(ensemble.rollbacks)
        while not training.finished(ensemble):
            ensemble, record = training.epoch(ensemble, self.watch.step)
            keep(ensemble, record)
            self._tell_of_rollbacks(record, rollbacks)
            rollbacks = record.rollbacks
        return training.best(ensemble)

    def _tell_of_rollbacks(self, record: EpochRecord, before: np.ndarray) -> None:
        for member in np.flatnonzero(record.rollbacks > before):
            self.watch.message(
                f"Seed {self.experiment.members[member][0]} diverged in epoch {record.epoch} and "
                "goes on from its best state with half the learning rate "
                f"(rollback {record.rollbacks[member]})."
            )

    def _number(self, stage: int, epoch: int) -> int:
        """The number of a checkpoint: how many lines the metrics then have."""
        before = self.experiment.stages[:stage]
        return sum(settings.num_epochs + 1 for settings in before) + epoch + 1

    def _stage_of(self, checkpoint: int) -> int:
        stages = range(len(self.experiment.stages))
        return max(index for index in stages if self._number(index, 0) <= checkpoint)

    def _checkpoint(self, number: int, start: tuple[Any, Any], ensemble: Ensemble) -> None:
        """Writes a checkpoint, then removes those that are too old to be of use."""
        path = self.folder.checkpoint(number)
        with self.folder.writing(path):
            save_parts(path, start=start, ensemble=ensemble)
            for _, old in self.folder.checkpoints()[KEPT_CHECKPOINTS:]:
                old.unlink()

    def _newest_checkpoint(self) -> int | None:
        """The number of the newest checkpoint that can be read."""
        for number, path in self.folder.checkpoints():
            try:
                load_parts(path)
            except ValueError as error:
                self.watch.message(f"{error} It is left out, and the one before it is tried.")
            else:
                return number
        return None

    def _summary(self) -> list[dict[str, Any]]:
        """Of each member, what training says of it: from the metrics of the last stage."""
        lines = self.folder.read_metrics()
        counts = [settings.num_epochs + 1 for settings in self.experiment.stages]
        last = lines[-counts[-1] :]
        ends = [lines[self._number(i, count - 1) - 1] for i, count in enumerate(counts)]
        summary = []
        for i, (seed, rate) in enumerate(self.experiment.members):
            best = int(last[-1]["members"][i]["best_epoch"])
            rates = self.experiment.stages[-1].learning_rates
            summary.append(
                {
                    "seed": seed,
                    "learning_rate": rates[rate if len(rates) > 1 else 0],
                    "rollbacks": sum(end["members"][i]["rollbacks"] for end in ends),
                    "best_epoch": best,
                    "validation": last[best]["members"][i]["validation"],
                }
            )
        return summary

    def _chosen(self) -> list[int]:
        """The members that train with the best learning rate, by their mean validation loss."""
        summary = self._summary()
        groups: dict[int, list[int]] = {}
        for i, (_, rate) in enumerate(self.experiment.members):
            groups.setdefault(rate, []).append(i)

        def mean_loss(group: list[int]) -> float:
            losses = [summary[i]["validation"]["loss"] for i in group]
            return math.inf if None in losses else sum(losses) / len(losses)

        return min(groups.values(), key=mean_loss)

    def _line(
        self, stage: str, record: EpochRecord, seconds: float, ensemble: Ensemble
    ) -> dict[str, Any]:
        members = [
            {
                "seed": seed,
                "learning_rate": float(f"{record.learning_rate[i]:.6g}"),
                "loss": record.loss[i],
                "gradient_norm": record.gradient_norm[i],
                "validation": {name: value[i] for name, value in record.validation.items()},
                "best": record.best_loss[i],
                "best_epoch": int(ensemble.best_epoch[i]),
                "rollbacks": int(record.rollbacks[i]),
            }
            for i, (seed, _) in enumerate(self.experiment.members)
        ]
        return {
            "stage": stage,
            "epoch": record.epoch,
            "step": record.step,
            "seconds": round(seconds, 3),
            "members": members,
        }
