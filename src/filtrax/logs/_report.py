"""Findings about a log: order, repetitions, gaps, units that look wrong."""

import dataclasses
import re
import warnings
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from filtrax.logs._stream import SECOND, Stream

GAP = 5.0
"""An interval that is this many times the median one is a gap."""

ANGLES = re.compile(r"(^|[._ ])(heading|yaw|theta|bearing|azimuth|course|psi|phi)($|[._ ])", re.I)
RATES = re.compile(r"(^|[._ ])(gyro\w*|yaw_?rate|turn_?rate|omega|angular_velocity)($|[._ ])", re.I)
_WORD = r"(^|[._ ])({})($|[._ 0-9])"
LARGE = (
    (_WORD.format("speed|velocity|vel|v|vx|vy|vz"), 150.0, "m/s", "mm/s"),
    (_WORD.format("acc|acceleration|linear_acceleration|ax|ay|az"), 300.0, "m/s²", "mm/s^2"),
    (_WORD.format("range|ranges|dist|distance"), 5000.0, "m", "mm"),
)
"""Names of columns, a limit that they hardly exceed in a unit, and the unit they have beyond it."""

IN_DEGREES = re.compile(r"_(deg|degrees|dps)$", re.I)


class LogWarning(UserWarning):
    """Something in a log that is probably not as its owner believes."""


@dataclasses.dataclass(frozen=True)
class StreamReport:
    """Findings about one stream.

    **Attributes:**

    - `rows`, `seconds`, `rate`: the number of rows, from the first to the last, and per second.
    - `unsorted`: the number of rows that stood after a later one; `jump` is the largest step back
      in seconds and `jump_row` the row of the file where it stands.
    - `repeated`, `copies`: rows with the time of the row before them, and those of them that are
      the same in all numbers.
    - `gaps`: the time at which each gap begins, in seconds from the first row, and its length.
    - `missing`: rows that were left out because a number was missing.
    - `text`: columns that were left out because they hold text.
    - `converted`: unit and factor of columns that were converted.
    - `suspicions`: sentences on units that look wrong.
    """

    rows: int
    seconds: float
    rate: float
    unsorted: int = 0
    jump: float = 0.0
    jump_row: int = 0
    repeated: int = 0
    copies: int = 0
    gaps: tuple[tuple[float, float], ...] = ()
    missing: int = 0
    text: tuple[str, ...] = ()
    converted: Mapping[str, tuple[str, float]] = dataclasses.field(default_factory=dict)
    suspicions: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.rows} rows in {self.seconds:.6g} s, {self.rate:.4g} per second"]
        if self.unsorted:
            parts.append(f"{self.unsorted} were not in order (back by up to {self.jump:.6g} s)")
        if self.repeated:
            parts.append(f"{self.repeated} have the time of another, {self.copies} are copies")
        if self.gaps:
            begin, longest = max(self.gaps, key=lambda gap: gap[1])
            parts.append(f"{len(self.gaps)} gaps, the longest of {longest:.4g} s at {begin:.6g} s")
        if self.missing:
            parts.append(f"{self.missing} rows without all numbers left out")
        if self.text:
            parts.append(f"columns of text left out: {', '.join(self.text)}")
        converted = (f"{name} from {unit}" for name, (unit, _) in self.converted.items())
        if self.converted:
            parts.append(f"converted: {', '.join(converted)}")
        return "; ".join([*parts, *self.suspicions])


@dataclasses.dataclass(frozen=True)
class Report:
    """Findings about a log by stream; `print(log.report)` is a table of sentences."""

    streams: Mapping[str, StreamReport]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {report}" for name, report in self.streams.items())


