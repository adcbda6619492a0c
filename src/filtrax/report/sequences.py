"""What the sequence player draws: positions and ellipses in pixels, errors, process noise."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtrax.report.charts import Axis, Chart, Series, with_unit
from filtrax.report.components import (
    MIXED_UNITS,
    component_names,
    component_units,
    distance_unit,
    heading_component,
    measured_components,
)
from filtrax.report.frames import png_uri, sheet, sheet_size
from filtrax.report.reading import Run
from filtrax.report.summaries import representatives
from filtrax.report.views import View, image_view, plane_axes, plane_view

MOST_PARTICLES = 150
"""How many particles are drawn in each step."""

_PIXEL_DIGITS = 2
"""A hundredth of a pixel is finer than any screen shows."""


@dataclass(frozen=True)
class Reading:
    """A number of each step that is shown beside the player."""

    name: str
    values: np.ndarray
    unit: str


def playable(run: Run, images: MutableMapping[str, str]) -> dict[str, Any] | None:
    """All shown sequences of a run; adds the images they need to `images`, each once."""
    if not run.evaluation or not run.evaluation["states"].size:
        return None
    return {
        "name": run.name,
        "components": component_names(run),
        "sequences": [
            _sequence(run, index, images) for index in range(len(run.evaluation["states"]))
        ],
    }


def _sequence(run: Run, index: int, images: MutableMapping[str, str]) -> dict[str, Any]:
    arrays = {
        name: array[index]
        for name, array in run.evaluation.items()
        if name in _PER_SEQUENCE and len(array) > index
    }
    names, units = component_names(run), component_units(run)
    view, plane = image_view(run.evaluation), None
    if view is None:
        view = plane_view(arrays["states"], arrays["means"])
        plane = plane_axes(view, names, units)
    errors = arrays.get("errors", arrays["states"] - arrays["means"])
    rows, columns = sheet_size(len(errors))
    return {
        "plane": plane,
        "width": view.width,
        "height": view.height,
        "margin": view.margin,
        "sheet": _sheet_key(arrays, images),
        "rows": rows,
        "columns": columns,
        "truth": _pixels(view.places(arrays["states"])),
        "estimate": _pixels(view.places(arrays["means"])),
        "ellipse": _pixels(view.ellipses(arrays["covariances"])),
        "heading": _headings(run, arrays) if plane else None,
        **_measurements(arrays, view, measured_components(run)),
        "particles": _particles(arrays, view),
        "readings": _readings(run, arrays, errors),
        "errors": _error_charts(run, errors, arrays["covariances"]),
        "measured": _measured_charts(run, arrays),
        "processNoise": _process_noise_charts(run, arrays),
    }


_PER_SEQUENCE = {
    *("states", "means", "covariances", "errors", "frames", "particles", "log_weights"),
    *("measurements", "measurement_covariances", "visible", "process_std", "true_process_std"),
}


def _pixels(values: np.ndarray) -> np.ndarray:
    return np.round(values, _PIXEL_DIGITS)


def _sheet_key(arrays: Mapping[str, np.ndarray], images: MutableMapping[str, str]) -> str | None:
    """The name of the sequence's image; runs on the same data share it."""
    if "frames" not in arrays:
        return None
    uri = png_uri(sheet(arrays["frames"]))
    for name, known in images.items():
        if known == uri:
            return name
    name = f"sheet-{len(images)}"
    images[name] = uri
    return name


