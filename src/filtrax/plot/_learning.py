"""Losses over the course of training."""

from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_shape, check_whole
from filtrax.plot._axes import ESTIMATE, READING, Axes, own_or_new


def learning_curves(
    training: Any,
    validation: Any = None,
    *,
    steps: Any = None,
    validation_steps: Any = None,
    window: int = 1,
    label: str = "step",
    ax: Axes | None = None,
) -> Axes:
    """Draws losses of training and validation; a dot is the best value of validation.

    **Arguments:**

    - `training`: a sequence of losses, like `history.loss` of `fit`.
    - `validation`: a sequence of losses on other data.
    - `steps`, `validation_steps`: the step or epoch of each loss; 0, 1, ... by default.
    - `window`: the number of training losses that the line is the mean of, up to and including its
      step. Single losses are drawn thinner if there are several.
    - `label`: what is counted, "step" or "epoch".
    """
    losses = _sequence("training", training)
    check_whole("window", window, 1, len(losses))
    places = _places("steps", steps, len(losses))
    ax = own_or_new(ax)
    if window > 1:
        ax.plot(places, losses, color=ESTIMATE, linewidth=0.6, alpha=0.35)
    name = "training" if window == 1 else f"training, mean of {window}"
    mean = _moving_mean(losses, window)
    ax.plot(places[window - 1 :], mean, color=ESTIMATE, linewidth=1.4, label=name)
    if validation is not None:
        _draw_validation(ax, validation, validation_steps, len(losses))
    ax.set(xlabel=label, ylabel="loss")
    ax.legend(loc="best", frameon=False, fontsize="small")
    return ax


def _draw_validation(ax: Axes, validation: Any, steps: Any, count: int) -> None:
    losses = _sequence("validation", validation)
    if steps is None and len(losses) != count:
        raise ValueError(
            f"`validation_steps` must say where the {len(losses)} losses of validation belong, "
            f"because there are {count} of training."
        )
    places = _places("validation_steps", steps, len(losses))
    ax.plot(places, losses, "--", color=READING, linewidth=1.4, label="validation")
    if np.isfinite(losses).any():
        best = int(np.nanargmin(np.where(np.isfinite(losses), losses, np.nan)))
        text = f"best: {losses[best]:.4g}"
        ax.plot(places[best], losses[best], "o", color=READING, markersize=6, label=text)


def _sequence(name: str, values: Any) -> Float[np.ndarray, " n"]:
    losses = np.asarray(values, float)
    if losses.ndim != 1 or not losses.size:
        raise ValueError(
            f"`{name}` must be a sequence of losses, got an array of shape {losses.shape}. The "
            "members of an ensemble are drawn one by one, on the same Axes."
        )
    return losses


def _places(name: str, steps: Any, count: int) -> Float[np.ndarray, " n"]:
    if steps is None:
        return np.arange(count, dtype=float)
    places = np.asarray(steps, float)
    check_shape(name, places, (count,))
    return places


def _moving_mean(losses: Float[np.ndarray, " n"], window: int) -> Float[np.ndarray, " m"]:
    return np.lib.stride_tricks.sliding_window_view(losses, window).mean(-1)
