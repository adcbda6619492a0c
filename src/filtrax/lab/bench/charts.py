"""Charts of run time over problem size."""

from collections.abc import Mapping, Sequence
from typing import Any

from filtrax.lab.bench.measurements import OURS, Record
from filtrax.lab.bench.suites import AXES, BASE
from filtrax.lab.report.charts import Axis, Chart, Series
from filtrax.lab.reproduction.display.drawing import Panel, Picture

LABELS = {
    "state": "components of the state",
    "observation": "components of an observation",
    "batch": "sequences in a batch",
    "steps": "steps of a sequence",
    "particles": "samples or particles",
}
LEAST_PANELS, COLUMNS = 2, 3
"""The fewest panels of a picture, and the panels in a row."""


def growth_picture(name: str, measured: Mapping[str, Record]) -> Picture | None:
    """Draws one panel for each axis along which at least two sizes were measured.

    **Arguments:**

    - `name`: the name of the file.
    - `measured`: the measurements of a record by name.

    **Returns:** None for a single axis, whose times are in the tables.
    """
    lines = {axis: _lines(measured, axis) for axis in AXES}
    filters = list(dict.fromkeys(name for each in lines.values() for name in each))
    panels = [Panel(_chart(axis, each, filters)) for axis, each in lines.items() if each]
    if len(panels) < LEAST_PANELS:
        return None
    places = [*panels, *[None] * (-len(panels) % COLUMNS)]
    rows = [places[i : i + COLUMNS] for i in range(0, len(places), COLUMNS)]
    return Picture(name, "Time of value and gradient over the size of the problem.", rows)


def _lines(measured: Mapping[str, Record], axis: str) -> dict[str, list[Record]]:
    """Returns measurements along an axis by filter, sorted by size; at least two sizes each."""
    base = vars(BASE)
    lines: dict[str, list[Record]] = {}
    for record in measured.values():
        if "refused" in record or record["kind"] != "gradient":
            continue
        others = {name: size for name, size in record["sizes"].items() if name != axis}
        if others == {name: size for name, size in base.items() if name != axis}:
            lines.setdefault(record["filter"], []).append(record)
    ordered = {
        name: sorted(records, key=lambda record: record["sizes"][axis])
        for name, records in lines.items()
    }
    return {name: records for name, records in ordered.items() if len({*_sizes(records, axis)}) > 1}


def _chart(axis: str, lines: Mapping[str, list[Record]], filters: Sequence[str]) -> Chart:
    """Charts the lines of an axis; a filter has the same style in all panels."""
    series = []
    for name, records in lines.items():
        times = [record["seconds"][OURS] for record in records]
        series.append(
            Series(
                name,
                _sizes(records, axis),
                _milliseconds(summary["median"] for summary in times),
                _milliseconds(summary["quartiles"][0] for summary in times),
                _milliseconds(summary["quartiles"][1] for summary in times),
                style=filters.index(name),
            )
        )
    return Chart("", Axis(LABELS[axis], log=True), Axis("time (ms)", log=True), series)


def _sizes(records: list[Record], axis: str) -> list[float]:
    return [float(record["sizes"][axis]) for record in records]


def _milliseconds(seconds: Any) -> list[float]:
    return [1e3 * value for value in seconds]
