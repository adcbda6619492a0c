"""The comparison of our records with the paper's table, as data for pages and terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from filtrax.lab.measures import Measure, Measured
from filtrax.lab.reproduction.axes import Place
from filtrax.lab.reproduction.claims import Claim, Verdict, judge
from filtrax.lab.reproduction.display.measures import measure_of
from filtrax.lab.reproduction.tables import Table, cell_name
from filtrax.lab.reproduction.values import Record, lost, lost_at, measured_at

Labels = Mapping[str, str]

COLUMN = "column"
"""The axis of our variants of a table: with the paper's settings, and with our defaults."""

REFERENCE = "reference"
"""The row of the filter with the true noise, which is excluded from the best ones."""


@dataclass(frozen=True)
class Entry:
    """A metric of one cell, or its mean over several, ours and the paper's.

    Attributes:
        metric: The name of the metric.
        measure: The format and order of the metric.
        records: The records of the cells that were run, by their label on the averaged axis.
        cells: The number of cells of the mean, whether run or not; 0 for results of other work,
            which the paper quotes.
        ours: The metric of the records, None if there is none; infinite if it is not finite.
        paper: The paper's number, None if there is none.
        context: True if the paper's number is for other data, and not comparable.
        axis: The name of the averaged axis, if there is one.
    """

    metric: str
    measure: Measure
    records: Mapping[str, Record]
    cells: int
    ours: Measured | None
    paper: Measured | None
    context: bool = False
    axis: str = ""

    @property
    def state(self) -> str:
        """The reason why there is no number: "not run", "refused" or "–"; "" if there is one."""
        if not self.records:
            return "not run" if self.cells else "–"
        if all("refused" in record for record in self.records.values()):
            return "refused"
        return "–" if self.ours is None else ""

    @property
    def outcome(self) -> str:
        """One of "better", "within" and "worse"; "" if the numbers cannot be compared."""
        if self.ours is None or self.paper is None or self.context:
            return ""
        return self.measure.outcome(self.ours, self.paper)

    @property
    def epochs(self) -> str:
        """The finished and planned epochs as text; "" if training is complete."""
        found = [record.get("epochs") or {} for record in self.records.values()]
        counts = dict.fromkeys((one.get("done"), one.get("planned")) for one in found)
        cut = any(done != planned for done, planned in counts) and self.ours
        return ", ".join(f"{done} of {planned} epochs" for done, planned in counts) if cut else ""

    @property
    def part(self) -> str:
        """The number and labels of the cells in a mean that were run; "" if it is complete."""
        if not self.records or len(self.records) == self.cells:
            return ""
        return (
            f"{len(self.records)} of {self.cells} {_words(self.axis)}s: {', '.join(self.records)}"
        )


@dataclass(frozen=True)
class Grid:
    """One printed table: a heading, and entries by row and column; None for missing cells."""

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
        """True if the paper has a number for any entry."""
        return any(entry.paper is not None for entry in self.entries)

    def best(self) -> set[tuple[str, int]]:
        """Returns row and column of the best numbers of each column with at least two numbers.

        The reference filter, and means over fewer cells than others, are not considered.
        """
        found = set()
        for column in range(len(self.columns)):
            entries = {row: entries[column] for row, entries in self.rows.items()}
            most = max((len(entry.records) for entry in entries.values() if entry), default=0)
            bad = {
                row: entry.measure.badness(entry.ours.value)
                for row, entry in entries.items()
                if row != REFERENCE
                and entry is not None
                and entry.ours is not None
                and math.isfinite(entry.ours.value)
                and entry.measure.badness is not None
                and len(entry.records) == most
            }
            if len(bad) > 1:
                found |= {(row, column) for row in bad if bad[row] == min(bad.values())}
        return found


@dataclass(frozen=True)
class Block:
    """The part of a table with fixed labels on all axes but those of rows and columns."""

    labels: Labels
    grids: Sequence[Grid]

    @property
    def title(self) -> str:
        """The labels as a title."""
        text = ", ".join(f"{_words(axis)} {label}" for axis, label in self.labels.items())
        return text[:1].upper() + text[1:]

    @property
    def is_run(self) -> bool:
        """True if any of its cells has a record."""
        return any(entry.records for grid in self.grids for entry in grid.entries)


