"""Tables of files become streams: sorted, in SI units, checked."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from filtrax._checks import check_known
from filtrax.logs import _report
from filtrax.logs._report import Report, StreamReport
from filtrax.logs._stream import SECOND, Stream
from filtrax.logs._tables import Table, read_csv
from filtrax.logs._units import NANOSECONDS, UNITS

Paths = str | Path | Mapping[str, str | Path]
Columns = Mapping[str, Sequence[str] | Mapping[str, str]]


def paths_of(files: Paths) -> dict[str, Path]:
    """The path of each stream."""
    if isinstance(files, str | Path):
        return {Path(files).stem: Path(files)}
    if not files:
        raise ValueError("`files` must name at least one file, got none.")
    return {name: Path(path) for name, path in files.items()}


def assembled(
    tables: Mapping[str, Table],
    time: str | Mapping[str, str],
    columns: Columns | None,
    units: Mapping[str, str] | None,
    offsets: Mapping[str, float] | None,
    drop_missing: bool,
) -> tuple[dict[str, Stream], Report]:
    """The streams of tables, and what was found in them; see `Log.from_csv`."""
    units, offsets, columns = dict(units or {}), offsets or {}, columns or {}
    for argument, named in {"offsets": offsets, "columns": columns}.items():
        check_known(f"`{argument}` must name streams", {*named} - {*tables}, [*tables])
    _check_units(units, tables)
    streams, findings = {}, {}
    for name, table in tables.items():
        clock = time if isinstance(time, str) else time.get(name, "t")
        streams[name], findings[name] = _stream(
            name, table, clock, columns.get(name), units, offsets.get(name, 0.0), drop_missing
        )
    report = reported(streams, findings)
    _report.warn(report, streams)
    _check_overlap(streams)
    return streams, report


def _check_units(units: Mapping[str, str], tables: Mapping[str, Table]) -> None:
    columns = {column for table in tables.values() for column in table.columns}
    dotted = {f"{name}.{column}" for name, table in tables.items() for column in table.columns}
    known = sorted(columns | dotted)
    check_known("`units` must name columns", [n for n in units if n not in known], known)
    check_known("`units` must be known", {*units.values()} - {*UNITS}, list(UNITS))


def _stream(
    name: str,
    table: Table,
    clock: str,
    columns: Sequence[str] | Mapping[str, str] | None,
    units: Mapping[str, str],
    offset: float,
    drop_missing: bool,
) -> tuple[Stream, dict[str, Any]]:
    """One stream of a table, sorted, converted and without missing numbers; and its findings."""
    table.check_columns([clock], "the clock, which `time` names, must be a column")
    unit_of = lambda c: units.get(f"{name}.{c}", units.get(c, table.units.get(c, "")))  # noqa: E731
    unit = unit_of(clock) or "s"
    if unit not in NANOSECONDS:
        raise ValueError(
            f"{table.source}, column {clock!r}: a clock must be in a unit of time, got {unit!r}."
        )
    names, text = _chosen(table, clock, columns)
    nanoseconds, missing = table.nanoseconds(clock, unit)
    arrays, used, converted = {}, {}, {}
    for new, old in names.items():
        arrays[new] = table.numbers(old)
        if unit_of(old):
            factor, used[new] = UNITS[unit_of(old)]
            arrays[new] = arrays[new] * factor
            if factor != 1:
                converted[new] = (unit_of(old), factor)
    for new, old in {clock: clock, **names}.items():
        missing = _with_missing(table, old, missing, arrays.get(new), drop_missing)
    if missing.all():
        raise ValueError(f"{table.source} must have rows with numbers in {[*names]}, found none.")
    keep = ~missing
    source = f"{table.source}, column {clock!r}"
    stream = Stream(nanoseconds, arrays, used, source).taken(keep)
    findings = {
        **_report.order_findings(stream.nanoseconds, table.rows[keep]),
        **{"missing": int(missing.sum()), "text": text, "converted": converted},
    }
    order = np.argsort(stream.nanoseconds, kind="stable")
    stream = stream.taken(order)
    return dataclasses.replace(
        stream, nanoseconds=stream.nanoseconds + round(offset * SECOND)
    ), findings


def _with_missing(table, column, missing, values, drop_missing):
    gone = missing if values is None else np.isnan(values)
    if gone.any() and not drop_missing:
        index = int(np.argmax(gone))
        raise table.error(
            column, index, "a number is missing; `drop_missing=True` leaves such rows out"
        )
    return missing | gone


def _chosen(table: Table, clock: str, columns: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """The columns to read, by their new names, and those that are left out since they are text."""
    if columns is None:
        others = [column for column in table.columns if column != clock]
        text = tuple(column for column in others if table.is_text(column))
        return {column: column for column in others if column not in text}, text
    names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    table.check_columns(list(names.values()))
    return names, ()


def reported(
    streams: Mapping[str, Stream], findings: Mapping[str, dict[str, Any]] | None = None
) -> Report:
    """Findings about streams, with those that were made while they were read."""
    reports = {}
    for name, stream in streams.items():
        found = {**_report.clock_findings(stream), **(findings or {}).get(name, {})}
        reports[name] = StreamReport(**found, suspicions=_report.suspicions(stream))
    return Report(reports)


def read_findings(report: Report) -> dict[str, dict[str, Any]]:
    """Findings of a report that were made while files were read."""
    names = ("unsorted", "jump", "jump_row", "missing", "text", "converted")
    streams = report.streams.items()
    return {stream: {name: getattr(found, name) for name in names} for stream, found in streams}


def _check_overlap(streams: Mapping[str, Stream]) -> None:
    spans = {n: (int(s.nanoseconds[0]), int(s.nanoseconds[-1])) for n, s in streams.items()}
    for name, (first, last) in spans.items():
        others = {other: span for other, span in spans.items() if other != name}
        if others and all(last < begin or end < first for begin, end in others.values()):
            other, (begin, end) = next(iter(others.items()))
            raise ValueError(
                f"{streams[name].source}: the clock runs from {first / SECOND:.6f} s to "
                f"{last / SECOND:.6f} s, and never overlaps with {streams[other].source}, from "
                f"{begin / SECOND:.6f} s to {end / SECOND:.6f} s. Name the unit of the clock in "
                "`units`, or what it is late by in `offsets`."
            )


def read_table(path: str | Path) -> dict[str, Float[np.ndarray, " n"]]:
    """The columns of a CSV file without a clock, like a map of landmarks, in SI units.

    Units stand in the header, as in `x [mm]`; columns of text are left out.
    """
    table = read_csv(path)
    columns = {}
    for name in table.columns:
        if table.is_text(name):
            continue
        values = table.numbers(name)
        if np.isnan(values).any():
            raise table.error(name, int(np.argmax(np.isnan(values))), "a number is missing")
        columns[name] = values * UNITS[table.units.get(name, "")].factor
    return columns
