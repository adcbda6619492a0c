"""At which scales a table can run, and what each does to an experiment."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from filtrax.experiments.settings import Experiment, StageSettings

SCALES = ("smoke", "small", "paper")
"""Seconds a cell on a CPU, minutes a cell on a CPU, and as the table says."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest values of settings, by name. A setting that a cell lacks is not limited."""

    num_seeds: int
    task: Mapping[str, int]
    filter: Mapping[str, int]
    stage: Mapping[str, int]


LIMITS = {
    "smoke": Limits(
        num_seeds=1,
        task={
            "image_size": 42,
            "num_distractors": 2,
            "num_steps": 4,
            "num_train": 6,
            "num_validation": 2,
            "num_test": 2,
        },
        filter={
            "num_particles": 10,
            "num_test_particles": 10,
            "num_samples": 10,
            "num_test_samples": 10,
            "hidden_size": 16,
        },
        stage={"num_epochs": 2, "warmup_steps": 2},
    ),
    "small": Limits(
        num_seeds=2,
        task={"image_size": 60, "num_train": 240, "num_validation": 30, "num_test": 30},
        filter={"num_test_particles": 100, "num_test_samples": 100, "hidden_size": 128},
        stage={"num_epochs": 5, "warmup_steps": 50},
    ),
}


def scaled(experiment: Experiment, scale: str) -> Experiment:
    """The experiment at a scale: less data, shorter training, the same structure."""
    if scale == "paper":
        return experiment
    limits = LIMITS[scale]
    task = _limited(experiment.task, limits.task)
    stages = (_limited(stage, limits.stage) for stage in experiment.stages)
    return dataclasses.replace(
        experiment,
        num_seeds=min(experiment.num_seeds, limits.num_seeds),
        task=task,
        filter=_limited(experiment.filter, limits.filter),
        stages=tuple(_fitting(stage, task) for stage in stages),
    )


def _limited(settings: Any, limits: Mapping[str, int]) -> Any:
    names = {field.name for field in dataclasses.fields(settings)} & {*limits}
    changed = {name: min(getattr(settings, name), limits[name]) for name in names}
    return dataclasses.replace(settings, **changed)


def _fitting(stage: StageSettings, task: Any) -> StageSettings:
    """The stage with sub-sequences that the task has, and at least two batches in an epoch."""
    length = min(stage.length, task.num_steps)
    available = task.num_train * (task.num_steps // length)
    batch_size = max(1, min(stage.batch_size, available // 2))
    return dataclasses.replace(stage, length=length, frames_per_batch=batch_size * length)
