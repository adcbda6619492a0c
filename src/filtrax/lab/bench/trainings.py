"""Benchmarks of training: a step, an epoch and a run of the disc task, sensor included."""

import dataclasses
import itertools
import tempfile
import time
from pathlib import Path

from filtrax.lab.bench.calls import compile_timed
from filtrax.lab.bench.clocks import rounded, summary
from filtrax.lab.bench.costs import program_costs
from filtrax.lab.bench.measurements import OURS, Conditions, Record
from filtrax.lab.config.filters import Ekf, Mcukf, Particle, Ukf
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments import run
from filtrax.lab.experiments.building import build_ensemble, build_stages
from filtrax.lab.tasks.disc import DiscTask
from filtrax.training.ensembles import Training

FILTERS = {"ekf": Ekf(), "ukf": Ukf(), "mcukf": Mcukf(), "pf": Particle()}

SIZES = {
    "tiny": {"image_size": 42, "num_distractors": 2, "num_steps": 20, "num_train": 32},
    "small": {"image_size": 60, "num_train": 32},
    "paper": {},
}
"""Settings of the disc task; "paper" has its defaults."""


def make_experiment(name: str, size: str, num_members: int) -> Experiment:
    """Makes the experiment of a filter (see `FILTERS`) and a size (see `SIZES`)."""
    settings = SIZES[size]
    if settings:
        settings = settings | {"num_validation": 8, "num_test": 8}
    return Experiment(num_seeds=num_members, filter=FILTERS[name], task=DiscTask(**settings))


@dataclasses.dataclass(frozen=True)
class TrainingTime:
    """A training step, and an epoch including its validation.

    Attributes:
        filter: A name in `FILTERS`.
        size: The size of the task: "tiny", "small" or "paper".
        num_members: The number of members that train at once.
        epochs: The number of timed epochs, after one that compiles.
    """

    filter: str
    size: str
    num_members: int = 1
    epochs: int = 3

    @property
    def name(self) -> str:
        """The name of the measurement with its sizes."""
        return f"training/{self.filter}/{self.size}_m{self.num_members}"

    def measure(self, conditions: Conditions) -> Record:
        """Measures steps and epochs, compilation, memory and the floor of a step."""
        experiment = make_experiment(self.filter, self.size, self.num_members)
        task = experiment.task
        data = task.data("train")
        training = Training(
            build_stages([experiment], 0),
            *build_ensemble(experiment, data),
            data,
            task.data("validation"),
            task.perturbations(),
            [seed for seed, _ in experiment.members],
        )
        program, compiling = compile_timed(training.lower)
        steps, epochs = self._times(training)
        costs = program_costs(program).times(1 / training.steps_per_call)
        analysis = program.memory_analysis()
        memory = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
        return {
            "kind": "training",
            "filter": self.filter,
            "sizes": {"task": self.size, "members": self.num_members},
            "seconds": {OURS: summary([steps]), "epoch": summary([epochs])},
            "ratios": {},
            "steps_per_epoch": training.steps_per_epoch,
            "compile_seconds": {} if compiling is None else {OURS: rounded(compiling)},
            "memory_bytes": {OURS: memory},
            "costs": dataclasses.asdict(costs),
            "floor": conditions.peaks.floor(costs),
        }

    def _times(self, training: Training) -> tuple[list[float], list[float]]:
        """Returns the seconds of steps, averaged over each call of the program, and of epochs."""
        ensemble, _ = training.begin()
        ensemble, _ = training.epoch(ensemble)
        steps, epochs = [], []
        for _ in range(self.epochs):
            marks = [time.perf_counter()]
            ensemble, _ = training.epoch(ensemble, lambda _, m=marks: m.append(time.perf_counter()))
            epochs.append(time.perf_counter() - marks[0])
            turns = [after - before for before, after in itertools.pairwise(marks)]
            steps += [turn / training.steps_per_call for turn in turns]
        return steps, epochs


@dataclasses.dataclass(frozen=True)
class RunTime:
    """A whole run: data, compilation, epochs, files and test."""

    filter: str
    size: str
    num_epochs: int = 2

    @property
    def name(self) -> str:
        """The name of the measurement with its sizes."""
        return f"run/{self.filter}/{self.size}_e{self.num_epochs}"

    def measure(self, conditions: Conditions) -> Record:
        """Times a single run, because a second one would find programs compiled already."""
        del conditions
        experiment = make_experiment(self.filter, self.size, 1)
        stages = tuple(
            dataclasses.replace(stage, num_epochs=self.num_epochs) for stage in experiment.stages
        )
        experiment = dataclasses.replace(experiment, stages=stages)
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            run.train(experiment, Path(folder, "run"))
            seconds = time.perf_counter() - began
        return {
            "kind": "run",
            "filter": self.filter,
            "sizes": {"task": self.size, "epochs": self.num_epochs},
            "seconds": {OURS: summary([[seconds]])},
            "ratios": {},
        }
