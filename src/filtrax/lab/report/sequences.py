"""The data of the sequence player: positions, ellipses and particles in pixels."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtrax.lab.report.components import (
    MIXED_UNITS,
    component_names,
    component_units,
    distance_unit,
    heading_component,
    measured_components,
    turning_component,
)
from filtrax.lab.report.frames import png_uri, sheet, sheet_size
from filtrax.lab.report.over_time import component_charts, error_charts, process_noise_charts
from filtrax.lab.report.reading import Run
from filtrax.lab.report.sketches import canvases, companions, sketch
from filtrax.lab.report.summaries import representatives
from filtrax.lab.report.views import View, image_view, plane_axes, plane_view

MOST_PARTICLES = 150
"""The largest number of particles to draw in each step."""

_PIXEL_DIGITS = 2
"""Decimals of pixels; finer positions are not visible."""


@dataclass(frozen=True)
class Reading:
    """A number for each step, shown beside the player."""

    name: str
    values: np.ndarray
    unit: str


def playable(run: Run, images: MutableMapping[str, str]) -> dict[str, Any] | None:
    """Returns the data of all shown sequences of a run, or None if it has none.

    Images are added to `images` without duplicates.
    """
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
    view, plane = image_view(run.evaluation), None
    if view is None:
        view = plane_view(
            arrays["states"],
            arrays["means"],
            beside=[arrays[name] for name in ("true_outlines", "companions") if name in arrays],
            projection=run.evaluation.get("projection"),
        )
        plane = plane_axes(view, component_names(run), component_units(run))
    shown_on = canvases(run, view, is_plane=plane is not None)
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
        "heading": _headings(run, arrays, view) if plane else None,
        **_measurements(arrays, view, measured_components(run)),
        "particles": _particles(arrays, view),
        "sketch": sketch(arrays, shown_on),
        "companions": companions(run, arrays, shown_on),
        "readings": _readings(run, arrays, errors),
        "errors": error_charts(run, errors, arrays["covariances"]),
        "measured": component_charts(run, arrays),
        "processNoise": process_noise_charts(run, arrays),
    }


_PER_SEQUENCE = {
    *("states", "means", "covariances", "errors", "frames", "particles", "log_weights"),
    *("measurements", "measurement_covariances", "visible", "process_std", "true_process_std"),
    *("true_outlines", "outlines", "true_arrows", "arrows", "companions", "mode_chances"),
}


def _pixels(values: np.ndarray) -> np.ndarray:
    return np.round(values, _PIXEL_DIGITS)


def _sheet_key(arrays: Mapping[str, np.ndarray], images: MutableMapping[str, str]) -> str | None:
    """Adds the sequence's image unless it exists, and returns its key; None without frames."""
    if "frames" not in arrays:
        return None
    uri = png_uri(sheet(arrays["frames"]))
    for name, known in images.items():
        if known == uri:
            return name
    name = f"sheet-{len(images)}"
    images[name] = uri
    return name


def _headings(
    run: Run, arrays: Mapping[str, np.ndarray], view: View
) -> dict[str, np.ndarray] | None:
    """Returns true and estimated headings as angles in radians on the screen (y downwards).

    Returns None if no component is called a heading.
    """
    heading = heading_component(run)
    if heading is None:
        return None
    in_radians = component_units(run)[heading] == "rad"
    found = {}
    for kind, name in (("truth", "states"), ("estimate", "means")):
        angles = arrays[name][:, heading]
        angles = angles if in_radians else np.radians(angles)
        right, down = view.matrix[:, :2] @ np.stack([np.cos(angles), np.sin(angles)])
        found[kind] = np.round(np.arctan2(down, right), 3)
    return found


def _readings(run: Run, arrays: Mapping[str, np.ndarray], errors: np.ndarray) -> list[Reading]:
    """Returns the numbers to show for each step.

    States with one unit have a distance; others an error of position, and one of heading or
    orientation, if they have such a component.
    """
    unit, turning = distance_unit(run), turning_component(run)
    units = component_units(run)
    if unit != MIXED_UNITS:
        readings = [Reading("Distance", np.linalg.norm(errors, axis=-1), unit)]
    else:
        readings = [Reading("Position error", np.linalg.norm(errors[:, :2], axis=-1), units[0])]
    if turning is not None:
        component, name = turning
        readings.append(Reading(name, np.abs(errors[:, component]), units[component]))
    if "visible" in arrays:
        readings.append(Reading("Visible pixels", arrays["visible"], ""))
    return readings


def _measurements(
    arrays: Mapping[str, np.ndarray], view: View, measured: Sequence[int]
) -> dict[str, Any]:
    values, covariances = arrays.get("measurements"), arrays.get("measurement_covariances")
    # The view must depend only on measured components.
    if values is None or not view.shows(measured):
        return {"measurement": None, "measurementEllipse": None}
    view = view.of(measured)
    ellipses = None if covariances is None else _pixels(view.ellipses(covariances))
    return {"measurement": _pixels(view.places(values)), "measurementEllipse": ellipses}


def _particles(arrays: Mapping[str, np.ndarray], view: View) -> list[np.ndarray] | None:
    """Returns column, row and weight (relative to the largest) of particles for each step."""
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
