"""Maps from states to pixels: in the image of a step, or on a plane seen from above."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax.lab.report.charts import with_unit
from filtrax.plot._moments import ellipses

PLANE_SIZE = (100.0, 80.0)
"""Width and height of a plane in arbitrary units."""

PLANE_FILLED = 0.85
"""The fraction of a plane that its paths fill."""


@dataclass(frozen=True)
class View:
    """The map from states x to pixels: (column, row) = matrix x + offset.

    Width and height include a margin around the image, because targets leave it. The pixel with
    index i covers the interval from i to i + 1, so that renderers that truncate positions, like
    that of the disc task, are off by at most half a pixel.
    """

    matrix: Float[np.ndarray, "2 x"]
    offset: Float[np.ndarray, " 2"]
    width: float
    height: float
    margin: float = 0.0

    def shows(self, components: Sequence[int]) -> bool:
        """Returns True if pixels depend on these components of the state only."""
        others = np.setdiff1d(np.arange(self.matrix.shape[1]), components)
        return not self.matrix[:, others].any()

    def of(self, components: Sequence[int]) -> "View":
        """Returns the view of vectors that consist of these components only."""
        matrix = self.matrix[:, np.asarray(components, int)]
        return View(matrix, self.offset, self.width, self.height, self.margin)

    def places(self, states: Float[np.ndarray, "*b x"]) -> Float[np.ndarray, "*b 2"]:
        return states @ self.matrix.T + self.offset

    def ellipses(self, covariances: Float[np.ndarray, "*b x x"]) -> Float[np.ndarray, "*b 3"]:
        """Returns semi-axes and angles of 2-σ ellipses."""
        return ellipses(self.matrix @ covariances @ self.matrix.T, 2.0)


def image_view(arrays: Mapping[str, np.ndarray]) -> View | None:
    """Returns the view of states in images; None without images, or if they show no positions."""
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
    """Projects points of a plane into a camera image; NaN behind the camera."""
    seen = points @ projection[:, :2].T + projection[:, 2]
    # Points behind the camera are invisible.
    return np.where(seen[..., 2:] > 0, seen[..., :2] / seen[..., 2:], np.nan)


def plane_view(
    states: Float[np.ndarray, "t x"],
    means: Float[np.ndarray, "t x"],
    *,
    beside: Sequence[Float[np.ndarray, "... 2"]] = (),
    projection: Float[np.ndarray, "3 3"] | None = None,
) -> View:
    """Returns the view of a sequence from above: the first two components, with y upwards.

    Both axes have the same scale. The view contains the true path and all points of `beside`. It
    contains the estimated path up to a distance of the true path's extent, so that a lost estimate
    does not shrink the true path to a dot. With the `projection` of a camera, the plane is turned
    by the quarter turns that match the images best.
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
    """Returns the coordinates at the edges of a plane, and the labels of its axes.

    "x" are those at left and right, "y" at bottom and top; they may decrease. A single component
    is drawn along the first axis.
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
"""Maps x to the right and y upwards on a screen, whose rows point downwards."""


def _as_seen(
    projection: Float[np.ndarray, "3 3"], positions: Float[np.ndarray, "t 2"]
) -> Float[np.ndarray, "2 2"]:
    """Returns the quarter turn of a plane that matches a camera's view of these positions best."""
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
