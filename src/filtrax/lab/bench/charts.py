"""Charts of run time over problem size."""

from collections.abc import Mapping
from typing import Any

from filtrax.lab.bench.measurements import OURS, Record
from filtrax.lab.bench.suites import AXES, BASE
from filtrax.lab.report.charts import Axis, Chart, Series
from filtrax.lab.reproduction.display.svg import line_chart

LABELS = {
    "state": "components of the state",
    "observation": "components of an observation",
    "batch": "sequences in a batch",
    "steps": "steps of a sequence",
    "particles": "samples or particles",
}


def growth_charts(measured: Mapping[str, Record]) -> dict[str, str]:
    """Draws an SVG chart for each axis along which at least two sizes were measured."""
    charts = {}
    for axis in AXES:
        lines = _lines(measured, axis)
        if lines:
            charts[axis] = line_chart(_chart(axis, lines))
    return charts


def _lines(measured: Mapping[str, Record], axis: str) -> dict[str, list[Record]]:
    """Returns measurements along an axis by filter, sorted by size; at least two sizes each."""
    base = vars(BASE)
    found: dict[str, list[Record]] = {}
    for one in measured.values():
        if "refused" in one or one["kind"] != "gradient":
            continue
        others = {name: size for name, size in one["sizes"].items() if name != axis}
        if others == {name: size for name, size in base.items() if name != axis}:
            found.setdefault(one["filter"], []).append(one)
    ordered = {
        name: sorted(ones, key=lambda one: one["sizes"][axis]) for name, ones in found.items()
    }
    return {name: ones for name, ones in ordered.items() if len({*_sizes(ones, axis)}) > 1}


def _chart(axis: str, lines: Mapping[str, list[Record]]) -> Chart:
    series = []
    for style, (name, ones) in enumerate(lines.items()):
        times = [one["seconds"][OURS] for one in ones]
        series.append(
            Series(
                name,
                _sizes(ones, axis),
                _milliseconds(summary["median"] for summary in times),
                _milliseconds(summary["quartiles"][0] for summary in times),
                _milliseconds(summary["quartiles"][1] for summary in times),
                style=style,
            )
        )
    for name, ones in lines.items():
        floors = _milliseconds(one["floor"]["floor"] for one in ones)
        series.append(Series(f"floor of {name}", _sizes(ones, axis), floors, style=None))
    title = f"Value and gradient over {LABELS[axis]}"
    return Chart(title, Axis(LABELS[axis], log=True), Axis("time (ms)", log=True), series)


def _sizes(ones: list[Record], axis: str) -> list[float]:
    return [float(one["sizes"][axis]) for one in ones]


def _milliseconds(seconds: Any) -> list[float]:
    return [1e3 * value for value in seconds]