def clock_findings(stream: Stream) -> dict:
    """Counts and gaps of a sorted stream."""
    intervals = np.diff(stream.nanoseconds)
    same = np.ones(len(intervals), bool)
    for column in stream.columns.values():
        same &= column[1:] == column[:-1]
    positive = intervals[intervals > 0]
    longest = GAP * float(np.median(positive)) if positive.size else np.inf
    begins = np.flatnonzero(intervals > longest)
    first = stream.nanoseconds[0]
    gaps = ((stream.nanoseconds[i] - first, intervals[i]) for i in begins)
    return {
        "rows": len(stream),
        "seconds": float(stream.nanoseconds[-1] - first) / SECOND,
        "rate": stream.rate,
        "repeated": int((intervals == 0).sum()),
        "copies": int(((intervals == 0) & same).sum()),
        "gaps": tuple((float(begin) / SECOND, float(gap) / SECOND) for begin, gap in gaps),
    }


def order_findings(nanoseconds: Int[np.ndarray, " n"], rows: Int[np.ndarray, " n"]) -> dict:
    """Counts of rows that stand after a later one, in the order of the file."""
    steps = np.diff(nanoseconds)
    if not (steps < 0).any():
        return {}
    worst = int(np.argmin(steps))
    latest = np.maximum.accumulate(nanoseconds)
    return {
        "unsorted": int((nanoseconds < latest).sum()),
        "jump": -float(steps[worst]) / SECOND,
        "jump_row": int(rows[worst + 1]),
    }


def suspicions(stream: Stream) -> tuple[str, ...]:
    """Sentences on units that look wrong by the numbers alone."""
    sentences = []
    interval = 1 / stream.rate if stream.rate else 0.0
    if len(stream) >= 20 and interval > 20:
        sentences.append(
            f"the clock has rows {interval:.4g} s apart, as milliseconds that are read as seconds "
            'have; name the unit of the clock in `units`, as in `units={"t": "ms"}`'
        )
    if len(stream) >= 20 and 0 < interval < 2e-5:
        sentences.append(
            f"the clock has rows {interval:.4g} s apart, as seconds that are read as milliseconds "
            "or less have; name the unit of the clock in `units`"
        )
    for name, column in stream.columns.items():
        if name not in stream.units:
            sentences += _unit_suspicions(name, column)
    return tuple(sentences)


def _unit_suspicions(name: str, column: np.ndarray) -> list[str]:
    """Sentences on a column whose unit nobody named."""
    largest = float(np.abs(column).max(initial=0.0))
    typical = float(np.quantile(np.abs(column), 0.9)) if len(column) else 0.0
    advice = lambda unit: f"name its unit in the header, or in `units={{{name!r}: {unit!r}}}`"  # noqa: E731
    if IN_DEGREES.search(name):
        return [f"column {name!r} is named after degrees, but read as it is; {advice('deg')}"]
    if ANGLES.search(name) and 2 * np.pi * 1.01 < largest <= 360.5:
        reason = f"has angles up to {largest:.4g}, too large for radians"
        return [f"column {name!r} {reason}; {advice('deg')}"]
    if RATES.search(name) and typical > 10:
        degrees = np.rad2deg(typical)
        reason = f"turns by {typical:.4g} rad/s, that is {degrees:.0f} degrees per second"
        return [f"column {name!r} {reason}; {advice('deg/s')}"]
    return [
        f"column {name!r} is mostly up to {typical:.4g} {unit}, as {small} that are read as {unit} "
        f"are; {advice(small)}"
        for pattern, limit, unit, small in LARGE
        if re.search(pattern, name, re.I) and typical > limit
    ]


def warn(report: Report, streams: Mapping[str, Stream]) -> None:
    """Warns of what spoils a filter if it goes unnoticed."""
    for name, found in report.streams.items():
        source, file = streams[name].source, streams[name].file
        sentences = [f"{file}: {suspicion}." for suspicion in found.suspicions]
        if found.unsorted:
            sentences.append(
                f"{source}, row {found.jump_row}: the clock went back by {found.jump:.6g} s; "
                f"{found.unsorted} rows that were not in order are sorted by time."
            )
        if found.copies:
            sentences.append(
                f"{file}: {found.copies} rows are copies of the row before them, time included; "
                "they count twice unless `log.without_copies()` drops them."
            )
        for sentence in sentences:
            warnings.warn(sentence, LogWarning, stacklevel=4)
