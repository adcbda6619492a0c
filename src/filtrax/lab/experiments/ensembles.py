"""Trains experiments as one ensemble, with checkpoints in a folder from which it can resume."""

import functools
import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.building import build_ensemble, build_stages, join
from filtrax.lab.experiments.evaluation import select
from filtrax.lab.experiments.events import EventLog
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import as_json
from filtrax.training.checkpoints import load_parts, save_parts
from filtrax.training.devices import Devices
from filtrax.training.ensembles import Training
from filtrax.training.parts import trainable, transfer
from filtrax.training.selection import Ensemble
from filtrax.training.trainer import EpochRecord
from filtrax.trajectory import Trajectory

KEPT_CHECKPOINTS = 2
"""The number of checkpoints to keep: an older one is the fallback if the newest is damaged."""

Source = Callable[[Experiment], tuple[Any, Any, int]]
"""Loads the run that an experiment starts from: filters, models, and the number of members."""


@runtime_checkable
class Watch(Protocol):
    """Callbacks for the progress of a run."""

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        """Called when a stage starts or resumes."""

    def step(self, done: int) -> None:
        """Called with the number of finished steps of the current epoch."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Called after each epoch with its line of metrics.jsonl."""

    def message(self, text: str) -> None:
        """Called with any other message for the user."""


class Silent:
    """A watch that ignores everything."""

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        """Does nothing."""

    def step(self, done: int) -> None:
        """Does nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Does nothing."""

    def message(self, text: str) -> None:
        """Does nothing."""


class Stopped(Exception):  # noqa: N818, because stopping is no error
    """Training stopped at the end of an epoch, as `Policy.stop` requested, with a checkpoint."""


class Policy(NamedTuple):
    """Rules on when to stop training, and how often to write checkpoints."""

    stop: Callable[[], bool] = lambda: False
    """Called after every epoch; True stops the training."""

    seconds_between_checkpoints: float = 0.0
    """The shortest time between checkpoints; 0 writes one after every epoch."""


EVERY_EPOCH = Policy()


class Member(NamedTuple):
    """A member of the ensemble: index of its experiment, seed, and index of its learning rate."""

    experiment: int
    seed: int
    rate: int


