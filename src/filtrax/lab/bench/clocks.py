"""Times of calls that take turns, so that a machine that slows down slows all of them down."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Clock = Callable[[], float]
Rounds = list[list[float]]
"""The times of one call, in seconds: of each round those of its turn."""

DIGITS = 4
"""So many digits of a number are kept: times are not known better."""

SECONDS_PER_TURN = 0.02
"""A quick call is repeated in its turn for about that long, so that it is seen as often."""


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    *,
    seconds: float,
    least: int = 5,
    most: int = 100,
    clock: Clock = time.perf_counter,
) -> dict[str, Rounds]:
    """The times of each call, in rounds in which each has one turn.

    Rounds go on for some seconds, but there are at least `least` and at most `most` of them. Calls
    are warmed up before. The first of a round changes, because who comes after a large one finds
    other things in the caches. Garbage is collected between rounds only.
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
    """Median and spread of some times, in seconds."""
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
    """Our time as a part of another: of the medians, and its spread over rounds."""
    pairs = zip(ours, theirs, strict=True)
    rounds = [np.median(mine) / np.median(other) for mine, other in pairs]
    medians = [np.median(np.concatenate(each)) for each in (ours, theirs)]
    low, high = np.quantile(rounds, (0.25, 0.75))
    return {
        "of_medians": rounded(medians[0] / medians[1]),
        "quartiles": [rounded(low), rounded(high)],
    }


def rounded(value: float | int) -> float:
    """A number with the digits that are kept."""
    return float(f"{value:.{DIGITS}g}")