def _headings(run: Run, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Which way truth and estimate look, as angles in radians on a screen, whose y is downwards.

    None where no component is called a heading.
    """
    heading = heading_component(run)
    if heading is None:
        return None
    in_radians = component_units(run)[heading] == "rad"
    return {
        kind: np.round(-(angles if in_radians else np.radians(angles)), 3)
        for kind, name in (("truth", "states"), ("estimate", "means"))
        for angles in [arrays[name][:, heading]]
    }


def _readings(run: Run, arrays: Mapping[str, np.ndarray], errors: np.ndarray) -> list[Reading]:
    """What is said of each step in numbers.

    A distance makes sense where all components are lengths; else the position and the heading have
    an error each.
    """
    unit, heading = distance_unit(run), heading_component(run)
    units = component_units(run)
    if unit != MIXED_UNITS:
        readings = [Reading("Distance", np.linalg.norm(errors, axis=-1), unit)]
    else:
        readings = [Reading("Position error", np.linalg.norm(errors[:, :2], axis=-1), units[0])]
    if heading is not None:
        readings.append(Reading("Heading error", np.abs(errors[:, heading]), units[heading]))
    if "visible" in arrays:
        readings.append(Reading("Visible pixels", arrays["visible"], ""))
    return readings


def _measurements(
    arrays: Mapping[str, np.ndarray], view: View, measured: Sequence[int]
) -> dict[str, Any]:
    values, covariances = arrays.get("measurements"), arrays.get("measurement_covariances")
    # What is drawn must follow from the measured components alone.
    if values is None or not view.shows(measured):
        return {"measurement": None, "measurementEllipse": None}
    view = view.of(measured)
    ellipses = None if covariances is None else _pixels(view.ellipses(covariances))
    return {"measurement": _pixels(view.places(values)), "measurementEllipse": ellipses}


def _particles(arrays: Mapping[str, np.ndarray], view: View) -> list[np.ndarray] | None:
    """For each step the column, row and weight, relative to the largest, of its particles."""
    if "particles" not in arrays:
        return None
    places = view.places(arrays["particles"])
    log_weights = arrays.get("log_weights", np.zeros(places.shape[:2]))
    steps = []
    for step_places, step_weights in zip(places, log_weights, strict=True):
        kept, weights = representatives(step_weights, MOST_PARTICLES)
        relative = weights[:, None] / weights.max(initial=1e-300)
        steps.append(np.concatenate([np.round(step_places[kept], 1), np.round(relative, 2)], 1))
    return steps


def _steps(values: np.ndarray) -> np.ndarray:
    return np.arange(1.0, len(values) + 1)


def _error_charts(run: Run, errors: np.ndarray, covariances: np.ndarray) -> list[Chart]:
    bounds = 2 * np.sqrt(np.maximum(np.diagonal(covariances, axis1=-2, axis2=-1), 0.0))
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


def _measured_charts(run: Run, arrays: Mapping[str, np.ndarray]) -> list[Chart]:
    """What is measured over time, where it is something else than a position."""
    if "measurements" not in arrays or "measured_components" not in run.evaluation:
        return []
    names, units = component_names(run), component_units(run)
    return [
        Chart(
            title=names[j].capitalize(),
            x=Axis("step", whole=True),
            y=Axis(with_unit(names[j], units[j])),
            series=[
                _with_band("measured, ±2σ", 2, arrays, "measurement", row),
                _with_band("estimated, ±2σ", 0, arrays, "mean", j),
                Series("true", _steps(arrays["states"]), arrays["states"][:, j], style=1),
            ],
        )
        for row, j in enumerate(measured_components(run))
    ]


def _with_band(
    name: str, style: int, arrays: Mapping[str, np.ndarray], kind: str, component: int
) -> Series:
    """A component of the measurements or of the means, with its band if it is known."""
    values = arrays[f"{kind}s"][:, component]
    covariances = arrays.get("covariances" if kind == "mean" else f"{kind}_covariances")
    if covariances is None:
        return Series(name.split(",")[0], _steps(values), values, style=style)
    bound = 2 * np.sqrt(np.maximum(covariances[:, component, component], 0.0))
    return Series(name, _steps(values), values, values - bound, values + bound, style=style)


def _process_noise_charts(run: Run, arrays: Mapping[str, np.ndarray]) -> list[Chart]:
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
