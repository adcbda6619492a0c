"""Charts as data, which `charts.js` draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Numbers = np.ndarray | Sequence[float]


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes:
        label: The quantity, with its unit.
        log: Use a logarithmic scale.
        zero: Include zero.
        whole: Place ticks at integers only, as for epochs.
    """

    label: str
    log: bool = False
    zero: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Series:
    """A line with an optional band, a band alone, or points.

    Attributes:
        name: The label in the legend; "" for none.
        x: The horizontal coordinates.
        y: The line or the points; None for a band alone.
        low: The lower edge of the band.
        high: The upper edge of the band.
        style: The index of colour, dash and marker; None for a gray reference.
        points: Draw markers instead of a line.
    """

    name: str
    x: Numbers
    y: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None
    style: int | None = 0
    points: bool = False


@dataclass(frozen=True)
class Chart:
    """A titled plot of series over common axes.

    Attributes:
        title: The text above the plot.
        x: The horizontal axis.
        y: The vertical axis.
        series: The series, from back to front.
        note: A remark below the plot.
        plane: Use the same scale for both axes, as on a map, and large markers for points.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    note: str = ""
    plane: bool = False


def with_unit(label: str, unit: str) -> str:
    """Appends a unit in parentheses to a label, unless the unit is empty."""
    return f"{label} ({unit})" if unit else label


def wants_log(*values: Numbers | None) -> bool:
    """Returns True for positive numbers that span a factor of more than 20."""
    numbers = np.concatenate([np.ravel(v) for v in values if v is not None] or [np.zeros(0)])
    finite = numbers[np.isfinite(numbers)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())
