"""The rows of a log in the order of time, event by event or on a grid."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from filtrax.logs._report import clock_findings
from filtrax.logs._steps import Layout, Steps, find, split_name
from filtrax.logs._stream import SECOND, Stream, wrapped

RESERVED = ("dt", "stream")

LONGEST_STEP, MOST_STEPS = 10**6, 10**8


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Readings in the order of time: their time, sensor and row, and sentences on the others."""

    nanoseconds: Int[np.ndarray, " t"]
    sensor: Int[np.ndarray, " t"]
    row: Int[np.ndarray, " t"]
    notes: list[str]


def events(streams: Mapping[str, Stream], layout: Layout, model: Any) -> Steps:
    """The steps of `Log.events`."""
    _check_streams(streams, layout)
    rows = _readings(streams, layout)
    ticks = [streams[name].nanoseconds for name in layout.drives]
    if ticks:
        first, last = _span(streams, layout)
        ticks = np.unique(np.concatenate(ticks))
        ticks = ticks[(ticks >= first) & (ticks <= last)]
        rows = _with_ticks(rows, np.setdiff1d(ticks, rows.nanoseconds))
    return _steps(streams, layout, model, rows)


def on_grid(
    streams: Mapping[str, Stream], layout: Layout, model: Any, step: float, merge: bool
) -> Steps:
    """The steps of `Log.grid`."""
    if not 1 / SECOND <= step <= LONGEST_STEP:
        raise ValueError(f"`step` must be between 1e-9 and {LONGEST_STEP} seconds, got {step}.")
    _check_streams(streams, layout)
    rows, width = _readings(streams, layout), round(step * SECOND)
    first, last = _span(streams, layout)
    if (last - first) // width > MOST_STEPS:
        raise ValueError(
            f"`step` must leave at most {MOST_STEPS:,} steps, but {(last - first) / SECOND:.6g} s "
            f"have {(last - first) // width:,} of {step} s."
        )
    number = (2 * (rows.nanoseconds - first) + width) // (2 * width)
    times = first + width * number
    rows.notes.append(
        f"{int((times != rows.nanoseconds).sum())} of {len(times)} readings were moved to the "
        f"grid, by at most {np.abs(times - rows.nanoseconds).max(initial=0) / SECOND:.3g} s"
    )
    rows = dataclasses.replace(rows, nanoseconds=times)
    if merge:
        streams, rows = _merged(streams, layout, rows)
    grid = np.arange(first, max(last, int(rows.nanoseconds.max())) + 1, width)
    rows = _with_ticks(rows, np.setdiff1d(grid, rows.nanoseconds))
    return _steps(streams, layout, model, rows)


def _check_streams(streams: Mapping[str, Stream], layout: Layout) -> None:
    if not layout.readings:
        raise ValueError("`readings` of a layout must name at least one sensor, got none.")
    reserved = [name for name in (*layout.readings, *layout.drives) if name in RESERVED]
    if reserved:
        raise ValueError(f"Streams must not be called {RESERVED}, which inputs have already.")
    names = [
        f"{stream}.{column}" for stream, columns in layout.readings.items() for column in columns
    ]
    for name in (*names, *layout.rates, *layout.increments, *layout.fields):
        find(streams, name)
    for name, allowed in layout.allowed.items():
        stream, column = find(streams, name)
        unknown = np.flatnonzero(~np.isin(stream[column], allowed))
        if unknown.size:
            values = sorted({float(value) for value in stream[column][unknown]})
            raise ValueError(
                f"{stream.file}: column {column!r} must be one of {[*allowed]}, found {values} "
                f"in {unknown.size} rows, the first at {stream.times[unknown[0]]:.6f} s. Add them "
                "to the map, or drop these rows by `log.where`."
            )


