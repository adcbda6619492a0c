"""Components of the state over time."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax.beliefs import AbstractBelief
from filtrax.plot._axes import (
    ESTIMATE,
    TRUTH,
    Axes,
    check_probability,
    labels_of,
    numbers_of,
    percent,
    rows_or_new,
    steps_or_times,
)
from filtrax.plot._moments import differences, half_width, known, moments_of, period_of, turns
from filtrax.spaces import AbstractSpace


def states(
    beliefs: AbstractBelief,
    space: AbstractSpace,
    *,
    states: Any = None,
    labelled: Any = None,
    components: Sequence[str] | None = None,
    times: Any = None,
    probability: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """Draws each component over time, with its central interval of a given probability.

    An angle that leaves its interval at one end comes in at the other: no line or band jumps.

    **Arguments:**

    - `beliefs`: those of one sequence, of any kind.
    - `states`, `labelled`: the true states, and which of them are known.
    - `components`: names of components; all by default.
    - `times`: of each step; the number of the step by default.
    - `axes`: one for each component.

    **Returns:** an array with the Axes of each component.
    """
    check_probability(probability)
    moments = moments_of(beliefs, space)
    numbers = numbers_of(components, space, moments.mean.shape[1])
    truth = None if states is None else known(states, labelled, moments.mean.shape)
    rows, widths = rows_or_new(axes, len(numbers)), half_width(probability) * moments.std
    steps, label = steps_or_times(times, len(moments.mean))
    for ax, j in zip(rows, numbers, strict=True):
        period = period_of(space, j)
        _draw_band(ax, steps, moments.mean[:, j], widths[:, j], period, probability)
        _draw_curve(ax, steps, moments.mean[:, j], period, color=ESTIMATE, label="estimate")
        if truth is not None:
            _draw_truth(ax, steps, truth[:, j], period)
        ax.set_ylabel(labels_of(space, moments.mean.shape[1])[j])
    return _finished(rows, label)


def errors(
    beliefs: AbstractBelief,
    states: Any,
    space: AbstractSpace,
    *,
    labelled: Any = None,
    components: Sequence[str] | None = None,
    times: Any = None,
    probability: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """Draws the error of each component over time, in the interval that the filter claims.

    An error is the difference of true state and mean, the short way round for angles. The
    other arguments are those of `states`.

    **Returns:** an array with the Axes of each component.
    """
    check_probability(probability)
    moments = moments_of(beliefs, space)
    numbers = numbers_of(components, space, moments.mean.shape[1])
    truth = known(states, labelled, moments.mean.shape)
    values = differences(truth, moments.mean, space)
    rows, widths = rows_or_new(axes, len(numbers)), half_width(probability) * moments.std
    steps, label = steps_or_times(times, len(values))
    for ax, j in zip(rows, numbers, strict=True):
        period, zero = period_of(space, j), np.zeros(len(values))
        _draw_band(ax, steps, zero, widths[:, j], period, probability)
        marker = "." if np.isnan(values[:, j]).any() else None
        _draw_curve(ax, steps, values[:, j], period, color=TRUTH, label="error", marker=marker)
        ax.axhline(0, color=ESTIMATE, linewidth=0.8)
        ax.set_ylabel(f"error of {labels_of(space, values.shape[1])[j]}")
    return _finished(rows, label)


def _draw_truth(
    ax: Axes, steps: Float[np.ndarray, " t"], values: Float[np.ndarray, " t"], period: float | None
) -> None:
    # A single known state among unknown ones is no line, so it is a point.
    marker = "." if np.isnan(values).any() else None
    style: dict[str, Any] = {"linestyle": "--", "marker": marker, "markersize": 4}
    _draw_curve(ax, steps, values, period, color=TRUTH, label="truth", **style)


def _draw_curve(
    ax: Axes,
    steps: Float[np.ndarray, " t"],
    values: Float[np.ndarray, " t"],
    period: float | None,
    *,
    label: str,
    **style: Any,
) -> None:
    copies = turns(values, np.zeros(len(values)), period)
    for number, (curve, _) in enumerate(copies):
        ax.plot(steps, curve, linewidth=1.3, label=None if number else label, **style)
    _limit_to_one_turn(ax, len(copies), period)


def _draw_band(
    ax: Axes,
    steps: Float[np.ndarray, " t"],
    values: Float[np.ndarray, " t"],
    widths: Float[np.ndarray, " t"],
    period: float | None,
    probability: float,
) -> None:
    copies = turns(values, widths, period)
    for number, (curve, width) in enumerate(copies):
        label = None if number else f"{percent(probability)} interval"
        style: dict[str, Any] = {"color": ESTIMATE, "alpha": 0.2, "linewidth": 0}
        ax.fill_between(steps, curve - width, curve + width, label=label, **style)
    _limit_to_one_turn(ax, len(copies), period)


def _limit_to_one_turn(ax: Axes, copies: int, period: float | None) -> None:
    """Shows one turn of an angle that goes round, and cuts off what is drawn twice."""
    if period is None or copies < 2:
        return
    ax.set_ylim(-period / 2, period / 2)
    ticks = [quarter * period / 4 for quarter in range(-2, 3)]
    radians = math.isclose(period, 2 * math.pi, rel_tol=1e-6)
    ax.set_yticks(ticks, ["−π", "−π/2", "0", "π/2", "π"] if radians else None)


def _finished(rows: np.ndarray, label: str) -> np.ndarray:
    """Writes the label of time below the last row, and one legend into the first."""
    if len(rows):
        rows[-1].set_xlabel(label)
        rows[0].legend(loc="best", edgecolor="none", fontsize="small", ncols=3)
        rows[0].figure.align_ylabels(rows)
    return rows
