"""The scales of tables, and the limits that they set on experiments."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.tasks import AbstractTask

SCALES = ("smoke", "small", "paper")
"""Seconds per cell on a CPU, minutes per cell on a CPU, and the table's own settings."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest values of settings by name; those of tasks are in their `limits`.

    Limits on settings that a cell does not have are ignored.
    """

    num_seeds: int
    filter: Mapping[str, int]
    stage: Mapping[str, int]


LIMITS = {
    "smoke": Limits(
        num_seeds=1,
        filter={
            "num_particles": 10,
            "num_test_particles": 10,
            # Whitening needs more samples than the largest state has components.
            "num_samples": 12,
            "num_test_samples": 12,
            "hidden_size": 16,
        },
        stage={"num_epochs": 2, "warmup_steps": 2},
    ),
    "small": Limits(
        num_seeds=2,
        filter={"num_test_particles": 100, "num_test_samples": 100, "hidden_size": 128},
        stage={"num_epochs": 5, "warmup_steps": 50},
    ),
}


def scaled(experiment: Experiment, scale: str) -> Experiment:
    """Reduces data and training of an experiment to a scale, with the same structure."""
    if scale == "paper":
        return experiment
    limits = LIMITS[scale]
    task = _limited(experiment.task, experiment.task.limits(scale))
    stages = (_limited(stage, limits.stage) for stage in experiment.stages)
    return dataclasses.replace(
        experiment,
        num_seeds=min(experiment.num_seeds, limits.num_seeds),
        task=task,
        filter=_limited(experiment.filter, limits.filter),
        stages=tuple(_fitting(stage, task) for stage in stages),
    )


def _limited(settings: Any, limits: Mapping[str, Any]) -> Any:
    names = {field.name for field in dataclasses.fields(settings)} & {*limits}
    changed = {name: _smaller(getattr(settings, name), limits[name]) for name in names}
    return dataclasses.replace(settings, **changed)


def _smaller(value: Any, limit: Any) -> Any:
    """Returns the minimum, elementwise for tuples; a value of 0 means no limit."""
    if isinstance(limit, tuple):
        return tuple(map(min, value, limit))
    return min(value, limit) if value else limit


def _fitting(stage: StageSettings, task: AbstractTask) -> StageSettings:
    """Reduces length and batch size of a stage, for at least two batches per epoch if possible."""
    length = min(stage.length, task.num_steps)
    available = task.fewest_train() * (task.num_steps // length)
    batch_size = max(1, min(stage.batch_size, available // 2))
    return dataclasses.replace(stage, length=length, frames_per_batch=batch_size * length)
