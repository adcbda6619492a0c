"""The figures of the pages: which numbers of a table are drawn, one picture for a table at most."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtrax.lab.report.charts import Axis, Chart, Series, wants_log
from filtrax.lab.reproduction.display.comparison import COLUMN, Comparison, Entry, Labels
from filtrax.lab.reproduction.display.drawing import Panel, Picture


@dataclass(frozen=True)
class Curves:
    """A metric over one axis of a table: one line for each combination of the other axes.

    Attributes:
        axis: The axis of the table that is horizontal.
        label: The label of the axis, with its unit.
        number: A regular expression whose group is the number in a label; labels that do not match
            are omitted. Empty if labels are names, which are shown as points.
        metrics: The metrics, one chart for each.
    """

    axis: str
    label: str
    number: str = r"([-\d.]+)"
    metrics: Sequence[str] = ("distance", "nll")


CURVES: Mapping[str, Curves] = {
    "disc_length": Curves("length", "length of training sequences (steps)"),
    "disc_loss": Curves("loss", "loss", number="", metrics=("distance", "sensor_error", "nll")),
    "kitti_length": Curves("length", "length of training sequences (steps)"),
}
"""The curves to draw, by name of the table."""

SHOWN: Mapping[str, Labels] = {
    "disc_process_noise": {"filter": "dEKF", "noise": "heteroscedastic", "data": "3 het"}
}
"""The labels of cells whose predicted process noise is drawn, by name of the table."""


def picture(compared: Comparison) -> Picture | None:
    """Returns the picture of a table; None if it has none, or no records to draw.

    Each column of ours has a column of panels.
    """
    name = compared.table.name
    columns = dict.fromkeys(labels.get(COLUMN, "") for labels in compared.cells.values())
    places = [{COLUMN: column} if column else {} for column in columns]
    if name in CURVES:
        curves = CURVES[name]
        rows = [[_curves(compared, curves, m, where) for where in places] for m in curves.metrics]
        measures = ", ".join(compared.measure(metric).label for metric in curves.metrics)
        caption = f"{measures} over {curves.label}; bars are standard errors"
    elif name in SHOWN:
        pairs = [_noise(compared, {**SHOWN[name], **where}) for where in places]
        rows = [list(row) for row in zip(*pairs, strict=True)]
        caption = "predicted and true process noise over one test sequence"
    else:
        return None
    used = [i for i in range(len(places)) if any(row[i] is not None for row in rows)]
    rows = [[row[i] for i in used] for row in rows if any(row)]
    return Picture(f"{name}.svg", _sentence(caption) + ".", rows) if rows else None


def _curves(compared: Comparison, curves: Curves, metric: str, where: Labels) -> Panel | None:
    table, measure = compared.table, compared.measure(metric)
    x, places = _places(table.axis(curves.axis).labels, curves.number)
    drawn = []
    for labels in _others(compared, curves.axis, where):
        entries = [compared.entry({**labels, curves.axis: place}, metric) for place in places]
        ours = [entry.ours for entry in entries if entry is not None and entry.ours is not None]
        if any(np.isfinite(measured.value) for measured in ours):
            drawn.append((labels, entries))
    if not drawn:
        return None
    # Labels that all lines share, like the column, are not part of their names.
    items = [{*labels.items()} for labels, _ in drawn]
    common = set.intersection(*items) if len(drawn) > 1 else {*where.items()}
    lines = []
    for labels, entries in drawn:
        name = _words(dict(item for item in labels.items() if item not in common))
        lines.append(_line(name, x, entries, style=len(lines), points=not curves.number))
    values = [edge for line in lines for edge in (line.y, line.low, line.high)]
    chart = Chart(
        title=where.get(COLUMN, ""),
        x=Axis(curves.label, log=bool(curves.number) and wants_log(x)),
        y=Axis(measure.label, log=wants_log(*values)),
        series=lines,
    )
    return Panel(chart, () if curves.number else places)


def _places(labels: Sequence[str], number: str) -> tuple[np.ndarray, list[str]]:
    """Returns the coordinates of an axis' labels, and the labels that have one."""
    if not number:
        return np.arange(float(len(labels))), list(labels)
    found = {label: re.fullmatch(number, label) for label in labels}
    numbers = {label: float(match[1]) for label, match in found.items() if match}
    return np.asarray([*numbers.values()]), list(numbers)


def _others(compared: Comparison, axis: str, where: Labels) -> list[dict[str, str]]:
    """Returns the combinations of labels on all other axes, without duplicates."""
    found = []
    for place in compared.table.places():
        others = {name: label for name, label in place.labels.items() if name != axis}
        if where.items() <= place.labels.items() and others not in found:
            found.append(others)
    return found


def _line(
    name: str, x: np.ndarray, entries: Sequence[Entry | None], *, style: int, points: bool
) -> Series:
    ours = [None if entry is None else entry.ours for entry in entries]
    y = np.asarray([np.nan if measured is None else measured.value for measured in ours])
    errors = np.asarray([0.0 if measured is None else measured.error or 0.0 for measured in ours])
    # Shift points, so that series at the same place do not hide each other.
    x = x + 0.09 * (style - 1.5) if points else x
    return Series(name, x, y, y - errors, y + errors, style=style, points=points)


def _words(labels: Labels) -> str:
    """Joins labels; those of axes other than "filter" are preceded by the name of the axis."""
    named = {axis: label for axis, label in labels.items() if axis == "filter"}
    rest = [f"{axis} {label}" for axis, label in labels.items() if axis not in named]
    return ", ".join([*named.values(), *rest])


def _noise(compared: Comparison, where: Labels) -> list[Panel | None]:
    """Draws predicted and true process noise of the first selected cell with a record of it.

    Returns the panels of position and velocity.
    """
    for cell, labels in compared.cells.items():
        shown = compared.records.get(cell, {}).get("shown") or {}
        if where.items() <= labels.items() and {"process_std", "true_process_std"} <= {*shown}:
            return [
                _sequence(shown, 0, "position (px)", where),
                _sequence(shown, 2, "velocity (px per step)", where),
            ]
    return [None, None]


def _sequence(shown: Mapping[str, Any], first: int, quantity: str, where: Labels) -> Panel:
    """Draws the noise of two components of the state, beginning with the component `first`."""
    predicted = np.asarray(shown["process_std"], np.float64)
    true = np.asarray(shown["true_process_std"], np.float64)
    x = np.arange(1.0, len(predicted) + 1)
    # The true noise is equal along both axes of the image.
    lines = [
        Series("true", x, true[:, first], style=None),
        Series("predicted, x", x, predicted[:, first], style=0),
        Series("predicted, y", x, predicted[:, first + 1], style=1),
    ]
    chart = Chart(
        where.get(COLUMN, ""), Axis("step"), Axis(f"noise of the {quantity}", zero=True), lines
    )
    return Panel(chart)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
