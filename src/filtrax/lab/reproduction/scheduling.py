"""Schedules: the groups of cells that are left, and those that can train now."""

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from filtrax.lab.experiments.ensembles import Silent, Watch
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.reproduction.groups import Group, group
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.sharing import take_over
from filtrax.lab.reproduction.tables import Cell, Table


@runtime_checkable
class GroupWatch(Watch, Protocol):
    """A watch with a callback for groups of cells."""

    def group(self, group: Group, cells_done: int, num_cells: int) -> None:
        """Called when a group starts, with the numbers of finished and of all cells."""


class SilentCells(Silent):
    """A watch that ignores everything."""

    def group(self, group: Group, cells_done: int, num_cells: int) -> None:
        """Does nothing."""


SILENT = SilentCells()


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The groups to train, and their progress.

    Attributes:
        groups: All groups that were not done at the start.
        cells: All selected cells, including those with a record.
        shared: Pairs of a cell and a cell of another table with the same settings.
        tables: Tables by name.
        results: The folder of records.
        scale: The scale of training, one of `SCALES`.
        watch: The watch to tell about progress.
        end: The time limit on the clock `time.monotonic`; None for no limit.
    """

    groups: Sequence[Group]
    cells: Sequence[Cell]
    shared: Sequence[tuple[Cell, Cell]]
    tables: Mapping[str, Table]
    results: Results
    scale: str
    watch: GroupWatch
    end: float | None

    def stop(self) -> bool:
        """Returns True if time is over."""
        return self.end is not None and time.monotonic() >= self.end

    def seconds_left(self) -> float | None:
        """Returns the seconds until time is over; None for no limit."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)

    def left(self) -> list[Group]:
        """Returns the groups that are not done, after copying records from other tables."""
        take_over(self.shared, self.results)
        return groups_left(self.groups, self.results)

    def ready(self) -> list[Group]:
        """Returns the groups that are left and whose cells have the models they start from."""
        ready = lambda group: all(_has_source(cell, self.results) for cell in group.cells)  # noqa: E731
        return [group for group in self.left() if ready(group)]

    def begin(self, group: Group) -> None:
        """Tells the watch that a group starts."""
        done = sum(self.results.has(cell) for cell in self.cells)
        self.watch.group(group, done, len(self.cells))

    def end_of(self, group: Group) -> None:
        """Removes the state of a group if all its cells are done."""
        remove_leftovers([group], self.results)


Executor = Callable[[Schedule], None]
"""Trains the groups of a schedule until its time is over."""


def end_after(seconds: float | None) -> float | None:
    """Returns the end of a period in seconds that starts now, on the clock of a schedule."""
    return None if seconds is None else time.monotonic() + seconds


def remove_leftovers(groups: Iterable[Group], results: Results) -> None:
    """Removes states of finished groups, left by killed processes or from packed files."""
    for done in groups:
        if all(results.has(cell) for cell in done.cells):
            path = _state(done, results).path
            if path.exists():
                with results.claimed(done.table, done.name) as mine:
                    if mine:
                        shutil.rmtree(path)


def without_done(groups: Sequence[Group], results: Results, plan: Plan) -> list[Group]:
    """Returns groups with a state unchanged, then new groups of all other unfinished cells."""
    begun = [group for group in groups if _state(group, results).config.is_file()]
    taken = {id(cell) for group in begun for cell in group.cells}
    cells = [cell for group in groups for cell in group.cells]
    rest = [cell for cell in _undone(cells, results) if id(cell) not in taken]
    return begun + group(rest, together=plan.together, most_data_sets=plan.most_data_sets)


def _state(group: Group, results: Results) -> RunFolder:
    return results.unfinished(group.table, group.name)


def groups_left(groups: Iterable[Group], results: Results) -> list[Group]:
    """Returns the groups with a cell that is not done."""
    groups = list(groups)
    undone = {id(cell) for cell in _undone([c for g in groups for c in g.cells], results)}
    return [group for group in groups if any(id(cell) in undone for cell in group.cells)]


def _undone(cells: Sequence[Cell], results: Results) -> list[Cell]:
    """Returns cells without a record, and those whose missing model such cells start from.

    Models may be missing because records were copied without them.
    """
    known = {(cell.table, cell.name): cell for cell in cells}
    new = {key for key, cell in known.items() if not results.has(cell)}
    undone: set[tuple[str, str]] = set()
    while new:
        undone |= new
        awaited = {start[:2] for key in new if (start := known[key].start) is not None}
        new = {key for key in (awaited & {*known}) - undone if _lacks_model(known[key], results)}
    return [cell for cell in cells if (cell.table, cell.name) in undone]


def _lacks_model(cell: Cell, results: Results) -> bool:
    there = results.model(cell.table, cell.name).model.is_file()
    return not there and "refused" not in (results.read(cell) or {})


def _has_source(cell: Cell, results: Results) -> bool:
    return cell.start is None or results.model(*cell.start[:2]).model.is_file()
