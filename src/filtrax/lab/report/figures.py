"""The charts of a report, from the records of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax.lab.report.charts import Axis, Chart, Series, wants_log, with_unit
from filtrax.lab.report.components import (
    component_names,
    component_units,
    distance_unit,
    measured_components,
)
from filtrax.lab.report.reading import Run
from filtrax.lab.report.summaries import (
    binned_quantiles,
    finite_only,
    thinned,
)
from filtrax.plot._moments import mean_and_band, stds_of

MOST_POINTS = 2000
"""The largest number of points in a scatter plot, to limit the size of the file."""


def learning_curves(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Charts losses and validation metrics over epochs for each stage of training."""
    stages = dict.fromkeys(epoch["stage"] for run in runs for epoch in run.epochs)
    return [{"stage": stage, "charts": _stage_charts(runs, stage)} for stage in stages]


def _stage_charts(runs: Sequence[Run], stage: str) -> list[Chart]:
    recorded = {
        i: [epoch for epoch in run.epochs if epoch["stage"] == stage] for i, run in enumerate(runs)
    }
    members = [m for epochs in recorded.values() for epoch in epochs for m in epoch["members"]]
    validated = dict.fromkeys(name for m in members for name in m.get("validation") or ())
    sources = {"Training loss": ("loss",)} | {
        f"Validation {name.replace('_', ' ')}": ("validation", name) for name in validated
    }
    charts = []
    for title, source in sources.items():
        lines = [_curve(runs[i].name, i, epochs, source) for i, epochs in recorded.items()]
        lines = [line for line in lines if np.isfinite(line.y).any()]
        if lines:
            unit = distance_unit(runs[0]) if source[-1] == "distance" else ""
            charts.append(_learning_chart(title, source[-1].replace("_", " "), unit, lines))
    return charts


def _learning_chart(title: str, quantity: str, unit: str, lines: Sequence[Series]) -> Chart:
    numbers = [edge for line in lines for edge in (line.y, line.low, line.high)]
    return Chart(
        title=title,
        x=Axis("epoch", whole=True),
        y=Axis(with_unit(quantity, unit), log=wants_log(*numbers)),
        series=lines,
    )


def _curve(
    name: str, style: int, epochs: Sequence[Mapping[str, Any]], source: Sequence[str]
) -> Series:
    x = np.asarray([float(epoch["epoch"]) for epoch in epochs])
    size = max((len(epoch["members"]) for epoch in epochs), default=0)
    values = np.full((len(epochs), size), np.nan)
    for row, epoch in enumerate(epochs):
        for column, member in enumerate(epoch["members"]):
            values[row, column] = _number(member, source)
    mean, low, high = finite_only(values)
    # Before training there is no loss: start the curve at its first finite number.
    known = np.isfinite(mean).cumsum() > 0
    if size < 2:
        return Series(name, x[known], mean[known], style=style)
    return Series(name, x[known], mean[known], low[known], high[known], style=style)


def _number(member: Mapping[str, Any], source: Sequence[str]) -> float:
    value: Any = member
    for key in source:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else np.nan


def sensor_noise(run: Run) -> Chart | None:
    """Plots the predicted standard deviation of the sensor over the visible pixels of the target.

    Returns None if the run has not recorded them.
    """
    visible, stds = _visible_and_stds(run.evaluation)
    if visible is None or stds is None:
        return None
    measured, units = measured_components(run)[: stds.shape[-1]], component_units(run)
    # Show components with the unit of the first one, a position, on one axis.
    rows = [row for row, j in enumerate(measured) if units[j] == units[measured[0]]]
    names = [component_names(run)[measured[row]] for row in rows]
    size = len(rows)
    known = np.isfinite(visible) & (np.isfinite(stds) & (stds > 0)).all(-1)
    x, y = visible[known], stds[known][:, rows]
    shown = thinned(len(x), MOST_POINTS // size)
    cloud = [
        Series(f"{names[j]}, each step", x[shown], y[shown, j], style=j, points=True)
        for j in range(size)
    ]
    few = f"{len(shown):,} of {len(x):,} steps are drawn as points."
    return Chart(
        title=run.name,
        x=Axis("visible pixels", zero=True),
        y=Axis(with_unit("predicted √R", units[measured[0]]), log=wants_log(y)),
        series=[*cloud, *(_medians(names[j], j, x, y[:, j]) for j in range(size))],
        note=few if len(shown) < len(x) else "",
    )


def _visible_and_stds(
    arrays: Mapping[str, np.ndarray],
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns visible pixels and √R of all sequences, or else of the shown ones, or None."""
    visible, stds = arrays.get("all_visible"), arrays.get("all_sensor_std")
    if visible is None or stds is None:
        visible, covariances = arrays.get("visible"), arrays.get("measurement_covariances")
        if visible is None or covariances is None:
            return None, None
        stds = stds_of(covariances)
    return visible.reshape(-1), stds.reshape(-1, stds.shape[-1])


def _medians(
    name: str, style: int, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]
) -> Series:
    places, (low, median, high) = binned_quantiles(x, y)
    return Series(f"{name}, median", places, median, low, high, style=style)


def nees(runs: Sequence[Run]) -> Chart | None:
    """Charts the mean NEES of all runs over time, with the 95 % band of a consistent filter."""
    lines, bands, notes = [], {}, []
    for style, run in enumerate(runs):
        if "nees" not in run.evaluation:
            continue
        values = run.evaluation["nees"]
        # A sequence counts at the steps at which it is finite.
        counted = np.isfinite(values)
        degrees = float(run.evaluation.get("degrees", 1.0))
        mean, *band = mean_and_band(values, degrees * counted, 0.95, axis=0)
        lines.append(Series(run.name, np.arange(1.0, len(mean) + 1), mean, style=style))
        broken = int((~counted).any(1).sum())
        if broken:
            notes.append(f"{broken} of {len(values)} sequences of {run.name} are not finite.")
        if "degrees" in run.evaluation:
            bands[degrees, counted.tobytes()] = _nees_band(degrees, len(values), *band)
    if not lines:
        return None
    reference = [series for band in bands.values() for series in band]
    numbers = [line.y for line in lines] + [series.low for series in reference]
    return Chart(
        title="NEES, mean over sequences",
        x=Axis("step", whole=True),
        y=Axis("NEES", log=wants_log(*numbers)),
        series=[*reference, *lines],
        note=" ".join(notes),
    )


def _nees_band(degrees: float, count: int, low: np.ndarray, high: np.ndarray) -> list[Series]:
    steps = np.arange(1.0, len(low) + 1)
    name = f"95 % band for {count} sequences"
    ends = steps[[0, -1]]
    return [
        Series(name, steps, low=low, high=high, style=None),
        Series(f"expected: {degrees:g}", ends, np.full(2, degrees), style=None),
    ]


def coverage(run: Run) -> Chart | None:
    """Plots empirical over nominal coverage of a run; None if it has not recorded them."""
    levels, found = run.evaluation.get("coverage_levels"), run.evaluation.get("coverage")
    if levels is None or found is None:
        return None
    ends = np.asarray([0.0, 100.0])
    lines = [
        Series(name, 100 * levels, 100 * found[:, j], style=j)
        for j, name in enumerate(component_names(run))
    ]
    return Chart(
        title=f"Coverage of {run.name}",
        x=Axis("nominal (%)"),
        y=Axis("found (%)"),
        series=[Series("calibrated", ends, ends, style=None), *lines],
    )
