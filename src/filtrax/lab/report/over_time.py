"""Charts of one sequence over time: errors, components, modes and process noise."""

from collections.abc import Mapping

import numpy as np

from filtrax.lab.report.charts import Axis, Chart, Series, with_unit
from filtrax.lab.report.components import (
    component_names,
    component_titles,
    component_units,
    heading_component,
    measured_components,
)
from filtrax.lab.report.reading import Run
from filtrax.plot._moments import stds_of


def _steps(values: np.ndarray) -> np.ndarray:
    return np.arange(1.0, len(values) + 1)


def error_charts(run: Run, errors: np.ndarray, covariances: np.ndarray) -> list[Chart]:
    """Charts the error of each component with the filter's ±2σ band."""
    bounds = 2 * stds_of(covariances)
    named = zip(component_names(run), component_units(run), strict=True)
    return [
        Chart(
            title=f"Error of {name}",
            x=Axis("step", whole=True),
            y=Axis(with_unit("truth − estimate", unit), zero=True),
            series=[
                Series("±2σ", _steps(errors), low=-bounds[:, j], high=bounds[:, j], style=None),
                Series("error", _steps(errors), errors[:, j], style=0),
            ],
        )
        for j, (name, unit) in enumerate(named)
    ]


def component_charts(run: Run, arrays: Mapping[str, np.ndarray]) -> list[Chart]:
    """Charts mode probabilities, and components that are measured or not visible on the map.

    Runs that measure the first components of the state get no charts of components.
    """
    modes = _mode_chart(arrays["mode_chances"]) if "mode_chances" in arrays else []
    if "measurements" not in arrays or "measured_components" not in run.evaluation:
        return modes
    measured, on_map = measured_components(run), {0, 1, heading_component(run)}
    titles, names, units = component_titles(run), component_names(run), component_units(run)
    # For each component of the state, its row in the measurement, if any.
    rows = [[row for row, m in enumerate(measured) if m == j] for j in range(len(names))]
    return modes + [
        Chart(
            title=titles[j],
            x=Axis("step", whole=True),
            y=Axis(with_unit(names[j], units[j])),
            series=[
                *(_with_band("measured, ±2σ", 2, arrays, "measurement", row) for row in rows[j]),
                _with_band("estimated, ±2σ", 0, arrays, "mean", j),
                Series("true", _steps(arrays["states"]), arrays["states"][:, j], style=1),
            ],
        )
        for j in range(len(names))
        if rows[j] or j not in on_map
    ]


def _mode_chart(chances: np.ndarray) -> list[Chart]:
    lines = [
        Series(f"mode {mode + 1}", _steps(chances), chances[:, mode], style=mode)
        for mode in range(chances.shape[-1])
    ]
    x, y = Axis("step", whole=True), Axis("probability", zero=True)
    return [Chart(title="Modes of the process", x=x, y=y, series=lines)]


def _with_band(
    name: str, style: int, arrays: Mapping[str, np.ndarray], kind: str, component: int
) -> Series:
    """Makes the line of a component of the measurements or means, with ±2σ if known."""
    values = arrays[f"{kind}s"][:, component]
    covariances = arrays.get("covariances" if kind == "mean" else f"{kind}_covariances")
    if covariances is None:
        return Series(name.split(",")[0], _steps(values), values, style=style)
    bound = 2 * stds_of(covariances)[:, component]
    return Series(name, _steps(values), values, values - bound, values + bound, style=style)


def process_noise_charts(run: Run, arrays: Mapping[str, np.ndarray]) -> list[Chart]:
    """Charts predicted and true standard deviations of the process noise by component."""
    kinds = {"predicted": "process_std", "true": "true_process_std"}
    known = {kind: arrays[name] for kind, name in kinds.items() if name in arrays}
    if "predicted" not in known:
        return []
    named = zip(component_names(run), component_units(run), strict=True)
    return [
        Chart(
            title=f"√Q of {name}",
            x=Axis("step", whole=True),
            y=Axis(with_unit("standard deviation", unit), zero=True),
            series=[
                Series(kind, _steps(stds), stds[:, j], style=style)
                for style, (kind, stds) in enumerate(known.items())
            ],
        )
        for j, (name, unit) in enumerate(named)
    ]
