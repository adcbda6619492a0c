"""Interleaved timing, so that a machine that slows down affects all calls alike."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Clock = Callable[[], float]
Rounds = list[list[float]]
"""The times of one call in seconds: one list per round."""

DIGITS = 4
"""Significant digits of recorded numbers; times are not more accurate."""

SECONDS_PER_TURN = 0.02
"""Quick calls are repeated for about this long in each round, to measure them often enough."""


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    *,
    seconds: float,
    least: int = 5,
    most: int = 100,
    clock: Clock = time.perf_counter,
) -> dict[str, Rounds]:
    """Times all calls in rounds in which each has one turn.

    Rounds continue for `seconds`, with at least `least` and at most `most` rounds. Calls are
    warmed up first. The order rotates, because a call that follows a large one finds colder
    caches. Garbage is collected only between rounds.
    """
    counts = {name: _calls_per_turn(call, clock) for name, call in calls.items()}
    names = list(calls)
    times: dict[str, Rounds] = {name: [] for name in names}
    end = clock() + seconds
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for done in range(most):
            if done >= least and clock() >= end:
                break
            first = done % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(_turn(calls[name], counts[name], clock))
            gc.collect(0)
    finally:
        if was_enabled:
            gc.enable()
    return times


def _calls_per_turn(call: Callable[[], Any], clock: Clock) -> int:
    call()
    began = clock()
    call()
    return int(np.clip(SECONDS_PER_TURN / max(clock() - began, 1e-9), 1, 100))


def _turn(call: Callable[[], Any], count: int, clock: Clock) -> list[float]:
    times = []
    for _ in range(count):
        began = clock()
        call()
        times.append(clock() - began)
    return times


def summary(rounds: Rounds) -> dict[str, Any]:
    """Summarizes times in seconds by median, quartiles, 99th percentile, minimum and count."""
    times = np.concatenate(rounds)
    low, median, high, late = np.quantile(times, (0.25, 0.5, 0.75, 0.99))
    return {
        "median": rounded(median),
        "quartiles": [rounded(low), rounded(high)],
        "p99": rounded(late),
        "least": rounded(times.min()),
        "repeats": times.size,
    }


def ratio(ours: Rounds, theirs: Rounds) -> dict[str, Any]:
    """Returns our time divided by another: the ratio of medians, and its quartiles over rounds."""
    pairs = zip(ours, theirs, strict=True)
    rounds = [np.median(mine) / np.median(other) for mine, other in pairs]
    medians = [np.median(np.concatenate(each)) for each in (ours, theirs)]
    low, high = np.quantile(rounds, (0.25, 0.75))
    return {
        "of_medians": rounded(medians[0] / medians[1]),
        "quartiles": [rounded(low), rounded(high)],
    }


def rounded(value: float | int) -> float:
    """Rounds a number to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")