def _span(streams: Mapping[str, Stream], layout: Layout) -> tuple[int, int]:
    """The times between which everything that drives the process is known."""
    names = layout.drives or tuple(layout.readings)
    firsts = [int(streams[name].nanoseconds[0]) for name in names]
    lasts = [int(streams[name].nanoseconds[-1]) for name in names]
    return (max(firsts), min(lasts)) if layout.drives else (min(firsts), max(lasts))


def _readings(streams: Mapping[str, Stream], layout: Layout) -> _Rows:
    first, last = _span(streams, layout)
    if first > last:
        raise ValueError(
            f"The streams {layout.drives}, which drive the process, must overlap in time."
        )
    times, sensors, numbers, notes = [], [], [], []
    for number, name in enumerate(layout.readings):
        stamps = streams[name].nanoseconds
        inside = np.flatnonzero((stamps >= first) & (stamps <= last))
        if inside.size < len(stamps):
            notes.append(
                f"{len(stamps) - inside.size} of {len(stamps)} readings of {name} were left out, "
                "because what drives the process is not known then"
            )
        times.append(stamps[inside])
        sensors.append(np.full(inside.size, number))
        numbers.append(inside)
    nanoseconds, sensor, row = (np.concatenate(parts) for parts in (times, sensors, numbers))
    if not nanoseconds.size:
        drives = ", ".join(streams[name].source for name in layout.drives)
        raise ValueError(
            f"No reading of {[*layout.readings]} falls into the time from {first / SECOND:.6f} s "
            f"to {last / SECOND:.6f} s, in which the process is driven ({drives}). Compare the "
            "clocks."
        )
    order = np.lexsort((row, sensor, nanoseconds))
    notes += _gaps(streams, layout, first, last)
    return _Rows(nanoseconds[order], sensor[order], row[order], notes)


def _gaps(streams: Mapping[str, Stream], layout: Layout, first: int, last: int) -> list[str]:
    """Sentences on gaps in what drives the process."""
    notes = []
    for name in layout.drives:
        stamps = streams[name].nanoseconds
        inside = streams[name].taken((stamps >= first) & (stamps <= last))
        gaps = clock_findings(inside)["gaps"] if len(inside) else ()
        if gaps:
            longest = max(length for _, length in gaps)
            notes.append(
                f"{name} has {len(gaps)} gaps, the longest of {longest:.4g} s; lines were drawn "
                "over them"
            )
    return notes


def _with_ticks(rows: _Rows, ticks: Int[np.ndarray, " n"]) -> _Rows:
    """The rows, and steps without readings at other times."""
    nanoseconds = np.concatenate([rows.nanoseconds, ticks])
    nothing = np.full(len(ticks), -1)
    order = np.argsort(nanoseconds, kind="stable")
    sensor, row = np.append(rows.sensor, nothing), np.append(rows.row, nothing)
    return _Rows(nanoseconds[order], sensor[order], row[order], rows.notes)


def _merged(streams, layout: Layout, rows: _Rows) -> tuple[dict[str, Stream], _Rows]:
    """Streams of means over the readings of one sensor at one time, and their rows."""
    streams, parts = dict(streams), []
    for number, (name, columns) in enumerate(layout.readings.items()):
        if any(split_name(field)[0] == name for field in layout.fields):
            raise ValueError(
                f"Readings of {name!r} cannot be merged, because each belongs to something else, "
                f"as {layout.fields} says: leave `merge` out."
            )
        chosen = rows.sensor == number
        times, place, counts = np.unique(
            rows.nanoseconds[chosen], return_inverse=True, return_counts=True
        )
        taken = streams[name].taken(rows.row[chosen])
        means = {}
        for column in columns:
            values = taken[column]
            origin = values[np.searchsorted(place, np.arange(len(times)))][place]
            offset = values - origin
            if f"{name}.{column}" in layout.angles:
                offset = wrapped(offset, 2 * np.pi)
            mean = np.bincount(place, origin + offset) / counts
            means[column] = mean
        merged = int((counts[counts > 1]).sum())
        if merged:
            rows.notes.append(
                f"{merged} readings of {name} were merged into {int((counts > 1).sum())} means"
            )
        streams[name] = dataclasses.replace(streams[name], nanoseconds=times, columns=means)
        parts.append((times, np.full(len(times), number), np.arange(len(times))))
    nanoseconds, sensor, row = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((row, sensor, nanoseconds))
    return streams, _Rows(nanoseconds[order], sensor[order], row[order], rows.notes)


