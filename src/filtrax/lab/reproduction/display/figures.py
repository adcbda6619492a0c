"""The figures of the pages, drawn from the records of a table."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtrax.lab.report.charts import Axis, Chart, Series, wants_log
from filtrax.lab.reproduction.display.comparison import COLUMN, Comparison, Entry, Labels
from filtrax.lab.reproduction.display.svg import HeatMap, heat_maps, line_chart


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


@dataclass(frozen=True)
class Picture:
    """An SVG picture with the name of its file, and a caption of one sentence."""

    name: str
    caption: str
    svg: str


CURVES: Mapping[str, Curves] = {
    "disc_belief": Curves("kernel", "standard deviation of the kernel (px, px per step)"),
    "disc_length": Curves(
        "length",
        "length of training sequences (steps)",
        metrics=("distance", "nll", "epoch_seconds"),
    ),
    "disc_loss": Curves("loss", "loss", number="", metrics=("distance", "sensor_error", "nll")),
    "disc_resampling": Curves("soft", "share α of the uniform distribution"),
    "disc_samples": Curves("samples", "number of samples in training"),
    "disc_ukf_scaling": Curves("scaling", "κ", number=r"kappa ([-\d.]+)"),
    "kitti_length": Curves("length", "length of training sequences (steps)"),
    "kitti_ukf_scaling": Curves("scaling", "κ", number=r"kappa ([-\d.]+)"),
}
"""The curves to draw, by name of the table."""

SHOWN: Mapping[str, Labels] = {
    "disc_process_noise": {"filter": "dEKF", "noise": "heteroscedastic", "data": "3 het"}
}
"""The labels of cells whose predicted process noise is drawn, by name of the table."""


def pictures(compared: Comparison) -> list[Picture]:
    """Draws all pictures of a table for which there are records."""
    name, found = compared.table.name, []
    # Each column of ours has its own pictures.
    for column in dict.fromkeys(labels.get(COLUMN, "") for labels in compared.cells.values()):
        where = {COLUMN: column} if column else {}
        if name in CURVES:
            for metric in CURVES[name].metrics:
                found += _curves(compared, CURVES[name], metric, where)
        if name in SHOWN:
            found += _noise(compared, {**SHOWN[name], **where})
    return found


def _curves(compared: Comparison, curves: Curves, metric: str, where: Labels) -> list[Picture]:
    table, measure = compared.table, compared.measure(metric)
    x, places = _places(table.axis(curves.axis).labels, curves.number)
    found = []
    for labels in _others(compared, curves.axis, where):
        entries = [compared.entry({**labels, curves.axis: place}, metric) for place in places]
        ours = [entry.ours for entry in entries if entry is not None and entry.ours is not None]
        if any(np.isfinite(measured.value) for measured in ours):
            found.append((labels, entries))
    if not found:
        return []
    # Labels that all lines share, like the column, are not part of their names.
    known = [{*labels.items()} for labels, _ in found]
    common = set.intersection(*known) if len(found) > 1 else {*where.items()}
    lines = []
    for labels, entries in found:
        name = _words(dict(item for item in labels.items() if item not in common))
        lines.append(_line(name, x, entries, style=len(lines), points=not curves.number))
    values = [edge for line in lines for edge in (line.y, line.low, line.high)]
    column = f" ({where[COLUMN]})" if where else ""
    chart = Chart(
        title=f"{table.title}: {measure.heading}{column}",
        x=Axis(curves.label, log=bool(curves.number) and wants_log(x)),
        y=Axis(measure.label, log=wants_log(*values)),
        series=lines,
    )
    drawn = line_chart(chart, () if curves.number else places)
    caption = f"{measure.label} over {curves.label}{column}; bars are standard errors."
    return [Picture(_file(compared, where, metric), _sentence(caption), drawn)]


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


def _noise(compared: Comparison, where: Labels) -> list[Picture]:
    """Draws predicted and true process noise of the first selected cell with a record of it."""
    for cell, labels in compared.cells.items():
        shown = compared.records.get(cell, {}).get("shown")
        if shown and where.items() <= labels.items():
            return [*_sequence(compared, shown, labels), *_maps(compared, shown, labels)]
    return []


def _sequence(compared: Comparison, shown: Mapping[str, Any], labels: Labels) -> list[Picture]:
    if not {"process_std", "true_process_std"} <= {*shown}:
        return []
    predicted = np.asarray(shown["process_std"], np.float64)
    true = np.asarray(shown["true_process_std"], np.float64)
    x = np.arange(1.0, len(predicted) + 1)
    found = []
    for i, name, unit in ((0, "position", "px"), (2, "velocity", "px per step")):
        # The true noise is equal along both axes of the image.
        lines = [
            Series("true", x, true[:, i], style=None),
            Series("predicted, x", x, predicted[:, i], style=0),
            Series("predicted, y", x, predicted[:, i + 1], style=1),
        ]
        chart = Chart(
            title=f"Process noise of the {name} over a sequence ({_short(labels)})",
            x=Axis("step"),
            y=Axis(f"standard deviation ({unit})", zero=True),
            series=lines,
        )
        caption = f"Predicted and true process noise of the {name} over one test sequence."
        file = _file(compared, labels, f"sequence_{name}")
        found.append(Picture(file, caption, line_chart(chart)))
    return found


def _maps(compared: Comparison, shown: Mapping[str, Any], labels: Labels) -> list[Picture]:
    if "occlusion" not in shown:
        return []
    counts = np.asarray(shown["counts"], np.float64)
    edges = np.asarray(shown["edges"], np.float64)
    maps = [
        HeatMap(title, _seen(shown[name], counts), edges, "true x (px)", "true y (px)")
        for name, title in (
            ("occlusion", "share of steps with the disc hidden"),
            ("process_std_map", "predicted position noise (px)"),
        )
    ]
    drawn = heat_maps(f"Hidden discs and predicted noise ({_short(labels)})", maps)
    caption = "Where the target is hidden, and the process noise of its position predicted there."
    return [Picture(_file(compared, labels, "map"), caption, drawn)]


def _seen(values: Any, counts: np.ndarray) -> np.ndarray:
    """Replaces the values of squares without any samples by NaN."""
    known = [[np.nan if value is None else value for value in row] for row in values]
    return np.where(counts > 0, np.asarray(known, np.float64), np.nan)


def _short(labels: Labels) -> str:
    return ", ".join(label for axis, label in labels.items() if axis != "noise")


def _file(compared: Comparison, labels: Labels, what: str) -> str:
    parts = (compared.table.name, labels.get(COLUMN), what)
    return "_".join(filter(None, parts)) + ".svg"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
