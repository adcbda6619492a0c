"""Axes, colours and labels that all pictures share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_known, check_shape
from filtrax.spaces import AbstractSpace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = (
        Any  # the types of arguments are checked while tests run, and matplotlib is not there yet
    )

ESTIMATE = "#0072B2"
TRUTH = "#000000"
READING = "#D55E00"
AVERAGE = "#D55E00"
BAND = "#BBBBBB"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito, which colour-blind people tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P")


def own_or_new(ax: Axes | None, size: tuple[float, float] = (6.4, 4.0)) -> Axes:
    """The Axes that the caller gave, or those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=size, layout="constrained")[1]
    check_axes("ax", ax)
    return ax


def rows_or_new(axes: Any, count: int) -> np.ndarray:
    """An array of Axes below each other, one per component: those given, or new ones."""
    if axes is None:
        import matplotlib.pyplot as plt

        size = (6.4, 1.2 + 1.4 * count)
        return plt.subplots(
            count, 1, sharex=True, squeeze=False, figsize=size, layout="constrained"
        )[1][:, 0]
    rows = np.asarray(axes, object).reshape(-1)
    if len(rows) != count:
        raise ValueError(
            f"`axes` must hold one Axes for each of {count} components, got {len(rows)}: make them "
            f"by `plt.subplots({count})`, or draw fewer components by `components=`."
        )
    for ax in rows:
        check_axes("axes", ax)
    return rows


def check_axes(name: str, ax: Any) -> None:
    """Raises unless an argument is an Axes of matplotlib."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(
            f"`{name}` must be matplotlib Axes, as `plt.subplots` makes them, got a "
            f"{type(ax).__name__}."
        )


def steps_or_times(times: Any, count: int) -> tuple[Float[np.ndarray, " t"], str]:
    """The horizontal coordinate of each step, and its label."""
    if times is None:
        return np.arange(count, dtype=float), "step"
    times = np.asarray(times, float)
    check_shape("times", times, (count,))
    return times, "time"


def numbers_of(
    components: Sequence[str] | None, space: AbstractSpace, size: int
) -> tuple[int, ...]:
    """The positions of named components; all of them by default."""
    names = space.names_of(size)
    if components is None:
        return tuple(range(size))
    if isinstance(components, str):
        raise ValueError(f"`components` must be a sequence of names, got {components!r}.")
    unknown = [name for name in components if name not in names]
    check_known("`components` must be named as in the space", unknown, names)
    return tuple(names.index(name) for name in components)


def pair_of(components: Sequence[str] | None, space: AbstractSpace, size: int) -> tuple[int, int]:
    """The positions of the two components that a map shows; the first two by default."""
    numbers = numbers_of(components, space, size)
    if components is None:
        numbers = numbers[:2]
    if len(numbers) != 2:
        raise ValueError(
            f"`components` must name two components of a map, got {len(numbers)}. For any number "
            "of components over time there is `filtrax.plot.states`."
        )
    return numbers[0], numbers[1]


def labels_of(space: AbstractSpace, size: int) -> list[str]:
    """Labels of axes: names of components, or their numbers where they have none."""
    names = space.names_of(size)
    return [f"component {name}" if name.isdecimal() else name for name in names]


def check_probability(probability: float) -> None:
    """Raises unless a probability lies between 0 and 1."""
    if not 0 < probability < 1:
        raise ValueError(f"`probability` must lie between 0 and 1, got {probability}.")


def percent(probability: float) -> str:
    """A probability as it is written in legends."""
    return f"{100 * probability:.3g} %"
