"""Maps: two components of the state, one against the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_whole
from filtrax.beliefs import AbstractBelief, Particles
from filtrax.plot._axes import (
    BAND,
    ESTIMATE,
    READING,
    TRUTH,
    Axes,
    check_probability,
    labels_of,
    own_or_new,
    pair_of,
    percent,
)
from filtrax.plot._moments import ellipse_scale, ellipses, known, masked, moments_of
from filtrax.spaces import AbstractSpace


def track(
    beliefs: AbstractBelief,
    space: AbstractSpace,
    *,
    components: Sequence[str] | None = None,
    states: Any = None,
    labelled: Any = None,
    readings: Any = None,
    observed: Any = None,
    every: int | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draws the way of two components with ellipses that hold the state with a given probability.

    **Arguments:**

    - `beliefs`: those of one sequence, of any kind.
    - `components`: the names of the horizontal and the vertical one; the first two by default.
    - `states`, `labelled`: the true states, and which of them are known.
    - `readings`, `observed`: points in the same plane, of shape [T, 2], and which of them exist.
    - `every`: steps from one ellipse to the next; by default there are about twenty.
    """
    check_probability(probability)
    moments = moments_of(beliefs, space)
    count, size = moments.mean.shape
    pair = pair_of(components, space, size)
    every = max(1, count // 20) if every is None else every
    check_whole("every", every, 1)
    ax = own_or_new(ax, (6.4, 5.0))
    if readings is not None:
        points = _points(readings, observed, count)
        ax.plot(*points.T, ".", color=READING, markersize=3, alpha=0.6, label="readings", zorder=1)
    if states is not None:
        truth = known(states, labelled, moments.mean.shape)[:, pair]
        ax.plot(*truth.T, "--", color=TRUTH, linewidth=1.2, label="truth", zorder=4)
    mean = moments.mean[:, pair]
    ax.plot(*mean.T, color=ESTIMATE, linewidth=1.6, label="estimate", zorder=3)
    _draw_ellipses(ax, mean, moments.covariance[:, pair][:, :, pair], every, probability)
    _finish_map(ax, space, size, pair)
    return ax


def particles(
    belief: AbstractBelief,
    space: AbstractSpace,
    *,
    components: Sequence[str] | None = None,
    state: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the particles of one step; areas are proportional to weights.

    A grey dot is where a particle is, whatever its weight.

    **Arguments:**

    - `belief`: that of one step, as `jax.tree.map(lambda leaf: leaf[t], beliefs)` takes it.
    - `components`: the names of the horizontal and the vertical one; the first two by default.
    - `state`: the true state.
    """
    if not isinstance(belief, Particles):
        raise TypeError(
            f"`belief` must be `Particles`, got a `{type(belief).__name__}`. Other beliefs are "
            "drawn by `filtrax.plot.track`."
        )
    if belief.states.ndim != 2:
        raise ValueError(
            f"`belief` must be that of one step, got states of shape {belief.states.shape}. Take "
            "a step by `jax.tree.map(lambda leaf: leaf[t], beliefs)`."
        )
    size = belief.states.shape[-1]
    pair = pair_of(components, space, size)
    points = np.asarray(belief.states, float)[:, pair]
    weights = np.exp(np.asarray(belief.log_weights, float))
    mean = np.asarray(belief.moments(space).mean, float)[np.array(pair)]
    areas = weights * min(3000.0, 150.0 / weights.max())
    ax = own_or_new(ax, (6.4, 5.0))
    ax.plot(*points.T, ".", color=BAND, markersize=2, zorder=1)
    ax.scatter(
        *points.T, s=areas, color=ESTIMATE, alpha=0.5, linewidths=0, label="particles", zorder=2
    )
    ax.plot(*mean[:, None], "P", color=ESTIMATE, markeredgecolor="white", ms=11, label="mean")
    if state is not None:
        truth = known(np.asarray(state)[None], None, (1, size), "state")[:, pair]
        ax.plot(*truth.T, "X", color=TRUTH, markeredgecolor="white", ms=11, label="truth")
    _finish_map(ax, space, size, pair)
    return ax


def _points(readings: Any, observed: Any, count: int) -> Float[np.ndarray, "t 2"]:
    """Readings that are points of the map, not a number where there is none."""
    points = np.asarray(readings, float)
    if points.shape != (count, 2):
        raise ValueError(
            f"`readings` must be points of the map, of shape {(count, 2)}, got {points.shape}. "
            "Turn readings of another kind into points first."
        )
    return masked(points, "observed", observed)


def _draw_ellipses(
    ax: Axes,
    means: Float[np.ndarray, "t 2"],
    covariances: Float[np.ndarray, "t 2 2"],
    every: int,
    probability: float,
) -> None:
    from matplotlib.patches import Ellipse

    label = f"{percent(probability)} ellipse"
    shapes = ellipses(covariances[::every], ellipse_scale(probability))
    for (x, y), (major, minor, angle) in zip(means[::every], shapes, strict=True):
        if not np.isfinite((major, minor)).all():
            continue
        centre = (float(x), float(y))
        patch = Ellipse(centre, 2 * major, 2 * minor, angle=float(np.degrees(angle)))
        patch.set(facecolor=(*_rgb(ESTIMATE), 0.15), edgecolor=ESTIMATE, linewidth=0.6, zorder=2)
        patch.set_label(label)
        label = None  # one entry in the legend is enough
        ax.add_patch(patch)


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


def _finish_map(ax: Axes, space: AbstractSpace, size: int, pair: tuple[int, int]) -> None:
    """Writes labels, and gives both axes one scale: an ellipse would look turned otherwise."""
    labels = labels_of(space, size)
    ax.set(xlabel=labels[pair[0]], ylabel=labels[pair[1]])
    ax.set_aspect("equal", adjustable="datalim")
    ax.autoscale_view()
    ax.legend(loc="best", frameon=False, fontsize="small")