def _steps(streams, layout: Layout, model: Any, rows: _Rows) -> Steps:
    times = rows.nanoseconds
    inputs: dict[str, Any] = {
        "dt": np.diff(times, prepend=times[:1]) / SECOND,
        "stream": rows.sensor.astype(np.int32),
    }
    readings, observed = [], []
    for number, (name, columns) in enumerate(layout.readings.items()):
        here = rows.sensor == number
        source = np.where(here, rows.row, 0)  # elsewhere any row will do: it is masked
        values = np.stack([streams[name][column][source] for column in columns], 1)
        readings.append(np.where(here[:, None], values, 0.0))
        observed.append(here)
        for field in layout.fields:
            stream, column = split_name(field)
            if stream == name:
                inputs.setdefault(name, {})[column] = streams[name][column][source]
    for name in (*layout.rates, *layout.increments):
        stream, column = find(streams, name)
        mean = _mean_rate if name in layout.rates else _rate_of_increments
        inputs.setdefault(split_name(name)[0], {})[column] = mean(stream, column, times)
    note = "".join(f"{sentence}. " for sentence in rows.notes).rstrip()
    sensors = tuple(layout.readings)
    return Steps(times, inputs, tuple(readings), tuple(observed), sensors, note, model, streams)


def _mean_rate(stream: Stream, column: str, times: Int[np.ndarray, " t"]) -> np.ndarray:
    """The mean, since the step before, of the lines that join the rows."""
    stamps, values = _of_distinct_times(stream, column, np.mean)
    seconds = (stamps - stamps[0]) / SECOND
    slopes = np.diff(values) / np.diff(seconds)
    areas = np.append(0.0, np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(seconds)))

    def area(time):
        row = np.clip(np.searchsorted(seconds, time, side="right") - 1, 0, len(slopes) - 1)
        since = time - seconds[row]
        return areas[row] + since * (values[row] + since * slopes[row] / 2)

    return _per_second(times, stamps, area, lambda time: np.interp(time, seconds, values))


def _rate_of_increments(stream: Stream, column: str, times: Int[np.ndarray, " t"]) -> np.ndarray:
    """The part of increments since the step before, per second."""
    stamps, moved = _of_distinct_times(stream, column, np.sum)
    seconds = (stamps - stamps[0]) / SECOND
    total, rates = np.cumsum(moved), moved[1:] / np.diff(seconds)
    row = lambda time: np.clip(np.searchsorted(seconds, time), 1, len(rates)) - 1  # noqa: E731
    position = lambda time: np.interp(time, seconds, total)  # noqa: E731
    return _per_second(times, stamps, position, lambda time: rates[row(time)])


def _per_second(times, stamps, total, rate) -> np.ndarray:
    """The change of `total` since the step before per second; `rate` where no time went by."""
    inside = (np.clip(times, stamps[0], stamps[-1]) - stamps[0]) / SECOND
    before = np.append(inside[:1], inside[:-1])
    seconds = inside - before
    change = total(inside) - total(before)
    return np.where(seconds > 0, change / np.where(seconds > 0, seconds, 1.0), rate(inside))


def _of_distinct_times(stream: Stream, column: str, join: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times without repetition, and the sum or the mean of the numbers at each."""
    stamps, place, counts = np.unique(stream.nanoseconds, return_inverse=True, return_counts=True)
    if len(stamps) < 2:
        raise ValueError(
            f"{stream.source}: what drives a process needs rows at two times at least."
        )
    sums = np.bincount(place, stream[column])
    return stamps, sums / counts if join is np.mean else sums
