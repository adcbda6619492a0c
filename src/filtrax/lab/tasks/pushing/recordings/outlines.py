"""Reads outlines of objects from the data set's file of shapes."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from filtrax.lab.files import reason
from filtrax.lab.tasks.pushing.shapes import (
    NUM_POINTS,
    SYMMETRY,
    Shape,
    along_polygon,
    shape_of_outline,
)

FILE = "shapes.json"


def read_shapes(path: str | Path) -> dict[str, Shape]:
    """Reads the objects of a file by name."""
    outlines = read_outlines(path)
    return {
        name: shape_of_outline(outline, SYMMETRY.get(name, 360.0))
        for name, outline in outlines.items()
    }


def read_outlines(path: str | Path) -> dict[str, np.ndarray]:
    """Reads counter-clockwise outlines in mm, in the frames of the data set.

    In the file, a polygon has `vertices` and an ellipse `semi_axes`, both in m.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} must be a JSON file, but it is damaged: {reason(error)}."
        ) from error
    shapes = content.get("shapes") if isinstance(content, dict) else None
    if not isinstance(shapes, dict) or not shapes:
        raise ValueError(f"{path} must have an object `shapes` with a shape at least.")
    return {name: _outline(f"{name} in {path}", entry) for name, entry in shapes.items()}


def _outline(what: str, entry: Any) -> np.ndarray:
    if not isinstance(entry, Mapping):
        raise ValueError(f"Shape {what} must be an object with a `type`, got {entry!r}.")
    kind = entry.get("type")
    if kind == "ellipse":
        angles = 2 * math.pi * np.arange(NUM_POINTS) / NUM_POINTS
        semi_axes = _numbers(what, entry, "semi_axes", (2,))
        return 1e3 * semi_axes * np.stack([np.cos(angles), np.sin(angles)], -1)
    if kind == "polygon":
        corners = 1e3 * _numbers(what, entry, "vertices", (-1, 2))
        after = np.roll(corners, -1, 0)
        area = (corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum() / 2
        if len(corners) < 3 or abs(area) < 1.0:
            raise ValueError(
                f"The vertices of {what} must enclose an area, got {len(corners)} points that "
                f"enclose {abs(area):.3g} mm²."
            )
        return along_polygon(corners if area > 0 else corners[::-1], NUM_POINTS)
    raise ValueError(f"The type of shape {what} must be 'polygon' or 'ellipse', got {kind!r}.")


def _numbers(what: str, entry: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.asarray(entry[key], np.float64)
        fits = values.ndim == len(shape) and values.shape[-1] == shape[-1]
    except (KeyError, TypeError, ValueError, OverflowError):
        fits, values = False, np.zeros(shape[-1:])
    if not fits or not np.isfinite(values).all():
        kind = "two finite numbers" if len(shape) == 1 else "pairs of finite numbers"
        raise ValueError(f"The `{key}` of shape {what} must be {kind}.")
    return values
