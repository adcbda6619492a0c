"""Tables: a base experiment, the axes along which it varies, and the paper's numbers."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filtrax.checks import check_known
from filtrax.experiments.config import ConfigurationError, build, load, parse
from filtrax.experiments.settings import Experiment
from filtrax.reproduction.axes import Adjustment, Axis, Change, Start, Value, cell_name
from filtrax.reproduction.printed import PrintedNumbers, printed_numbers
from filtrax.reproduction.rules import Claim, Lost, Selection, chosen, matches
from filtrax.reproduction.scales import SCALES, scaled

__all__ = [
    "SCALES",
    "Adjustment",
    "Axis",
    "Cell",
    "Start",
    "Table",
    "Value",
    "cell_name",
    "read_table",
    "table_names",
]

FOLDER = Path(__file__).parent / "tables"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One experiment of a table.

    - `planned_epochs`: of all stages together, as the table says at this scale.
    - `start`: table and name of the cell that it begins with, and which parts of it; or None.
    """

    table: str
    labels: dict[str, str]
    experiment: Experiment
    planned_epochs: int
    start: tuple[str, str, tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        """All labels in the order of the axes, in letters that any file system takes."""
        return cell_name(self.labels.values())


@dataclasses.dataclass(frozen=True)
class Table:
    """A grid of experiments, what the paper printed of them, and what it claims.

    - `title`, `source`, `asks`: what it is called, where in the paper it is, and its question.
    - `metrics`: what is shown of each cell, in this order.
    - `axes`: what varies; cells are all combinations.
    - `rows`, `columns`: the axes of a printed table; the others make separate blocks.
    - `base`: what all cells have in common, as the file of an experiment says it.
    - `adjust`: what the combinations of axes do not say.
    - `start`: where cells begin.
    - `paper`: the printed numbers; `paper_value` finds them.
    - `claims`: what the paper says of them.
    - `lost`: which runs are counted as lost, if any.
    - `deviations`: what is different from the paper.
    - `shown`: whether records keep a sequence and a map of the predicted process noise.
    - `models`: whether trained models are kept, for the cells of other tables to start from.
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
    start: Start | None = None
    paper: str = ""
    claims: tuple[Claim, ...] = ()
    lost: Lost | None = None
    deviations: tuple[str, ...] = ()
    shown: bool = False
    models: bool = False

    def __post_init__(self):
        for names in (self.rows, self.columns, self.lost.against if self.lost else ()):
            for name in names:
                self.axis(name)
        for adjustment in self.adjust:
            self._check_selected(adjustment.when)
        for claim in self.claims:
            for rule in claim.rules:
                for selection in rule.selections:
                    self._check_selected(selection)
                for name in rule.total:
                    self.axis(name)
        self._check_printed()

    @property
    def blocks(self) -> tuple[str, ...]:
        """The axes that are neither rows nor columns."""
        return tuple(axis.name for axis in self.axes if axis.name not in self.rows + self.columns)

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        names = [axis.name for axis in self.axes]
        check_known(f"Table {self.name!r} has no such axis", {name} - {*names}, names)
        return self.axes[names.index(name)]

    def labels(self) -> list[dict[str, str]]:
        """The labels of all cells by axis, the last axis running fastest."""
        names = [axis.name for axis in self.axes]
        grid = itertools.product(*(axis.labels for axis in self.axes))
        cells = [dict(zip(names, labels, strict=True)) for labels in grid]
        skipped = [adjustment.when for adjustment in self.adjust if adjustment.skip]
        return [cell for cell in cells if not any(matches(cell, when) for when in skipped)]

    def cells(self, scale: str) -> list[Cell]:
        """The experiments of all cells at one of the `SCALES`."""
        check_known("`scale` must be a known one", {scale} - {*SCALES}, SCALES)
        pairs = zip(self.labels(), self._experiments, strict=True)
        return [self._cell(labels, scaled(experiment, scale)) for labels, experiment in pairs]

    def with_value(self, axis: str, label: str, change: Change | Iterable[str]) -> "Table":
        """The table with one more value on an axis, as for a filter of one's own.

        **Arguments:**

        - `axis`, `label`: where, and how it is called.
        - `change`: a function from the experiment of a cell to another one, or assignments.
        """
        old = self.axis(axis)
        value = Value(label, change=change) if callable(change) else Value(label, set=tuple(change))
        new = dataclasses.replace(old, values=(*old.values, value))
        axes = tuple(new if entry is old else entry for entry in self.axes)
        return dataclasses.replace(self, axes=axes)

    def paper_value(
        self, labels: Mapping[str, str], metric: str
    ) -> tuple[float, float | None] | None:
        """What the paper printed for a cell: the value, its standard error if any; or None."""
        return self._printed.find(labels, metric)

    def _check_selected(self, selection: Selection) -> None:
        for name, labels in selection.items():
            known = self.axis(name).labels
            unknown = [label for label in chosen(labels) if label not in known]
            check_known(f"Axis {name!r} of table {self.name!r} has no such label", unknown, known)

    def _check_printed(self) -> None:
        header = self._printed.header
        known = [*(axis.name for axis in self.axes), *self.metrics]
        unknown = [name for name in header if name not in known]
        check_known("The header of `paper` must name axes and metrics", unknown, known)
        cells = self.labels()
        for row in self._printed.labels(self.metrics):
            if not any(matches(cell, row) for cell in cells):
                raise ValueError(f"`paper` must speak of cells of its table, but none is {row}.")
            for metric in self.metrics:
                self.paper_value(row, metric)  # refuses what is no number

    @functools.cached_property
    def _printed(self) -> PrintedNumbers:
        return printed_numbers(self.paper)

    @functools.cached_property
    def _experiments(self) -> list[Experiment]:
        """The experiments of all cells, in their order, as the table says."""
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
        if self.start is None:
            return None
        source = read_table(self.start.table)
        wanted = {name: labels[name] for name in self.start.axes} | self.start.labels
        if wanted not in source.labels():
            raise ConfigurationError(
                f"Table {self.name!r} starts from cells of {source.name!r}, which has no cell "
                f"{wanted}."
            )
        ordered = [wanted[axis.name] for axis in source.axes]
        return source.name, cell_name(ordered), self.start.parts


def read_table(source: str | os.PathLike) -> Table:
    """A table of this package by its name, or one of your own by the path of its file."""
    path = Path(source)
    if path.suffix == ".toml":
        return parse(Table, load(path) | {"name": path.stem})
    check_known("There is no table of that name", {str(source)} - {*table_names()}, table_names())
    return _packaged(str(source))


def table_names() -> list[str]:
    """The names of all tables of this package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.cache
def _packaged(name: str) -> Table:
    return read_table(FOLDER / f"{name}.toml")
