"""Tables: a base experiment, the axes along which it varies, and the paper's numbers."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filtrax._checks import check_known
from filtrax.lab.config import ConfigurationError, build, load, parse
from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction.axes import (
    Adjustment,
    Average,
    Axis,
    Change,
    Place,
    Start,
    Value,
    cell_name,
    places,
)
from filtrax.lab.reproduction.cells import Cell
from filtrax.lab.reproduction.printed import PrintedNumbers, printed_numbers
from filtrax.lab.reproduction.rules import Claim, Lost, chosen, matches
from filtrax.lab.reproduction.scales import SCALES, scaled

__all__ = [
    "SCALES",
    "Adjustment",
    "Average",
    "Axis",
    "Cell",
    "Place",
    "Start",
    "Table",
    "Value",
    "cell_name",
    "read_table",
    "table_names",
]

FOLDER = Path(__file__).parent / "tables"


@dataclasses.dataclass(frozen=True)
class Table:
    """A grid of experiments, with the numbers and claims of the paper.

    - `title`, `source`, `asks`: its title, its place in the paper, and the question it answers.
    - `metrics`: the metrics to show, in this order.
    - `axes`: the axes of the grid; cells are all combinations of their values.
    - `rows`, `columns`: the axes of printed tables; the other axes make separate blocks.
    - `base`: the settings that all cells share, as in the file of an experiment.
    - `adjust`: assignments for some cells, and cells to skip.
    - `start`: trained parts that cells start from; the first entry that selects a cell applies.
    - `average`: the axis over which cells are averaged, if any.
    - `shares`: tables whose records are copied for cells with the same settings.
    - `paper`: the printed numbers; see `paper_value`.
    - `prior`: the printed numbers of other work, whose rows are not cells.
    - `context`: True if the paper's numbers are for other data, and not comparable.
    - `claims`: the claims of the paper.
    - `goals`: our goals.
    - `lost`: the criterion for lost runs, if they are counted.
    - `deviations`: the differences from the paper.
    - `shown`: keep a sequence and a map of the predicted process noise in records.
    - `models`: keep trained models, for cells of other tables to start from.
    """

    name: str
    title: str
    source: str
    asks: str
    metrics: tuple[str, ...]
    axes: tuple[Axis, ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    base: dict[str, Any] = dataclasses.field(default_factory=dict)
    adjust: tuple[Adjustment, ...] = ()
    start: tuple[Start, ...] = ()
    average: Average | None = None
    shares: tuple[str, ...] = ()
    paper: str = ""
    prior: str = ""
    context: bool = False
    claims: tuple[Claim, ...] = ()
    goals: tuple[Claim, ...] = ()
    lost: Lost | None = None
    deviations: tuple[str, ...] = ()
    shown: bool = False
    models: bool = False

    def __post_init__(self):
        for names in (self.rows, self.columns, self.lost.against if self.lost else ()):
            for name in names:
                self.axis(name)
        for changed in (*self.adjust, *self.start):
            self._check_selected(changed.when, self.axis)
        if self.average is not None:
            for labels in self.average.sets.values():
                self._check_selected({self.average.axis: labels}, self.axis)
        for claim in (*self.claims, *self.goals):
            for rule in claim.rules:
                for selection in rule.selections:
                    self._check_selected(selection, self.shown_axis)
                for name in rule.total:
                    self.axis(name)
        self._check_printed()
        self._check_prior()

    @property
    def task(self) -> str:
        """The kind of the task of its cells."""
        return self.base.get("task", {}).get("kind", "disc")

    @property
    def blocks(self) -> tuple[str, ...]:
        """The axes that are neither rows nor columns."""
        return tuple(axis.name for axis in self.axes if axis.name not in self.rows + self.columns)

    def axis(self, name: str) -> Axis:
        """Returns the axis of a name."""
        names = [axis.name for axis in self.axes]
        check_known(f"Table {self.name!r} has no such axis", {name} - {*names}, names)
        return self.axes[names.index(name)]

    def shown_axis(self, name: str) -> Axis:
        """Returns the axis of a name; the averaged axis has the names of means as labels."""
        if self.average is not None and self.average.axis == name:
            return self.average.shown
        return self.axis(name)

    def places(self) -> list[Place]:
        """Returns the places of numbers: cells, or means of them."""
        return places(self.labels(), self.average)

    def labels(self) -> list[dict[str, str]]:
        """Returns the labels of all cells by axis; the last axis varies fastest."""
        names = [axis.name for axis in self.axes]
        grid = itertools.product(*(axis.labels for axis in self.axes))
        cells = [dict(zip(names, labels, strict=True)) for labels in grid]
        skipped = [adjustment.when for adjustment in self.adjust if adjustment.skip]
        return [cell for cell in cells if not any(matches(cell, when) for when in skipped)]

    def cells(self, scale: str, wanted: Sequence[dict[str, str]] | None = None) -> list[Cell]:
        """Returns the cells at one of the `SCALES`, all or those with the `wanted` labels."""
        check_known("`scale` must be a known one", {scale} - {*SCALES}, SCALES)
        if wanted is None:
            pairs = zip(self.labels(), self._experiments, strict=True)
        else:
            pairs = ((labels, self._experiment(labels)) for labels in wanted)
        return [self._cell(labels, scaled(experiment, scale)) for labels, experiment in pairs]

    def with_value(self, axis: str, label: str, change: Change | Iterable[str]) -> "Table":
        """Returns the table with an additional value on an axis, as for your own filter.

        **Arguments:**

        - `axis`, `label`: the name of the axis, and the label of the value.
        - `change`: assignments, or a function that maps the experiment of a cell to another one.
        """
        old = self.axis(axis)
        value = Value(label, change=change) if callable(change) else Value(label, set=tuple(change))
        new = dataclasses.replace(old, values=(*old.values, value))
        axes = tuple(new if entry is old else entry for entry in self.axes)
        return dataclasses.replace(self, axes=axes)

    def with_settings(self, assignments: Iterable[str]) -> "Table":
        """Returns the table with assignments for all cells, applied after its own."""
        everywhere = Adjustment({}, tuple(assignments))
        return dataclasses.replace(self, adjust=(*self.adjust, everywhere))

    def paper_value(
        self, labels: Mapping[str, str], metric: str
    ) -> tuple[float, float | None] | None:
        """Returns the printed value and standard error (or None) at a place; None if missing."""
        return self._printed.find(labels, metric)

    def prior_rows(self, labels: Mapping[str, str]) -> list[dict[str, str]]:
        """Returns the labels of rows of other work in the block with these labels."""
        found = []
        for row in self._prior.labels(self.metrics):
            own = {name: row[name] for name in self.rows}
            agrees = all(labels.get(name, text) == text for name, text in row.items())
            if agrees and own not in found:
                found.append(own)
        return found

    def prior_value(
        self, labels: Mapping[str, str], metric: str
    ) -> tuple[float, float | None] | None:
        """Returns the printed number of other work, as `paper_value` does."""
        return self._prior.find(labels, metric)

    def _check_selected(
        self, selection: Mapping[str, str | tuple[str, ...]], axis: Callable[[str], Axis]
    ) -> None:
        for name, labels in selection.items():
            known = axis(name).labels
            unknown = [label for label in chosen(labels) if label not in known]
            check_known(f"Axis {name!r} of table {self.name!r} has no such label", unknown, known)

    def _check_printed(self) -> None:
        header = self._printed.header
        known = [*(axis.name for axis in self.axes), *self.metrics]
        unknown = [name for name in header if name not in known]
        check_known("The header of `paper` must name axes and metrics", unknown, known)
        shown = [place.labels for place in self.places()]
        for row in self._printed.labels(self.metrics):
            if not any(matches(labels, row) for labels in shown):
                raise ValueError(f"`paper` must speak of cells of its table, but none is {row}.")
            for metric in self.metrics:
                self.paper_value(row, metric)  # refuses what is no number

    def _check_prior(self) -> None:
        if not self.prior:
            return
        known = [*(axis.name for axis in self.axes), *self.metrics]
        unknown = [name for name in self._prior.header if name not in known]
        check_known("The header of `prior` must name axes and metrics", unknown, known)
        check_known(
            "The header of `prior` must name all axes that are rows",
            {*self.rows} - {*self._prior.header},
            self._prior.header,
        )
        for row in self._prior.labels(self.metrics):
            others = {name: text for name, text in row.items() if name not in self.rows}
            self._check_selected(others, self.shown_axis)
            for metric in self.metrics:
                self.prior_value(row, metric)  # refuses what is no number

    @functools.cached_property
    def _printed(self) -> PrintedNumbers:
        return printed_numbers(self.paper)

    @functools.cached_property
    def _prior(self) -> PrintedNumbers:
        return printed_numbers(self.prior)

    @functools.cached_property
    def _experiments(self) -> list[Experiment]:
        """The experiments of all cells at full scale, in order."""
        return [self._experiment(labels) for labels in self.labels()]

    def _experiment(self, labels: dict[str, str]) -> Experiment:
        values = [axis.value(labels[axis.name]) for axis in self.axes]
        adjusted = [entry.set for entry in self.adjust if matches(labels, entry.when)]
        assignments = itertools.chain(*(value.set for value in values), *adjusted)
        try:
            experiment = build(Experiment, {"name": self.name} | self.base, assignments)
            for value in values:
                if value.change is not None:
                    experiment = value.change(experiment)
            return experiment
        except ValueError as error:
            name = cell_name(labels.values())
            raise ConfigurationError(f"Cell {name!r} of table {self.name!r}: {error}") from error

    def _cell(self, labels: dict[str, str], experiment: Experiment) -> Cell:
        epochs = sum(stage.num_epochs for stage in experiment.stages)
        return Cell(self.name, labels, experiment, epochs, self._start(labels))

    def _start(self, labels: dict[str, str]) -> tuple[str, str, tuple[str, ...]] | None:
        start = next((one for one in self.start if matches(labels, one.when)), None)
        if start is None:
            return None
        source = read_table(start.table)
        wanted = {name: labels[name] for name in start.axes} | start.labels
        if wanted not in source.labels():
            raise ConfigurationError(
                f"Table {self.name!r} starts from cells of {source.name!r}, which has no cell "
                f"{wanted}."
            )
        ordered = [wanted[axis.name] for axis in source.axes]
        return source.name, cell_name(ordered), start.parts


def source_tables(tables: Iterable[Table]) -> set[str]:
    """Returns the names of all tables that these start from, directly or indirectly."""
    found: set[str] = set()
    new = {start.table for table in tables for start in table.start}
    while new:
        found |= new
        new = {start.table for name in new for start in read_table(name).start} - found
    return found


def read_table(source: str | os.PathLike) -> Table:
    """Reads a table of this package by its name, or another one by the path of its TOML file."""
    path = Path(source)
    if path.suffix == ".toml":
        return parse(Table, load(path) | {"name": path.stem})
    check_known("There is no table of that name", {str(source)} - {*table_names()}, table_names())
    return _packaged(str(source))


def table_names() -> list[str]:
    """Returns the names of all tables of this package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.cache
def _packaged(name: str) -> Table:
    return read_table(FOLDER / f"{name}.toml")
