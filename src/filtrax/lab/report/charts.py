"""What a chart shows, as data: `charts.js` draws it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Numbers = np.ndarray | Sequence[float]


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: What is shown, with its unit.
        log: Whether the axis is logarithmic.
        zero: Whether it must show zero.
        whole: Whether only whole numbers make sense, as for epochs.
    """

    label: str
    log: bool = False
    zero: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Series:
    """A line with an optional band, a band alone, or points.

    Attributes:
        name: How the legend calls it; nothing to leave it out of the legend.
        x: Where the numbers lie on the horizontal axis.
        y: The line or the points; None for a band alone.
        low: The lower edge of the band.
        high: The upper edge of the band.
        style: Picks colour, dash and marker together; None for a quiet reference.
        points: Whether to draw markers instead of a line.
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
        title: What is above the plot.
        x: The horizontal axis.
        y: The vertical axis.
        series: What is drawn, from the lowest to the highest.
        note: A remark below the plot.
        plane: Whether both axes have the same scale, as on a map. Points are places there, drawn
            large.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    note: str = ""
    plane: bool = False


def with_unit(label: str, unit: str) -> str:
    """The label followed by its unit, where there is one."""
    return f"{label} ({unit})" if unit else label


def wants_log(*values: Numbers | None) -> bool:
    """Whether numbers are better shown on a logarithmic axis: positive, and far apart."""
    numbers = np.concatenate([np.ravel(v) for v in values if v is not None] or [np.zeros(0)])
    finite = numbers[np.isfinite(numbers)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())
