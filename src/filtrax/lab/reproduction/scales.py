"""The scales of tables, and the limits that they set on experiments."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from filtrax.lab.config.settings import Experiment, StageSettings, Task
from filtrax.lab.tasks.kitti import Fold, KittiTask
from filtrax.lab.tasks.kitti.streets.collection import CAMERAS
from filtrax.lab.tasks.kitti.windows import VALIDATION_PART

SCALES = ("smoke", "small", "paper")
"""Seconds per cell on a CPU, minutes per cell on a CPU, and the table's own settings."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest values of settings by name, for tasks also by kind.

    Limits on settings that a cell does not have are ignored.
    """

    num_seeds: int
    task: Mapping[str, Mapping[str, Any]]
    filter: Mapping[str, int]
    stage: Mapping[str, int]


LIMITS = {
    "smoke": Limits(
        num_seeds=1,
        task={
            "disc": {
                "image_size": 42,
                "num_distractors": 2,
                "num_steps": 4,
                "num_train": 6,
                "num_validation": 2,
                "num_test": 2,
            },
            "kitti": {
                "image_size": (19, 35),
                "num_steps": 4,
                "num_frames": 8,
                "windows_per_variant": 1,
                "most_test_windows": 1,
            },
            "pushing": {
                "image_size": (48, 64),
                "num_steps": 4,
                "num_test_steps": 4,
                # Splits of equal size share a compiled program.
                "num_train": 4,
                "num_validation": 4,
                "num_test": 4,
            },
        },
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
        task={
            "disc": {"image_size": 60, "num_train": 240, "num_validation": 30, "num_test": 30},
            "kitti": {
                "image_size": (25, 75),
                "num_steps": 50,
                "num_frames": 150,
                "windows_per_variant": 6,
                "most_test_windows": 8,
            },
            "pushing": {
                "image_size": (48, 64),
                "num_train": 240,
                "num_validation": 30,
                "num_test": 30,
            },
        },
        filter={"num_test_particles": 100, "num_test_samples": 100, "hidden_size": 128},
        stage={"num_epochs": 5, "warmup_steps": 50},
    ),
}


def scaled(experiment: Experiment, scale: str) -> Experiment:
    """Reduces data and training of an experiment to a scale, with the same structure."""
    if scale == "paper":
        return experiment
    limits = LIMITS[scale]
    task = _limited(experiment.task, limits.task[experiment.task.kind])
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
    if getattr(settings, "root", ""):
        changed.pop("num_frames", None)  # a setting of generated drives only
    return dataclasses.replace(settings, **changed)


def _smaller(value: Any, limit: Any) -> Any:
    """Returns the minimum, elementwise for tuples; a value of 0 means no limit."""
    if isinstance(limit, tuple):
        return tuple(map(min, value, limit))
    return min(value, limit) if value else limit


def _fitting(stage: StageSettings, task: Task) -> StageSettings:
    """Reduces length and batch size of a stage, for at least two batches per epoch if possible."""
    length = min(stage.length, task.num_steps)
    available = _num_train(task) * (task.num_steps // length)
    batch_size = max(1, min(stage.batch_size, available // 2))
    return dataclasses.replace(stage, length=length, frames_per_batch=batch_size * length)


def _num_train(task: Task) -> int:
    """Returns the number of training sequences, or a lower bound if only the data tell."""
    if not isinstance(task, KittiTask):
        return task.num_train
    if not isinstance(task.split, Fold):
        return task.windows_per_variant
    cameras = len(task.cameras) or (1 if task.root else len(CAMERAS))
    drives = len(task.drive_names()) - 1
    windows = drives * cameras * (1 + task.mirrored) * task.windows_per_variant
    return windows - math.ceil(windows / VALIDATION_PART)
