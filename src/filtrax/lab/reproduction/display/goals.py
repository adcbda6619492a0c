"""The goals of the benchmark, computed from its records.

The reference filter knows the true process and its noise, and has a nearly perfect sensor for
visible targets. A goal is the share of the gap between the paper's best row and this reference
that ours should close. The reference is no bound, because it ignores frames with hidden targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from filtrax.lab.reproduction.display.comparison import COLUMN, REFERENCE, Comparison, Entry
from filtrax.lab.reproduction.display.measures import measure_of
from filtrax.lab.reproduction.display.sections import markdown_table

BENCHMARK = "disc_benchmark"
OURS = "filtrax"
"""The column of the goals."""

SHARES = {"distance": 2 / 3, "nll": 1 / 2}
"""The share of the gap that the best filter should close, by metric."""

MIXTURE = "dPF-M"
MIXTURE_NLL = {"3": 10.0, "9": 12.0}
"""The upper bounds on the NLL of the particle filter with a mixture, by data."""


@dataclass(frozen=True)
class Gap:
    """The best rows of one data set in one metric.

    Attributes:
        data: The label of the data.
        metric: The name of the metric.
        paper: Row and value of the paper's best.
        reference: The value of the reference filter, None if it was not run.
        ours: Row and value of our best filter, with any networks; None if none was run.
        alike: The same among the paper's rows, with the paper's networks.
    """

    data: str
    metric: str
    paper: tuple[str, float]
    reference: float | None
    ours: tuple[str, float] | None
    alike: tuple[str, float] | None

    @property
    def closed(self) -> float | None:
        """The share of the gap from the paper's best to the reference that ours closes.

        None if a number is missing, or if the reference is not below the paper's best.
        """
        if self.ours is None or self.reference is None or self.reference >= self.paper[1]:
            return None
        return (self.paper[1] - self.ours[1]) / (self.paper[1] - self.reference)


def gaps(compared: Comparison) -> list[Gap]:
    """Returns the gaps of the benchmark for all metrics and data."""
    found = []
    for metric in SHARES:
        for data in _labels(compared, "data"):
            entries = {row: _entry(compared, row, data, metric) for row in _rows(compared)}
            gap = _gap(data, metric, {row: e for row, e in entries.items() if e is not None})
            found += [] if gap is None else [gap]
    return found


def goals(compared: Comparison) -> str:
    """Renders the goals as Markdown: gaps, and the NLL of the particle filter with a mixture."""
    rows = [_gap_row(gap) for gap in gaps(compared)]
    head = (
        "metric, data",
        "paper's best",
        "reference",
        "ours best",
        "of the paper's rows",
        "gap closed",
        "goal",
        "",
    )
    parts = [markdown_table(head, rows)] if rows else []
    mixture = [row for data in _labels(compared, "data") for row in _mixture_rows(compared, data)]
    head = (f"{MIXTURE}, data", "NLL", "paper", "goal", "", *map(_heading, _BESIDE))
    return "\n\n".join([*parts, markdown_table(head, mixture)])


_BESIDE = ("moment_nll", "coverage_50", "coverage_90")
"""Metrics to show with the NLL of a mixture, which a wide kernel alone can improve."""


def _gap(data: str, metric: str, entries: dict[str, Entry]) -> Gap | None:
    paper = {row: entry.paper.value for row, entry in entries.items() if entry.paper is not None}
    if not paper:
        return None
    ours = {row: entry.ours for row, entry in entries.items() if row != REFERENCE}
    known = {row: measured.value for row, measured in ours.items() if measured is not None}
    alike = {row: value for row, value in known.items() if row in paper}
    reference = entries[REFERENCE].ours if REFERENCE in entries else None
    return Gap(
        data,
        metric,
        _lowest(paper),
        None if reference is None else reference.value,
        _lowest(known) if known else None,
        _lowest(alike) if alike else None,
    )


def _lowest(values: dict[str, float]) -> tuple[str, float]:
    row = min(values, key=values.__getitem__)
    return row, values[row]


def _gap_row(gap: Gap) -> list[str]:
    def text(found: tuple[str, float] | None) -> str:
        return "not run" if found is None else f"{found[1]:.2f} ({found[0]})"

    goal = SHARES[gap.metric]
    return [
        f"{measure_of(gap.metric).heading}, {gap.data}",
        text(gap.paper),
        "not run" if gap.reference is None else f"{gap.reference:.2f}",
        text(gap.ours),
        text(gap.alike),
        "–" if gap.closed is None else f"{gap.closed:.0%}",
        f"{goal:.0%}",
        _verdict(None if gap.closed is None else gap.closed >= goal),
    ]


def _mixture_rows(compared: Comparison, data: str) -> list[list[str]]:
    goal, entry = MIXTURE_NLL.get(data), _entry(compared, MIXTURE, data, "nll")
    if entry is None:
        return []
    is_below = entry.ours.value < goal if entry.ours is not None and goal is not None else None
    row = [data, entry.state or entry.measure.text(entry.ours), entry.measure.text(entry.paper)]
    row += ["–" if goal is None else f"below {goal:g}", _verdict(is_below)]
    beside = [_entry(compared, MIXTURE, data, metric) for metric in _BESIDE]
    return [row + [measure_of(e.metric).text(e.ours) for e in beside if e is not None]]


def _verdict(is_met: bool | None) -> str:
    return "" if is_met is None else "met" if is_met else "missed"


def _heading(metric: str) -> str:
    return measure_of(metric).heading


def _entry(compared: Comparison, row: str, data: str, metric: str) -> Entry | None:
    return compared.entry({COLUMN: OURS, "filter": row, "data": data}, metric)


def _rows(compared: Comparison) -> Sequence[str]:
    return _labels(compared, "filter")


def _labels(compared: Comparison, axis: str) -> list[str]:
    return list(compared.table.axis(axis).labels)
