"""A table of ours beside the paper's, as data: the page and the terminal print the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from filtrax.reproduction.claims import Verdict, judge
from filtrax.reproduction.display.measures import Measure, measure_of
from filtrax.reproduction.tables import Table, cell_name
from filtrax.reproduction.values import Measured, Record, lost, measured

Labels = Mapping[str, str]

COLUMN = "column"
"""The axis of our ways to run a table: the paper's settings, or those that we ship."""

REFERENCE = "reference"
"""The row of the filter that knows what the others must learn; it is never the best."""


@dataclass(frozen=True)
class Entry:
    """A metric of one cell, ours and the paper's.

    Attributes:
        metric: The name of the metric.
        record: The record of the cell, None if it was not run.
        ours: The metric of the record, None if it has none; infinite if it is not finite.
        paper: What the paper prints, None if it prints nothing.
    """

    metric: str
    record: Record | None
    ours: Measured | None
    paper: Measured | None

    @property
    def measure(self) -> Measure:
        """How the metric is written and judged."""
        return measure_of(self.metric)

    @property
    def state(self) -> str:
        """Why there is no number, or nothing if there is one."""
        if self.record is None:
            return "not run"
        if "refused" in self.record:
            return "refused"
        return "–" if self.ours is None else ""

    @property
    def outcome(self) -> str:
        """One of "better", "within" and "worse", or nothing where one of them is missing."""
        if self.ours is None or self.paper is None:
            return ""
        return self.measure.outcome(self.ours, self.paper)

    @property
    def epochs(self) -> str:
        """How much of the planned training was done, if not all of it."""
        epochs = (self.record or {}).get("epochs") or {}
        done, planned = epochs.get("done"), epochs.get("planned")
        return f"{done} of {planned} epochs" if self.ours and done != planned else ""


@dataclass(frozen=True)
class Grid:
    """One printed table: a heading, and entries by row and column; None where there is no cell."""

    heading: str
    corner: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Entry | None]]

    @property
    def entries(self) -> list[Entry]:
        """All entries."""
        return [entry for row in self.rows.values() for entry in row if entry is not None]

    @property
    def is_printed(self) -> bool:
        """Whether the paper has a number for any entry."""
        return any(entry.paper is not None for entry in self.entries)

    def best(self) -> set[tuple[str, int]]:
        """Row and column of the best numbers of each column; none where only one row has any.

        The reference filter takes no part.
        """
        found = set()
        for column in range(len(self.columns)):
            bad = {
                row: entry.measure.badness(entry.ours.value)
                for row, entries in self.rows.items()
                if row != REFERENCE
                and (entry := entries[column]) is not None
                and entry.ours is not None
                and entry.measure.badness is not None
            }
            if len(bad) > 1:
                found |= {(row, column) for row in bad if bad[row] == min(bad.values())}
        return found


@dataclass(frozen=True)
class Block:
    """The part of a table that shares the labels of all axes besides those of rows and columns."""

    labels: Labels
    grids: Sequence[Grid]

    @property
    def title(self) -> str:
        """The labels, in words."""
        text = ", ".join(f"{_words(axis)} {label}" for axis, label in self.labels.items())
        return text[:1].upper() + text[1:]

    @property
    def is_run(self) -> bool:
        """Whether any of its cells has a record."""
        return any(entry.record is not None for grid in self.grids for entry in grid.entries)


@dataclass(frozen=True)
class Comparison:
    """A table and the records of its cells."""

    table: Table
    records: Mapping[str, Record]

    @cached_property
    def cells(self) -> dict[str, Labels]:
        """The labels of all cells by the names of the cells, in the order of the table."""
        return {cell_name(labels.values()): labels for labels in self.table.labels()}

    @cached_property
    def run(self) -> list[Record]:
        """The records of the table's cells, in their order."""
        return [self.records[name] for name in self.cells if name in self.records]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is shown of each cell; where runs can be lost, also how many are."""
        return self.table.metrics if self.table.lost is None else (*self.table.metrics, "lost")

    @cached_property
    def blocks(self) -> list[Block]:
        """The printed tables, block by block."""
        combined = self._combinations(self.table.blocks)
        # No block for combinations that the table leaves out.
        there = [
            labels for labels in combined if any(_items(labels) <= cell for cell in self._names)
        ]
        return [Block(labels, self._grids(labels)) for labels in there]

    def entry(self, labels: Labels, metric: str) -> Entry | None:
        """A metric of the cell with exactly these labels; None if the table has no such cell."""
        cell = self._names.get(_items(labels))
        if cell is None:
            return None
        record = self.records.get(cell)
        paper = self.table.paper_value(labels, metric)
        return Entry(
            metric,
            record,
            self._measured(cell, metric),
            None if paper is None else Measured(*paper),
        )

    @cached_property
    def verdicts(self) -> list[dict[str, Verdict]]:
        """For each claim what comes out, by the column of ours ("" if there is only one).

        A claim that is not about the cells of a column has no verdict there.
        """
        names = [axis.name for axis in self.table.axes]
        columns = self.table.axis(COLUMN).labels if COLUMN in names else ("",)
        found = []
        for claim in self.table.claims:
            judged = {
                name: judge(claim, self.table, self.records, {COLUMN: name} if name else None)
                for name in columns
            }
            found.append({name: verdict for name, verdict in judged.items() if verdict.findings})
        return found

    def _measured(self, cell: str, metric: str) -> Measured | None:
        if metric == "lost":
            count = self._lost.get(cell)
            return None if count is None else Measured(float(count))
        return measured(self.records.get(cell), metric)

    @cached_property
    def _lost(self) -> dict[str, int]:
        return lost(self.table, self.records)

    @cached_property
    def _names(self) -> dict[frozenset[tuple[str, str]], str]:
        """The names of cells by their labels in any order."""
        return {_items(labels): name for name, labels in self.cells.items()}

    def _combinations(self, axes: Sequence[str]) -> list[dict[str, str]]:
        combined = product(*(self.table.axis(name).labels for name in axes))
        return [dict(zip(axes, labels, strict=True)) for labels in combined]

    def _grids(self, labels: Labels) -> list[Grid]:
        """One grid per metric, or a single one with the metrics as columns."""
        metrics, columns = self.metrics, self._combinations(self.table.columns)
        if self.table.columns:
            wanted = [
                (measure_of(metric).label, [(_label(c), c, metric) for c in columns])
                for metric in metrics
            ]
        else:
            wanted = [("", [(measure_of(metric).label, {}, metric) for metric in metrics])]
        return [self._grid(labels, heading, chosen) for heading, chosen in wanted]

    def _grid(
        self, labels: Labels, heading: str, chosen: Sequence[tuple[str, Labels, str]]
    ) -> Grid:
        rows = {
            _label(row): [
                self.entry({**labels, **row, **column}, metric) for _, column, metric in chosen
            ]
            for row in self._combinations(self.table.rows)
        }
        # Neither rows nor columns without any cell are worth printing.
        rows = {label: row for label, row in rows.items() if any(row)}
        kept = [i for i in range(len(chosen)) if any(row[i] for row in rows.values())]
        corner = " and ".join(map(_words, self.table.rows))
        if self.table.columns:
            corner += " \\ " + " and ".join(map(_words, self.table.columns))
        return Grid(
            heading,
            corner,
            [chosen[i][0] for i in kept],
            {label: [row[i] for i in kept] for label, row in rows.items()},
        )


def _items(labels: Labels) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _label(labels: Labels) -> str:
    return ", ".join(labels.values())


def _words(name: str) -> str:
    return name.replace("_", " ")
