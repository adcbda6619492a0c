"""Where a player draws states: in the image of a step, or on a plane seen from above."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax.lab.report.charts import with_unit

PLANE_SIZE = (100.0, 80.0)
"""Width and height of a plane; the numbers on screen need no other meaning."""

PLANE_FILLED = 0.85
"""How much of a plane its paths fill."""


@dataclass(frozen=True)
class View:
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

    def shows(self, components: Sequence[int]) -> bool:
        """Whether these components of a state alone say where it is drawn."""
        others = np.setdiff1d(np.arange(self.matrix.shape[1]), components)
        return not self.matrix[:, others].any()

    def of(self, components: Sequence[int]) -> "View":
        """The view of some components of states, without the others."""
        matrix = self.matrix[:, np.asarray(components, int)]
        return View(matrix, self.offset, self.width, self.height, self.margin)

    def places(self, states: Float[np.ndarray, "*b x"]) -> Float[np.ndarray, "*b 2"]:
        return states @ self.matrix.T + self.offset

    def ellipses(self, covariances: Float[np.ndarray, "*b x x"]) -> Float[np.ndarray, "*b 3"]:
        """Half axes and angle of the 2-σ ellipses.

        In closed form, which passes NaN on, while an eigenvalue routine may raise.
        """
        projected = self.matrix @ covariances @ self.matrix.T
        a, b, c = projected[..., 0, 0], projected[..., 0, 1], projected[..., 1, 1]
        middle, spread = (a + c) / 2, np.hypot((a - c) / 2, b)
        long = 2 * np.sqrt(np.maximum(middle + spread, 0.0))
        short = 2 * np.sqrt(np.maximum(middle - spread, 0.0))
        return np.stack([long, short, np.arctan2(2 * b, a - c) / 2], axis=-1)


def image_view(arrays: Mapping[str, np.ndarray]) -> View | None:
    """The view that images have of states, or None where there are none or they do not show it."""
    if "frames" not in arrays or "view_matrix" not in arrays:
        return None
    height, width = arrays["frames"].shape[2:4]
    margin = float(max(height, width) // 8)
    offset = arrays.get("view_offset", np.zeros(2)) + margin
    return View(
        arrays["view_matrix"], offset, width + 2 * margin, height + 2 * margin, margin=margin
    )


def projected(
    points: Float[np.ndarray, "*b 2"], projection: Float[np.ndarray, "3 3"]
) -> Float[np.ndarray, "*b 2"]:
    """The pixels in which a camera shows points of a plane."""
    seen = points @ projection[:, :2].T + projection[:, 2]
    # What is behind the camera is not seen.
    return np.where(seen[..., 2:] > 0, seen[..., :2] / seen[..., 2:], np.nan)


def plane_view(
    states: Float[np.ndarray, "t x"],
    means: Float[np.ndarray, "t x"],
    *,
    beside: Sequence[Float[np.ndarray, "... 2"]] = (),
    projection: Float[np.ndarray, "3 3"] | None = None,
) -> View:
    """One sequence from above: the first two components are a plane with y upwards.

    Both axes have the same scale. All of the true path is seen, and of the estimated one what is
    not further away than the true one is large: an estimate that is lost would leave a dot of it.
    What is `beside` them is seen, too. Where a camera looks at the plane, that is turned as in the
    images.
    """
    turn = _UPRIGHT if projection is None else _as_seen(projection, states[..., :2])
    matrix = turn @ np.eye(2, states.shape[-1])
    true, estimated = (_finite(part @ matrix.T) for part in (states, means))
    if not len(true):
        true = np.zeros((1, 2))
    others = [_finite(np.reshape(points, (-1, 2)) @ turn.T) for points in beside]
    seen = np.concatenate([true, *others])
    low, high = seen.min(0), seen.max(0)
    reach = max(float((high - low).max()), 1e-9)
    near = np.clip(estimated, low - reach, high + reach)
    low, high = (f([edge, *near], axis=0) for f, edge in ((np.min, low), (np.max, high)))
    size = np.asarray(PLANE_SIZE)
    zoom = PLANE_FILLED * float((size / np.maximum(high - low, 1e-9)).min())
    return View(zoom * matrix, size / 2 - zoom * (low + high) / 2, *PLANE_SIZE)


def plane_axes(view: View, names: Sequence[str], units: Sequence[str]) -> dict[str, Any]:
    """What is at the left and right, and at the bottom and top of a plane, and what they mean.

    A single component is drawn along the first axis. Numbers may grow to the left or downwards.
    """
    labels = [with_unit(name, unit) for name, unit in zip(names, units, strict=True)]
    matrix = np.zeros((2, 2))
    matrix[:, : len(labels)] = view.matrix[:, :2]
    if len(labels) == 1:
        matrix[1, 1] = -matrix[0, 0]
    across, upwards = np.abs(matrix).argmax(1)
    right, down = matrix[0, across], matrix[1, upwards]
    horizontal, vertical = view.offset
    return {
        "x": [-horizontal / right, (view.width - horizontal) / right],
        "y": [(view.height - vertical) / down, -vertical / down],
        "labels": [[*labels, ""][axis] for axis in (across, upwards)],
    }


_UPRIGHT = np.diag([1.0, -1.0])
"""To the right and downwards on a screen, for x to the right and y upwards."""


def _as_seen(
    projection: Float[np.ndarray, "3 3"], positions: Float[np.ndarray, "t 2"]
) -> Float[np.ndarray, "2 2"]:
    """The quarter turn of a plane that comes closest to how a camera shows these positions."""
    places = _finite(positions)
    middle = places.mean(0) if len(places) else np.zeros(2)
    step = 1e-3 * max(float(np.abs(middle).max()), 1.0)
    here = projected(middle, projection)
    slopes = np.stack([projected(middle + step * way, projection) - here for way in np.eye(2)], 1)
    quarter = np.asarray([[0.0, -1.0], [1.0, 0.0]])
    turns = [_UPRIGHT @ np.linalg.matrix_power(quarter, count) for count in range(4)]
    return turns[int(np.argmax([(turn * slopes).sum() for turn in turns]))]


def _finite(places: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "kept 2"]:
    return places[np.isfinite(places).all(-1)]
