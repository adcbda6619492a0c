"""Groups of cells that train as one ensemble.

Cells that differ only in numbers and data share a compiled program and can train as one ensemble,
which takes little longer on a GPU than a single cell. On a CPU nothing is gained, so each cell
trains alone. Images of several data sets need memory, so the task limits their number if an encoder
trains; otherwise features are computed once, without keeping images.
"""

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import jax

from filtrax.lab import config
from filtrax.lab.config.settings import Experiment
from filtrax.lab.files import as_json
from filtrax.lab.reproduction.tables import Cell

MOST_MEMBERS = 40
"""The largest number of members in an ensemble, to limit memory and the loss by a failure."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train as one ensemble: equally many for each task, sorted by task."""

    cells: tuple[Cell, ...]

    @property
    def table(self) -> str:
        """The name of their table."""
        return self.cells[0].table

    @property
    def name(self) -> str:
        """A name with the first cell, the number of cells, and a hash of all settings."""
        return f"{self.cells[0].name}-{len(self.cells)}-{self.fingerprint[:8]}"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 hash of all settings of all cells."""
        settings = [(cell.name, config.as_dict(cell.experiment)) for cell in self.cells]
        return hashlib.sha256(as_json(settings).encode()).hexdigest()

    @property
    def num_members(self) -> int:
        """The number of members of the ensemble."""
        return sum(len(cell.experiment.members) for cell in self.cells)

    @property
    def num_epochs(self) -> int:
        """The number of epochs of each member, summed over stages."""
        return sum(stage.num_epochs for stage in self.cells[0].experiment.stages)


def group(
    cells: Iterable[Cell], *, together: bool | None = None, most_data_sets: int | None = None
) -> list[Group]:
    """Groups cells; groups are sorted by their first cell.

    `together` allows groups of several cells; by default, on GPUs only. `most_data_sets` limits
    the number of data sets in a group; by default, to `sets_of_images` of the task if an encoder
    trains.
    """
    if together is None:
        together = jax.default_backend() != "cpu"
    cells = list(cells)
    if not together:
        return [Group((cell,)) for cell in cells]
    programs: dict[Any, list[Cell]] = {}
    for cell in cells:
        # Without stages there is no program to share.
        alone = None if cell.experiment.stages else cell.name
        programs.setdefault((cell.experiment.program, alone), []).append(cell)
    return [
        group
        for alike in programs.values()
        for group in _groups(alike, _count_of_each_task(alike), most_data_sets)
    ]


def _trains_encoder(experiment: Experiment) -> bool:
    parts = [part for stage in experiment.stages for part in stage.train]
    encoder = "model.sensor.encoder"
    return any(encoder.startswith(part) or part.startswith(encoder) for part in parts)


def _count_of_each_task(cells: list[Cell]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for cell in cells:
        counts[cell.experiment.task] = counts.get(cell.experiment.task, 0) + 1
    return counts


def _groups(cells: list[Cell], counts: dict[Any, int], most_data_sets: int | None) -> list[Group]:
    """Splits cells into rectangles of tasks times cells, within the limits on their size."""
    members = len(cells[0].experiment.members)
    if most_data_sets is None:
        experiment = cells[0].experiment
        images = _trains_encoder(experiment)
        most_data_sets = experiment.task.sets_of_images if images else MOST_MEMBERS
    groups = []
    for count in dict.fromkeys(counts.values()):
        tasks = [task for task, found in counts.items() if found == count]
        columns = [[cell for cell in cells if cell.experiment.task == task] for task in tasks]
        most_tasks = min(max(MOST_MEMBERS // members, 1), most_data_sets)
        for few_tasks in (columns[i : i + most_tasks] for i in range(0, len(tasks), most_tasks)):
            size = max(MOST_MEMBERS // (members * len(few_tasks)), 1)
            for first in range(0, count, size):
                part = [cell for column in few_tasks for cell in column[first : first + size]]
                groups.append(Group(tuple(part)))
    return groups
