"""What the sequence player draws: positions and ellipses in pixels, errors, process noise."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax.report.charts import Axis, Chart, Series, with_unit
from filtrax.report.figures import component_names, component_units, distance_unit
from filtrax.report.frames import png_uri, sheet, sheet_size
from filtrax.report.reading import Run
from filtrax.report.summaries import representatives

MOST_PARTICLES = 150
"""How many particles are drawn in each step."""

_PIXEL_DIGITS = 2
"""A hundredth of a pixel is finer than any screen shows."""


@dataclass(frozen=True)
class _View:
    """Where states are drawn: (column, row) = matrix x + offset, on so many pixels.

    Width and height include a margin around the image, because targets leave it. The pixel with
    index i covers the interval from i to i + 1: a raster that cuts off fractions, as the disc
    task's does, puts a disc where its exact position says, up to half a pixel.
    """

    matrix: Float[np.ndarray, "2 x"]
    offset: Float[np.ndarray, " 2"]
    width: float
    height: float
    margin: float = 0.0

    def places(self, states: Float[np.ndarray, "*b x"]) -> Float[np.ndarray, "*b 2"]:
        size = states.shape[-1]
        return states @ self.matrix[:, :size].T + self.offset

    def ellipses(self, covariances: Float[np.ndarray, "*b x x"]) -> Float[np.ndarray, "*b 3"]:
        """Half axes and angle of the 2-σ ellipses.

        In closed form, which passes NaN on, while an eigenvalue routine may raise.
        """
        matrix = self.matrix[:, : covariances.shape[-1]]
        projected = matrix @ covariances @ matrix.T
        a, b, c = projected[..., 0, 0], projected[..., 0, 1], projected[..., 1, 1]
        middle, spread = (a + c) / 2, np.hypot((a - c) / 2, b)
        long = 2 * np.sqrt(np.maximum(middle + spread, 0.0))
        short = 2 * np.sqrt(np.maximum(middle - spread, 0.0))
        return np.stack([long, short, np.arctan2(2 * b, a - c) / 2], axis=-1)


def playable(run: Run, images: MutableMapping[str, str]) -> dict[str, Any] | None:
    """All shown sequences of a run; adds the images they need to `images`, each once."""
    if not run.evaluation or not run.evaluation["states"].size:
        return None
    view = _view(run.evaluation)
    return {
        "name": run.name,
        "width": view.width,
        "height": view.height,
        "margin": view.margin,
        "components": component_names(run),
        "unit": distance_unit(run),
        "sequences": [
            _sequence(run, view, index, images) for index in range(len(run.evaluation["states"]))
        ],
    }


def _view(arrays: Mapping[str, np.ndarray]) -> _View:
    states, means = arrays["states"], arrays["means"]
    # Without a matrix the first two components are the axes of a plane with y upwards.
    matrix = arrays.get("view_matrix", np.diag([1.0, -1.0]) @ np.eye(2, states.shape[-1]))
    offset = arrays.get("view_offset", np.zeros(2))
    if "frames" in arrays:
        height, width = arrays["frames"].shape[2:4]
        margin = float(max(height, width) // 8)
        return _View(matrix, offset + margin, width + 2 * margin, height + 2 * margin, margin)
    places = np.concatenate([np.reshape(a @ matrix.T, (-1, 2)) for a in (states, means)])
    places = places[np.isfinite(places).all(-1)]
    low, high = (places.min(0), places.max(0)) if len(places) else (np.zeros(2), np.ones(2))
    # A square of 100 units around everything; the numbers on screen need no other meaning.
    zoom = 80 / max(float((high - low).max()), 1e-9)
    return _View(zoom * matrix, 50 - zoom * (low + high) / 2, 100.0, 100.0)


def _sequence(
    run: Run, view: _View, index: int, images: MutableMapping[str, str]
) -> dict[str, Any]:
    arrays = {
        name: array[index]
        for name, array in run.evaluation.items()
        if name in _PER_SEQUENCE and len(array) > index
    }
    errors = arrays.get("errors", arrays["states"] - arrays["means"])
    rows, columns = sheet_size(len(errors))
    return {
        "sheet": _sheet_key(arrays, images),
        "rows": rows,
        "columns": columns,
        "truth": _pixels(view.places(arrays["states"])),
        "estimate": _pixels(view.places(arrays["means"])),
        "ellipse": _pixels(view.ellipses(arrays["covariances"])),
        **_measurements(arrays, view),
        "particles": _particles(arrays, view),
        "distance": np.linalg.norm(errors, axis=-1),
        "visible": arrays.get("visible"),
        "errors": _error_charts(run, errors, arrays["covariances"]),
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


def _measurements(arrays: Mapping[str, np.ndarray], view: _View) -> dict[str, Any]:
    values, covariances = arrays.get("measurements"), arrays.get("measurement_covariances")
    # What is drawn must follow from the measured components alone.
    if values is None or view.matrix[:, values.shape[-1] :].any():
        return {"measurement": None, "measurementEllipse": None}
    ellipses = None if covariances is None else _pixels(view.ellipses(covariances))
    return {"measurement": _pixels(view.places(values)), "measurementEllipse": ellipses}


def _particles(arrays: Mapping[str, np.ndarray], view: _View) -> list[np.ndarray] | None:
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
