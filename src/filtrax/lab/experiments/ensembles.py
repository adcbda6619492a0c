"""Training experiments as one ensemble, in a folder from which it can go on."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.building import build_ensemble, build_stages, join
from filtrax.lab.experiments.evaluation import select
from filtrax.lab.experiments.events import EventLog
from filtrax.lab.experiments.records import RunFolder
from filtrax.training.checkpoints import load_parts, save_parts
from filtrax.training.devices import Devices
from filtrax.training.ensembles import EpochRecord, Training
from filtrax.training.parts import trainable, transfer
from filtrax.training.selection import Ensemble
from filtrax.trajectory import Trajectory

KEPT_CHECKPOINTS = 2
"""So that there is an older one to go back to when the newest is damaged."""

Source = Callable[[Experiment], tuple[Any, Any, int]]
"""Where parts come from: the trained filters and models of a run, and how many members it has."""


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


class Stopped(Exception):  # noqa: N818, because to be stopped is no error
    """Training was asked to stop at the end of an epoch, and its state is kept."""


class Policy(NamedTuple):
    """When a training is interrupted, and how often its state is written."""

    stop: Callable[[], bool] = lambda: False
    """Asked after every epoch."""

    seconds_between_checkpoints: float = 0.0
    """At least; 0 writes one after every epoch."""


EVERY_EPOCH = Policy()


class Member(NamedTuple):
    """One member of the ensemble: a seed and a learning rate of one of the experiments."""

    experiment: int
    seed: int
    rate: int


class EnsembleTraining:
    """Experiments that agree in their `program`, and the folder that their training is kept in.

    Experiments with the same task share their data; there must be equally many of each task, one
    task after the other. They train on several devices at once if `devices` says so.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        folder: RunFolder,
        watch: Watch,
        policy: Policy = EVERY_EPOCH,
        devices: Devices = "one",
    ):
        self.experiments = list(experiments)
        self.folder, self.watch, self.policy = folder, watch, policy
        self.devices: Devices = devices
        self.members = [
            Member(i, seed, rate)
            for i, experiment in enumerate(self.experiments)
            for seed, rate in experiment.members
        ]
        self.tasks = list(dict.fromkeys(experiment.task for experiment in self.experiments))
        self.settings = self.experiments[0].stages
        self._kept = -math.inf

    def begin(self, data: Sequence[Trajectory], source: Source) -> tuple[Any, Any]:
        """Fresh filters and models, perhaps with the trained parts of other runs."""
        states = []
        for experiment in self.experiments:
            state = build_ensemble(experiment, data[self.tasks.index(experiment.task)])
            if experiment.start.run:
                state = _take_over(experiment, state, source)
            states.append(state)
        filt, model = join(states)
        for settings in self.settings:
            trainable(filt, model, settings.train)  # raises if it names what is not there
        return filt, model

    def train(
        self, data: Sequence[Trajectory], state: tuple[Any, Any], *, resume: bool
    ) -> tuple[Any, Any]:
        """All stages, one after another; from a checkpoint on if there is one."""
        validation = [task.data("validation") for task in self.tasks]
        perturbations = self.tasks[0].perturbations()
        seeds = [member.seed for member in self.members]
        checkpoint = self._newest_checkpoint() if resume else None
        first = 0
        if checkpoint is not None:
            first = self._stage_of(checkpoint)
            (state,) = load_parts(self.folder.checkpoint(checkpoint), start=state)
        self.folder.truncate_metrics(checkpoint or 0)
        with EventLog(self.folder.events) as events:
            for index in range(first, len(self.settings)):
                stage = build_stages(self.experiments, index)
                arguments = (stage, *state, data, validation, perturbations, seeds)
                training = Training(*arguments, devices=self.devices, tell=self.watch.message)
                ensemble = None
                if checkpoint is not None:
                    path = self.folder.checkpoint(checkpoint)
                    (ensemble,) = load_parts(path, ensemble=training.template())
                    checkpoint = None
                state = self._stage(index, training, ensemble, state, events)
        return state

    def chosen(self, experiment: int) -> list[int]:
        """The members of an experiment with its best learning rate, by mean validation loss."""
        summary = self.summary()
        groups: dict[int, list[int]] = {}
        for i, member in enumerate(self.members):
            if member.experiment == experiment:
                groups.setdefault(member.rate, []).append(i)

        def mean_loss(group: list[int]) -> float:
            losses = [summary[i]["validation"].get("loss") for i in group]
            return math.inf if None in losses else sum(losses) / len(losses)

        return min(groups.values(), key=mean_loss)

    def summary(self) -> list[dict[str, Any]]:
        """Of each member, what training says of it: from the metrics of the last stage."""
        if not self.settings:
            nothing = {"learning_rate": None, "rollbacks": 0, "best_epoch": 0, "validation": {}}
            return [{"seed": member.seed} | nothing for member in self.members]
        lines = self.folder.read_metrics()
        counts = [settings.num_epochs + 1 for settings in self.settings]
        last = lines[-counts[-1] :]
        ends = [lines[self._number(i, count - 1) - 1] for i, count in enumerate(counts)]
        summary = []
        for i, member in enumerate(self.members):
            best = int(last[-1]["members"][i]["best_epoch"])
            rates = self.experiments[member.experiment].stages[-1].learning_rates
            summary.append(
                {
                    "seed": member.seed,
                    "learning_rate": rates[member.rate if len(rates) > 1 else 0],
                    "rollbacks": sum(end["members"][i]["rollbacks"] for end in ends),
                    "best_epoch": best,
                    "validation": last[best]["members"][i]["validation"],
                }
            )
        return summary

    def _stage(
        self,
        index: int,
        training: Training,
        ensemble: Ensemble | None,
        start: tuple[Any, Any],
        events: EventLog,
    ) -> tuple[Any, Any]:
        """One stage; `ensemble` is where it goes on, `start` where it began."""
        settings = self.settings[index]
        self.watch.start(settings.name, settings.num_epochs, training.steps_per_epoch)
        began = time.perf_counter()

        def keep(ensemble: Ensemble, record: EpochRecord) -> None:
            seconds = time.perf_counter() - began
            line = self._line(settings.name, record, seconds, ensemble)
            self.folder.append_metrics(line)
            with self.folder.writing(self.folder.events):
                events.write(line)
            stop = self.policy.stop()
            if stop or training.finished(ensemble) or self._is_due():
                self._checkpoint(self._number(index, record.epoch), start, ensemble)
            self.watch.epoch(line)
            if stop:
                raise Stopped

        if ensemble is None:
            ensemble, record = _begin(training)
            keep(ensemble, record)
        rollbacks = np.asarray(ensemble.rollbacks)
        while not training.finished(ensemble):
            ensemble, record = training.epoch(ensemble, self.watch.step)
            keep(ensemble, record)
            self._tell_of_rollbacks(record, rollbacks)
            rollbacks = record.rollbacks
        return training.best(ensemble)

    def _is_due(self) -> bool:
        return time.monotonic() >= self._kept + self.policy.seconds_between_checkpoints

    def _tell_of_rollbacks(self, record: EpochRecord, before: np.ndarray) -> None:
        for member in np.flatnonzero(record.rollbacks > before):
            self.watch.message(
                f"Seed {self.members[member].seed} diverged in epoch {record.epoch} and "
                "goes on from its best state with half the learning rate "
                f"(rollback {record.rollbacks[member]})."
            )

    def _number(self, stage: int, epoch: int) -> int:
        """The number of a checkpoint: how many lines the metrics then have."""
        before = self.settings[:stage]
        return sum(settings.num_epochs + 1 for settings in before) + epoch + 1

    def _stage_of(self, checkpoint: int) -> int:
        stages = range(len(self.settings))
        return max(index for index in stages if self._number(index, 0) <= checkpoint)

    def _checkpoint(self, number: int, start: tuple[Any, Any], ensemble: Ensemble) -> None:
        """Writes a checkpoint, then removes those that are too old to be of use."""
        path = self.folder.checkpoint(number)
        with self.folder.writing(path):
            save_parts(path, start=start, ensemble=ensemble)
            for _, old in self.folder.checkpoints()[KEPT_CHECKPOINTS:]:
                old.unlink()
        self._kept = time.monotonic()

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

    def _line(
        self, stage: str, record: EpochRecord, seconds: float, ensemble: Ensemble
    ) -> dict[str, Any]:
        best_epochs = np.asarray(ensemble.best_epoch)
        members = [
            {
                "seed": member.seed,
                "learning_rate": float(f"{record.learning_rate[i]:.6g}"),
                "loss": record.loss[i],
                "gradient_norm": record.gradient_norm[i],
                "validation": {name: value[i] for name, value in record.validation.items()},
                "best": record.best_loss[i],
                "best_epoch": int(best_epochs[i]),
                "rollbacks": int(record.rollbacks[i]),
            }
            for i, member in enumerate(self.members)
        ]
        return {
            "stage": stage,
            "epoch": record.epoch,
            "step": record.step,
            "seconds": round(seconds, 3),
            "members": members,
        }


def _begin(training: Training) -> tuple[Ensemble, EpochRecord]:
    """The ensemble before the first epoch, while the program of an epoch is compiled already."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(training.lower().compile)  # an error in it comes again in the epoch
        return training.begin()


def _take_over(experiment: Experiment, state: tuple[Any, Any], source: Source) -> tuple[Any, Any]:
    """The state with the parts of another run that the experiment asks for."""
    filt, model, count = source(experiment)
    if 1 < count < experiment.num_seeds:
        raise ValueError(
            f"start.run must have one member, or one for each of the {experiment.num_seeds} seeds "
            f"of this run: {experiment.start.run} has {count}."
        )
    numbers = [(seed - experiment.seed) % count for seed, _ in experiment.members]
    chosen = select((filt, model), np.asarray(numbers))
    return transfer(*state, chosen, experiment.start.parts)
