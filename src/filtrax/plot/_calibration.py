"""Calibration: pictures that show if the uncertainty that a filter states is true."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from filtrax import metrics
from filtrax._checks import check_whole
from filtrax.beliefs import AbstractBelief
from filtrax.filters import Info
from filtrax.metrics.steps import checked_states
from filtrax.plot._axes import (
    AVERAGE,
    BAND,
    COLOURS,
    ESTIMATE,
    MARKERS,
    Axes,
    check_probability,
    labels_of,
    own_or_new,
    percent,
    steps_or_times,
)
from filtrax.plot._moments import by_component, half_width, mean_and_band
from filtrax.spaces import AbstractSpace, Euclidean


def nees(
    beliefs: AbstractBelief,
    states: Any,
    space: AbstractSpace,
    *,
    labelled: Any = None,
    times: Any = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draws `filtrax.metrics.nees` over time, with the band of χ² in which it should be.

    The average over all steps has a band of its own, for steps that are independent. The errors of
    a filter are correlated over time, so that the average of one sequence leaves this band more
    often than the probability says. With an axis of sequences in front, the mean over sequences is
    drawn, with its narrower band.

    **Arguments:**

    - `beliefs`, `states`, `labelled`: as `filtrax.metrics.nees` takes them. Steps without any
      label are left out, others have as many degrees of freedom as labelled components.
    - `times`: of each step; the number of the step by default.
    - `probability`: of both bands.
    """
    values = metrics.nees(beliefs, states, space, labelled=labelled)
    degrees = np.asarray(checked_states(states, labelled, space)[1]).sum(-1)
    return _draw_chi_square(np.asarray(values, float), degrees, "NEES", times, probability, ax)