class EnsembleTraining:
    """The joint training of experiments with equal `program`, recorded in one folder.

    Experiments with equal tasks share their data; there must be equally many experiments of each
    task, sorted by task. `devices` are those to train on at once.
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
        self.lines: list[dict[str, Any]] = []
        """The lines of metrics.jsonl, of this process and of those that it goes on from."""
        self._kept, self._began = -math.inf, 0.0

    def begin(self, data: Sequence[Trajectory], source: Source) -> tuple[Any, Any]:
        """Builds filters and models of all members, with parts of other runs where asked for.

        `data` has one training set for each task.
        """
        states = []
        for experiment in self.experiments:
            state = build_ensemble(experiment, data[self.tasks.index(experiment.task)])
            if experiment.start.run:
                state = _take_over(experiment, state, source)
            states.append(state)
        filt, model = join(states)
        for settings in self.settings:
            trainable(filt, model, settings.train)  # raises if it names missing parts
        return filt, model

    def train(
        self, data: Sequence[Trajectory], state: tuple[Any, Any], *, resume: bool
    ) -> tuple[Any, Any]:
        """Trains all stages in order; `resume` continues from the newest readable checkpoint."""
        checkpoint = self._newest_checkpoint() if resume else None
        first, kept = 0, self.folder.checkpoint(checkpoint or 0)
        if checkpoint is not None:
            first = self._stage_of(checkpoint)
            (state,) = load_parts(kept, start=state)
        self.folder.truncate_metrics(checkpoint or 0)
        self.lines = self.folder.read_metrics() if resume else []
        validation = [task.data("validation") for task in self.tasks]
        with EventLog(self.folder.events) as events:
            for index in range(first, len(self.settings)):
                training = self._training(index, state, data, validation)
                keep = functools.partial(self._keep, index, training, state, events)
                if index == first and checkpoint is not None:
                    (ensemble,) = load_parts(kept, ensemble=training.template())
                else:
                    with ThreadPoolExecutor(1) as executor:
                        # The first epoch raises the errors of its compilation again.
                        executor.submit(training.lower().compile)
                        ensemble, record = training.begin()
                    keep(ensemble, record)
                while not training.finished(ensemble):
                    ensemble, record = training.epoch(ensemble, self.watch.step)
                    keep(ensemble, record)
                state = training.best(ensemble)
        return state

    def _training(
        self,
        index: int,
        state: tuple[Any, Any],
        data: Sequence[Trajectory],
        validation: Sequence[Trajectory],
    ) -> Training:
        """Prepares one stage, which begins now."""
        training = Training(
            build_stages(self.experiments, index),
            *state,
            data,
            validation,
            self.tasks[0].perturbations(),
            [member.seed for member in self.members],
            devices=self.devices,
            tell=self.watch.message,
        )
        settings = self.settings[index]
        self.watch.start(settings.name, settings.num_epochs, training.steps_per_epoch)
        self._began = time.perf_counter()
        return training

    def _keep(
        self,
        index: int,
        training: Training,
        start: tuple[Any, Any],
        events: EventLog,
        ensemble: Ensemble,
        record: EpochRecord,
    ) -> None:
        """Writes the line of an epoch, and a checkpoint if one is due; stops if it has to."""
        line = self._line(self.settings[index].name, record, ensemble)
        self.folder.append_metrics(line)
        with self.folder.writing(self.folder.events):
            events.write(line)
        stop = self.policy.stop()
        if stop or training.finished(ensemble) or self._is_due():
            self._checkpoint(self._number(index, record.epoch), start, ensemble)
        self.watch.epoch(line)
        if stop:
            raise Stopped
        if record.epoch > 0:
            self._tell_of_rollbacks(record, self.lines[-1]["members"])
        self.lines.append(json.loads(as_json(line)))  # as a reader of the file sees it

    def chosen(self, experiment: int) -> list[int]:
        """Returns the members of an experiment with its best learning rate.

        The best rate has the smallest mean validation loss over seeds.
        """
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
        """Returns learning rate, rollbacks, and best epoch of the last stage for each member."""
        if not self.settings:
            nothing = {"learning_rate": None, "rollbacks": 0, "best_epoch": 0, "validation": {}}
            return [{"seed": member.seed} | nothing for member in self.members]
        lines = self.lines
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

    def _is_due(self) -> bool:
        return time.monotonic() >= self._kept + self.policy.seconds_between_checkpoints

    def _tell_of_rollbacks(self, record: EpochRecord, before: Sequence[dict[str, Any]]) -> None:
        for i, (member, last) in enumerate(zip(self.members, before, strict=True)):
            if record.rollbacks[i] > last["rollbacks"]:
                self.watch.message(
                    f"Seed {member.seed} diverged in epoch {record.epoch} and goes on from its "
                    f"best state with half the learning rate (rollback {record.rollbacks[i]})."
                )

    def _number(self, stage: int, epoch: int) -> int:
        """Returns the number of a checkpoint, which is the number of lines of the metrics then."""
        before = self.settings[:stage]
        return sum(settings.num_epochs + 1 for settings in before) + epoch + 1

    def _stage_of(self, checkpoint: int) -> int:
        stages = range(len(self.settings))
        return max(index for index in stages if self._number(index, 0) <= checkpoint)

    def _checkpoint(self, number: int, start: tuple[Any, Any], ensemble: Ensemble) -> None:
        """Writes a checkpoint, then removes all but the newest `KEPT_CHECKPOINTS`."""
        path = self.folder.checkpoint(number)
        with self.folder.writing(path):
            save_parts(path, start=start, ensemble=ensemble)
            for _, old in self.folder.checkpoints()[KEPT_CHECKPOINTS:]:
                old.unlink()
        self._kept = time.monotonic()

    def _newest_checkpoint(self) -> int | None:
        """Returns the number of the newest readable checkpoint, or None."""
        count = len(self.folder.read_metrics())
        for number, path in self.folder.checkpoints():
            try:
                load_parts(path)
                self._check_number(number, path, count)
            except ValueError as error:
                self.watch.message(f"{error} It is left out, and the one before it is tried.")
            else:
                return number
        return None

    def _check_number(self, number: int, path: Path, count: int) -> None:
        """Raises unless a checkpoint is of this training and its epochs are in the metrics."""
        last = self._number(len(self.settings), -1)
        if not 1 <= number <= min(count, last):
            raise ValueError(
                f"{path} must have the number of an epoch that {self.folder.metrics.name} records, "
                f"at most {min(count, last)}, got {number}."
            )

    def _line(self, stage: str, record: EpochRecord, ensemble: Ensemble) -> dict[str, Any]:
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
            "seconds": round(time.perf_counter() - self._began, 3),
            "members": members,
        }


def _take_over(experiment: Experiment, state: tuple[Any, Any], source: Source) -> tuple[Any, Any]:
    """Copies the parts of `experiment.start` from another run; its members repeat in order."""
    filt, model, count = source(experiment)
    if 1 < count < experiment.num_seeds:
        raise ValueError(
            f"start.run must have one member, or one for each of the {experiment.num_seeds} seeds "
            f"of this run: {experiment.start.run} has {count}."
        )
    numbers = [(seed - experiment.seed) % count for seed, _ in experiment.members]
    chosen = select((filt, model), np.asarray(numbers))
    return transfer(*state, chosen, experiment.start.parts)