@dataclass(frozen=True)
class Comparison:
    """A table and the records of its cells."""

    table: Table
    records: Mapping[str, Record]

    @cached_property
    def cells(self) -> dict[str, Labels]:
        """The labels of all cells by cell name, in the order of the table."""
        return {cell_name(labels.values()): labels for labels in self.table.labels()}

    @cached_property
    def run(self) -> list[Record]:
        """The records of the table's cells, in their order."""
        return [self.records[name] for name in self.cells if name in self.records]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to show, with "lost" if the table counts lost runs."""
        return self.table.metrics if self.table.lost is None else (*self.table.metrics, "lost")

    @cached_property
    def blocks(self) -> list[Block]:
        """The printed tables, block by block."""
        combined = self._combinations(self.table.blocks)
        # Omit combinations of labels that the table skips.
        there = [
            labels for labels in combined if any(_items(labels) <= place for place in self._places)
        ]
        return [Block(labels, self._grids(labels)) for labels in there]

    def measure(self, metric: str) -> Measure:
        """Returns the format and order of a metric in this table."""
        return measure_of(metric, self.table.task)

    def entry(self, labels: Labels, metric: str) -> Entry | None:
        """Returns a metric at the place with exactly these labels; None without such a place."""
        place = self._places.get(_items(labels))
        if place is None:
            return None
        run = {label: cell for label, cell in place.cells.items() if cell in self.records}
        paper = self.table.paper_value(labels, metric)
        return Entry(
            metric,
            self.measure(metric),
            {label: self.records[cell] for label, cell in run.items()},
            len(place.cells),
            self._measured(place, metric),
            None if paper is None else Measured(*paper),
            self.table.context,
            self.table.average.axis if self.table.average is not None else "",
        )

    @cached_property
    def verdicts(self) -> list[dict[str, Verdict]]:
        """The verdicts on each claim, by column of ours ("" if there is only one).

        A claim that selects no cells of a column has no verdict there.
        """
        return self._judged(self.table.claims)

    @cached_property
    def goals(self) -> list[dict[str, Verdict]]:
        """The verdicts on each goal, as in `verdicts`."""
        return self._judged(self.table.goals)

    def _judged(self, claims: Iterable[Claim]) -> list[dict[str, Verdict]]:
        names = [axis.name for axis in self.table.axes]
        columns = self.table.axis(COLUMN).labels if COLUMN in names else ("",)
        found = []
        for claim in claims:
            judged = {
                name: judge(claim, self.table, self.records, {COLUMN: name} if name else None)
                for name in columns
            }
            found.append({name: verdict for name, verdict in judged.items() if verdict.findings})
        return found

    def _measured(self, place: Place, metric: str) -> Measured | None:
        if metric == "lost":
            return lost_at(place, self._lost)
        return measured_at(place, self.records, metric)

    def _prior(self, labels: Labels, metric: str) -> Entry | None:
        """Returns the paper's number for other work with these labels; None if there is none."""
        paper = self.table.prior_value(labels, metric)
        if paper is None:
            return None
        return Entry(metric, self.measure(metric), {}, 0, None, Measured(*paper), context=True)

    @cached_property
    def _lost(self) -> dict[str, int]:
        return lost(self.table, self.records)

    @cached_property
    def _places(self) -> dict[frozenset[tuple[str, str]], Place]:
        """All places by their labels, in any order."""
        return {_items(place.labels): place for place in self.table.places()}

    def _combinations(self, axes: Sequence[str]) -> list[dict[str, str]]:
        combined = product(*(self.table.shown_axis(name).labels for name in axes))
        return [dict(zip(axes, labels, strict=True)) for labels in combined]

    def _grids(self, labels: Labels) -> list[Grid]:
        """Makes one grid per metric, or a single grid with metrics as columns."""
        metrics, columns = self.metrics, self._combinations(self.table.columns)
        if self.table.columns:
            wanted = [
                (self.measure(metric).label, [(_label(c), c, metric) for c in columns])
                for metric in metrics
            ]
        else:
            wanted = [("", [(self.measure(metric).label, {}, metric) for metric in metrics])]
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
        for row in self.table.prior_rows(labels):
            rows[_label(row)] = [
                self._prior({**labels, **row, **column}, metric) for _, column, metric in chosen
            ]
        # Omit rows and columns without any cell.
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
