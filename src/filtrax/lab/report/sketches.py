"""What the player draws besides positions: outlines, arrows, and what else moves."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from filtrax.lab.report.reading import Run
from filtrax.lab.report.views import View, projected

Canvases = Mapping[str, Callable[[np.ndarray], np.ndarray]]
"""From positions to pixels, for each canvas that shows them: "plane" from above, or "image"."""

_DIGITS = 1
"""A tenth of a pixel is fine enough for lines of two pixels, and there are many."""


def canvases(run: Run, view: View, *, is_plane: bool) -> Canvases:
    """Where positions are drawn: by the player's view, and in images that show its plane."""
    found = {"plane" if is_plane else "image": lambda points: view.of((0, 1)).places(points)}
    projection = run.evaluation.get("projection")
    if is_plane and projection is not None and "frames" in run.evaluation:
        found["image"] = lambda points: projected(points, projection)
    return found


def sketch(arrays: Mapping[str, np.ndarray], shown_on: Canvases) -> dict[str, Any] | None:
    """Outlines and arrows of truth and estimate on each canvas; None where the run has none."""
    names = {"truth": ("true_outlines", "true_arrows"), "estimate": ("outlines", "arrows")}
    if any(name not in arrays for pair in names.values() for name in pair):
        return None
    return {
        who: {
            "outlines": _places(arrays[outlines], shown_on),
            "arrows": _places(arrays[arrows], shown_on),
        }
        for who, (outlines, arrows) in names.items()
    }


def companions(
    run: Run, arrays: Mapping[str, np.ndarray], shown_on: Canvases
) -> dict[str, Any] | None:
    """The paths of what else moves on each canvas, one after the other, and their names."""
    if "companions" not in arrays or "companion_names" not in run.evaluation:
        return None
    paths = _places(arrays["companions"].swapaxes(0, 1), shown_on)
    return {"names": run.evaluation["companion_names"].tolist(), "paths": paths}


def _places(points: np.ndarray, shown_on: Canvases) -> dict[str, np.ndarray]:
    return {name: np.round(place(points), _DIGITS) for name, place in shown_on.items()}
