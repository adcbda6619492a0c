"""Which cells train together.

Cells that differ in numbers and data alone are one compiled program, and members of one ensemble:
on a GPU they cost little more than one of them. On a CPU nothing is gained, so each trains alone.
Images of several data sets need memory, so there are only few of them in an ensemble whose encoder
trains; the task says how many. Where features are computed once, there are no images.
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
"""Of one ensemble, so that it fits into the memory of common GPUs and is not lost at once."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that train as one ensemble: equally many of each task, one task after the other."""

    cells: tuple[Cell, ...]

    @property
    def table(self) -> str:
        """The table that they belong to."""
        return self.cells[0].table

    @property
    def name(self) -> str:
        """A name that says which cells they are, and changes with any of their settings."""
        return f"{self.cells[0].name}-{len(self.cells)}-{self.fingerprint[:8]}"

    @property
    def fingerprint(self) -> str:
        """Of all settings of all cells."""
        settings = [(cell.name, config.as_dict(cell.experiment)) for cell in self.cells]
        return hashlib.sha256(as_json(settings).encode()).hexdigest()

    @property
    def num_members(self) -> int:
        """How many runs there are in it."""
        return sum(len(cell.experiment.members) for cell in self.cells)

    @property
    def num_epochs(self) -> int:
        """Of each run, over all stages."""
        return sum(stage.num_epochs for stage in self.cells[0].experiment.stages)


def group(
    cells: Iterable[Cell], *, together: bool | None = None, most_data_sets: int | None = None
) -> list[Group]:
    """The cells in groups, in the order in which the first cell of each comes.

    `together` says whether cells are trained together; if None, this is done on a GPU.
    `most_data_sets` bounds the number of data sets in a group; if None, there are few where an
    encoder trains.
    """
    if together is None:
        together = jax.default_backend() != "cpu"
    cells = list(cells)
    if not together:
        return [Group((cell,)) for cell in cells]
    programs: dict[Any, list[Cell]] = {}
    for cell in cells:
        # Without stages there is no program that could be shared.
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
    """Rectangles of tasks and cells, none of them with too many members."""
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
