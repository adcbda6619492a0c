"""Outlines, arrows and paths of companions, which the player draws besides positions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from filtrax.lab.report.reading import Run
from filtrax.lab.report.views import View, projected

Canvases = Mapping[str, Callable[[np.ndarray], np.ndarray]]
"""Maps from positions to pixels for each canvas: "plane", seen from above, or "image"."""

_DIGITS = 1
"""Decimals of pixels, few because there are many points."""


def canvases(run: Run, view: View, *, is_plane: bool) -> Canvases:
    """Returns the player's own canvas, and that of the images, if they show its plane."""
    found = {"plane" if is_plane else "image": lambda points: view.of((0, 1)).places(points)}
    projection = run.evaluation.get("projection")
    if is_plane and projection is not None and "frames" in run.evaluation:
        found["image"] = lambda points: projected(points, projection)
    return found


def sketch(arrays: Mapping[str, np.ndarray], shown_on: Canvases) -> dict[str, Any] | None:
    """Returns true and estimated outlines and arrows on each canvas; None if there are none."""
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
    """Returns names and paths of companions on each canvas; None if there are none."""
    if "companions" not in arrays or "companion_names" not in run.evaluation:
        return None
    paths = _places(arrays["companions"].swapaxes(0, 1), shown_on)
    return {"names": run.evaluation["companion_names"].tolist(), "paths": paths}


def _places(points: np.ndarray, shown_on: Canvases) -> dict[str, np.ndarray]:
    return {name: np.round(place(points), _DIGITS) for name, place in shown_on.items()}
