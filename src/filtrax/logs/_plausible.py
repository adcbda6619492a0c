"""A look at readings beside the truth: units that are wrong by a thousand, or degrees."""

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np

from filtrax._checks import as_float
from filtrax._given import unwrap
from filtrax.linalg import precise
from filtrax.logs._report import LogWarning

FEWEST, MOST = 10, 500
"""How many readings are needed for a judgement, and how many are looked at."""

REASONS = (
    (1000.0, "as millimetres do that are read as metres"),
    (1e-3, "as kilometres do that are read as metres"),
    (180 / np.pi, "as degrees do that are read as radians"),
    (np.pi / 180, "as radians do that are read as degrees"),
)


def warn(steps: Any, states: np.ndarray, labelled: np.ndarray) -> None:
    """Warns of sensors whose readings have another unit than the truth lets expect.

    For each component the median of z / ẑ is compared with known ratios of units, where ẑ is what
    the model expects at the true state. Only steps count at which all is known that matters.
    """
    layout = steps.model.observe.layout
    at = _chosen(steps, states, labelled)
    if at.size < FEWEST:
        return
    _warn_of_drives(steps, states, at[at > 0], labelled.any(0))
    expected = _evaluated(steps, _observe, states[at], at)
    start = 0
    for number, (name, columns) in enumerate(layout.readings.items()):
        reported = steps.observed[number][at]
        for index, column in enumerate(columns):
            z = steps.readings[number][at, index][reported]
            reason = _reason(z, expected[reported, start + index])
            angle = f"{name}.{column}" in layout.angles
            if angle and len(z) >= FEWEST and np.abs(z).max() > 2 * np.pi * 1.01:
                reason = f"are up to {np.abs(z).max():.4g}, {REASONS[2][1]}"
            if reason is not None and not (angle and np.abs(z).max() <= 2 * np.pi * 1.01):
                warnings.warn(
                    f"{steps.streams[name].file}: readings of column {column!r} {reason}; name "
                    "the unit in `units`.",
                    LogWarning,
                    stacklevel=3,
                )
        start += len(columns)


def _warn_of_drives(steps: Any, states: np.ndarray, at: np.ndarray, known: Any) -> None:
    """Warns of a process that moves far more or less than the truth, in the same manner."""
    layout, space = steps.model.observe.layout, steps.model.state_space
    if not layout.drives or at.size < FEWEST:
        return
    before = states[at - 1]
    difference = lambda a: np.asarray(jax.vmap(space.difference)(as_float(a), as_float(before)))  # noqa: E731
    expected = difference(_evaluated(steps, _process, before, at))
    moved = difference(states[at])
    columns = ", ".join((*layout.rates, *layout.increments))
    for factor, reason in REASONS:
        ratios = {
            space.names[index]: _slope(expected[:, index], moved[:, index])
            for index in np.flatnonzero(known)
        }
        wrong = {name: ratio for name, ratio in ratios.items() if factor / 2 < ratio < factor * 2}
        if wrong:
            warnings.warn(
                f"The process, driven by {columns}, changes {', '.join(wrong)} by "
                f"{next(iter(wrong.values())):.4g} times what the truth says, {reason}; name the "
                "unit in `units`.",
                LogWarning,
                stacklevel=4,
            )


def _slope(expected: np.ndarray, moved: np.ndarray) -> float:
    """Σ p q / Σ q², or zero where both have little to do with each other."""
    both, p, q = float(expected @ moved), float(expected @ expected), float(moved @ moved)
    return both / q if both > 0.5 * (p * q) ** 0.5 else 0.0


def _chosen(steps: Any, states: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """Steps that are labelled in all components which are labelled at all, evenly chosen."""
    ever = labelled.any(0)
    known = np.flatnonzero(labelled[:, ever].all(1))
    return known[:: max(len(known) // MOST, 1)] if ever.any() else known[:0]


def _evaluated(steps: Any, function: Any, states: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Values of a function of model, state and inputs at some steps."""
    # The number of steps is rounded up, so that logs of all lengths share a few programs.
    model = unwrap(steps.model).bind(None)
    count = MOST * (-(-len(at) // MOST))
    rows = np.minimum(np.arange(count), len(at) - 1)
    inputs = jax.tree.map(lambda leaf: _as_array(leaf[at[rows]]), steps.inputs)
    return np.asarray(function(model, as_float(states[rows]), inputs))[: len(at)]


@eqx.filter_jit
def _observe(model: Any, states: Any, inputs: Any) -> Any:
    return jax.vmap(precise(model.observe))(states, inputs)


@eqx.filter_jit
def _process(model: Any, states: Any, inputs: Any) -> Any:
    return jax.vmap(precise(model.process))(states, inputs)


def _as_array(leaf: np.ndarray) -> Any:
    return as_float(leaf) if leaf.dtype.kind == "f" else leaf


def _reason(z: np.ndarray, expected: np.ndarray) -> str | None:
    if len(z) < FEWEST or not np.isfinite(expected).all():
        return None
    # Zeros would count as agreement, and outliers of a few readings would move a mean.
    large = np.abs(expected) > 0.1 * np.abs(expected).max(initial=0.0)
    if large.sum() < FEWEST:
        return None
    ratio = float(np.median(z[large] / expected[large]))
    for factor, reason in REASONS:
        if factor / 2 < ratio < factor * 2:
            return f"are {ratio:.4g} times what the truth lets expect, {reason}"
    return None