def nis(
    info: Info,
    *,
    observed: Any = None,
    times: Any = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draws `filtrax.metrics.nis` over time, with the band of χ² in which it should be.

    The average over all steps has a band of its own. It needs no ground truth. With an axis of
    sequences in front, the mean over sequences is drawn, with its narrower band.

    **Arguments:**

    - `info`: of a run with `info=True`.
    - `observed`: which readings exist, per step or per step and component of the observation. By
      default it follows from `info`, where a component that was not observed has no innovation and
      unit variance. Steps without any observation are left out.
    - `times`: of each step; the number of the step by default.
    - `probability`: of both bands.
    """
    values = metrics.nis(info)
    degrees = _seen(info, observed).sum(-1)
    return _draw_chi_square(np.asarray(values, float), degrees, "NIS", times, probability, ax)


def coverage(
    beliefs: AbstractBelief,
    states: Any,
    space: AbstractSpace,
    *,
    labelled: Any = None,
    probabilities: Any = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
    ax: Axes | None = None,
) -> Axes:
    """Draws the share of true states in central intervals against the probability of these.

    A calibrated filter is on the diagonal. Below it, the filter is too sure of itself.

    **Arguments:**

    - `beliefs`, `states`, `labelled`: as `filtrax.metrics.coverage` takes them.
    - `probabilities`: of the intervals.
    """
    rows = [
        metrics.coverage(beliefs, states, space, probability=probability, labelled=labelled)
        for probability in probabilities
    ]
    ax = own_or_new(ax, (4.8, 4.8))
    ax.plot((0, 1), (0, 1), color=BAND, linewidth=1, zorder=1, label="calibrated")
    for j, (name, label) in enumerate(zip(rows[0], labels_of(space, len(rows[0])), strict=True)):
        shares = [float(row[name]) for row in rows]
        style: Any = {"color": COLOURS[j % len(COLOURS)], "marker": MARKERS[j % len(MARKERS)]}
        ax.plot(
            np.asarray(probabilities),
            shares,
            markersize=4,
            linewidth=1.2,
            label=label,
            clip_on=False,
            **style,
        )
    ax.set(xlabel="probability of the interval", ylabel="share of true states inside")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    return ax


def whiteness(
    info: Info,
    space: AbstractSpace = Euclidean(),
    *,
    observed: Any = None,
    max_lag: int = 20,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draws the autocorrelation of normalized innovations, with the band of white noise.

    Each innovation is divided by its predicted standard deviation. Those of a filter with the true
    model are white: of 20 correlations about one is outside of the band. Correlations that stay
    on one side are a bias, or too little process noise. With an axis of sequences in front, all
    sequences are averaged over.

    **Arguments:**

    - `info`: of a run with `info=True`.
    - `space`: that of observations, for the names of components.
    - `observed`: as in `nis`; pairs of steps count in which both readings exist.
    - `max_lag`: the largest distance of two steps.
    """
    check_probability(probability)
    seen, innovations = _seen(info, observed), _normalized(info)
    check_whole("max_lag", max_lag, 1, innovations.shape[-2] - 1)
    correlations, pairs = _autocorrelation(innovations, seen, max_lag)
    lags, size = np.arange(1, max_lag + 1), innovations.shape[-1]
    ax = own_or_new(ax)
    with np.errstate(divide="ignore"):
        band = half_width(probability) / np.sqrt(pairs.min(-1))
    # The marks of a lag are beside each other, so that the band begins half a lag earlier.
    ends, wide = np.array([0.5, *lags, max_lag + 0.5]), np.pad(band, 1, mode="edge")
    label = f"{percent(probability)} band of white noise"
    ax.fill_between(ends, -wide, wide, color=BAND, alpha=0.5, linewidth=0, label=label)
    ax.axhline(0, color="black", linewidth=0.8)
    for j, name in enumerate(labels_of(space, size)):
        style: Any = {"color": COLOURS[j % len(COLOURS)], "marker": MARKERS[j % len(MARKERS)]}
        places = lags + 0.6 * ((j + 0.5) / size - 0.5)
        ax.vlines(places, 0, correlations[:, j], color=style["color"], linewidth=1)
        ax.plot(places, correlations[:, j], linestyle="", markersize=4, label=name, **style)
    ax.set(xlabel="lag in steps", ylabel="autocorrelation of innovations")
    ax.locator_params("x", integer=True)
    _make_room(ax, np.concatenate([correlations.ravel(), band, -band]))
    ax.legend(loc="upper left", frameon=False, fontsize="small", ncols=3)
    return ax


def _seen(info: Info, observed: Any) -> Bool[np.ndarray, "*b z"]:
    """A mask of the components of the observation that were observed."""
    if info.innovation is None or info.innovation_covariance is None:
        raise ValueError(
            "This picture needs a filter with innovations, run with `info=True`; a recurrent "
            "network and a particle filter have none."
        )
    innovation = np.asarray(info.innovation, float)
    if observed is not None:
        return by_component("observed", observed, innovation.shape)
    covariance = np.asarray(info.innovation_covariance, float)
    # A filter that mixes several has ones to rounding.
    unit = np.abs(covariance - np.eye(innovation.shape[-1])).max(-1) < 1e-4
    return ~(unit & (innovation == 0))


def _normalized(info: Info) -> Float[np.ndarray, "*b t z"]:
    """Innovations in units of their predicted standard deviations."""
    variances = np.diagonal(np.asarray(info.innovation_covariance, float), axis1=-2, axis2=-1)
    return np.asarray(info.innovation, float) / np.sqrt(variances)


def _autocorrelation(
    values: Float[np.ndarray, "*b t z"], seen: Bool[np.ndarray, "*b t z"], max_lag: int
) -> tuple[Float[np.ndarray, "lags z"], Int[np.ndarray, "lags z"]]:
    """The correlation at each lag from 1 on, and the number of pairs of which it is the mean.

    No mean is subtracted: innovations of a consistent filter have none.
    """
    values = np.where(seen, values, 0.0)
    axes = tuple(range(values.ndim - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (values**2).sum(axes) / seen.sum(axes)
        rows, counts = [], []
        for lag in range(1, max_lag + 1):
            pairs = (seen[..., lag:, :] & seen[..., :-lag, :]).sum(axes)
            products = (values[..., lag:, :] * values[..., :-lag, :]).sum(axes)
            rows.append(products / pairs / variance)
            counts.append(pairs)
    return np.stack(rows), np.stack(counts)


def _draw_chi_square(
    values: Float[np.ndarray, "*b t"],
    degrees: Int[np.ndarray, "*b t"],
    name: str,
    times: Any,
    probability: float,
    ax: Axes | None,
) -> Axes:
    check_probability(probability)
    if values.ndim == 0:
        raise ValueError(f"{name} over time needs a time axis, got a single step.")
    if not (degrees > 0).any():
        raise ValueError(f"{name} needs a step with something labelled or observed, found none.")
    steps, label = steps_or_times(times, values.shape[-1])
    values, degrees = values.reshape(-1, len(steps)), degrees.reshape(-1, len(steps))
    series, lower, upper = mean_and_band(values, degrees, probability, axis=0)
    known = ~np.isnan(lower)
    inside = ((series >= lower) & (series <= upper))[known].mean()
    ax = own_or_new(ax)
    style: Any = {"color": BAND, "alpha": 0.5, "linewidth": 0, "step": "mid"}
    text = f"{name}, {100 * inside:.0f} % inside"
    ax.plot(steps, series, ".-", color=ESTIMATE, linewidth=0.8, markersize=3, label=text)
    text = f"{percent(probability)} band"
    ax.fill_between(steps, lower, upper, label=text, **style)
    _draw_average(ax, *mean_and_band(values, degrees, probability, axis=None), probability)
    ax.set(xlabel=label, ylabel=name if len(values) == 1 else f"mean {name}")
    _make_room(ax, np.concatenate([series, lower, upper]))
    ax.legend(loc="upper left", frameon=False, fontsize="small", ncols=2)
    return ax


def _draw_average(ax: Axes, mean: float, lower: float, upper: float, probability: float) -> None:
    text = f"its {percent(probability)} band"
    average = f"average {mean:.3g}"
    ax.axhline(mean, color=AVERAGE, linewidth=1.4, linestyle="--", zorder=4, label=average)
    ax.axhspan(lower, upper, color=AVERAGE, alpha=0.3, linewidth=0, zorder=3, label=text)


def _make_room(ax: Axes, shown: Float[np.ndarray, " n"]) -> None:
    """Leaves room for a legend above what is drawn."""
    shown = shown[np.isfinite(shown)]
    lowest, highest = shown.min(initial=np.inf), shown.max(initial=-np.inf)
    if lowest < highest:
        margin = highest - lowest
        ax.set_ylim(lowest - 0.05 * margin, highest + 0.25 * margin)
