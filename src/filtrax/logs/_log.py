"""A recording: named streams, each with a clock of its own."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from filtrax._checks import check_known
from filtrax.logs import _bags
from filtrax.logs._assembling import Columns, Paths, assembled, paths_of, read_findings, reported
from filtrax.logs._events import events, on_grid
from filtrax.logs._report import Report
from filtrax.logs._steps import Layout, Steps
from filtrax.logs._stream import SECOND, Stream
from filtrax.logs._tables import read_csv, read_parquet, table_of


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A recording of several streams, sorted by time and in SI units.

    ```python
    log = Log.from_csv({"wheels": "odometry.csv", "gnss": "fixes.csv"}, time="stamp")
    print(log.report)
    learn, rest = log.split(0.6)
    ```

    It is never changed: each method returns another log. Times are seconds on the clock of the log.

    **Attributes:**

    - `streams`: a `Stream` for each name; `log["gnss"]` is one of them.
    - `report`: what was found while reading, by stream; `print(log.report)` says it in sentences.
    """

    streams: Mapping[str, Stream]
    report: Report = dataclasses.field(default_factory=lambda: Report({}))

    @classmethod
    def from_csv(
        cls,
        files: Paths,
        *,
        time: str | Mapping[str, str] = "t",
        columns: Columns | None = None,
        units: Mapping[str, str] | None = None,
        offsets: Mapping[str, float] | None = None,
        drop_missing: bool = False,
    ) -> "Log":
        """Reads a CSV file for each stream; one file may be read for several.

        **Arguments:**

        - `files`: paths by the name of the stream, or one path, whose stream has the file's name.
        - `time`: the column of the clock, one name or one for each stream.
        - `columns`: the columns to read of a stream, all that hold numbers if it is not named;
          a mapping gives them other names, as in `{"gnss": {"x": "east", "y": "north"}}`.
        - `units`: units by column, or by "stream.column", as files name them. They are converted
          to SI. A unit may also stand in the header, as in `range [mm]`; `units` goes before it.
        - `offsets`: seconds to add to the clock of a stream, if clocks differ.
        - `drop_missing`: leave out rows in which a number is missing, which is an error otherwise.
        """
        tables = {name: read_csv(path) for name, path in paths_of(files).items()}
        return cls(*assembled(tables, time, columns, units, offsets, drop_missing))

    @classmethod
    def from_parquet(
        cls,
        files: Paths,
        *,
        time: str | Mapping[str, str] = "t",
        columns: Columns | None = None,
        units: Mapping[str, str] | None = None,
        offsets: Mapping[str, float] | None = None,
        drop_missing: bool = False,
    ) -> "Log":
        """Reads a Parquet file for each stream, with the arguments of `from_csv`.

        Needs pyarrow, which `pip install "filtrax[logs]"` brings. The clock may be a column of
        times or of numbers.
        """
        tables = {name: read_parquet(path) for name, path in paths_of(files).items()}
        return cls(*assembled(tables, time, columns, units, offsets, drop_missing))

    @classmethod
    def from_arrays(
        cls,
        streams: Mapping[str, Mapping[str, Any]],
        *,
        time: str | Mapping[str, str] = "t",
        columns: Columns | None = None,
        units: Mapping[str, str] | None = None,
        offsets: Mapping[str, float] | None = None,
        drop_missing: bool = False,
    ) -> "Log":
        """Makes a log of vectors in memory, with the arguments of `from_csv`.

        A clock is a vector of numbers or of `datetime64`; whole numbers in nanoseconds stay exact.
        """
        tables = {name: table_of(f"stream {name!r}", arrays) for name, arrays in streams.items()}
        return cls(*assembled(tables, time, columns, units, offsets, drop_missing))

    @classmethod
    def from_rosbag(
        cls,
        path: str | Path,
        topics: Mapping[str, str],
        *,
        received: bool = False,
        definitions: Mapping[str, str] | None = None,
        columns: Columns | None = None,
        units: Mapping[str, str] | None = None,
        offsets: Mapping[str, float] | None = None,
        drop_missing: bool = False,
    ) -> "Log":
        """Reads topics of a bag: a `.bag` of ROS 1, an `.mcap`, a `.db3` or a folder of ROS 2.

        Needs the package `rosbags`, which `pip install "filtrax[logs]"` brings. The columns of a
        stream are the numbers of its messages, named as in `angular_velocity.z`, and for each
        quaternion its `yaw`. No code is made of what the bag says of its types, chunks are limited
        in size, and nothing but the bag is read or written.

        **Arguments:**

        - `topics`: the topic of each stream, as in `{"imu": "/imu/data"}`.
        - `received`: use the times at which messages were recorded, and not their headers' stamps.
        - `definitions`: the text of message definitions by type, for types that are neither
          defined in the bag nor among ROS' own.
        - `columns`, `units`, `offsets`, `drop_missing`: as in `from_csv`.
        """
        tables = _bags.read_bag(Path(path), topics, received=received, definitions=definitions)
        return cls(*assembled(tables, _bags.CLOCK, columns, units, offsets, drop_missing))

    def __getitem__(self, stream: str) -> Stream:
        self._check("Streams must exist", [stream])
        return self.streams[stream]

    def __str__(self) -> str:
        return f"A log of {self.end - self.start:.6g} s:\n{self.report}"

    @property
    def start(self) -> float:
        """The time of the first row of all streams."""
        return float(min(stream.nanoseconds[0] for stream in self.streams.values())) / SECOND

    @property
    def end(self) -> float:
        """The time of the last row of all streams."""
        return float(max(stream.nanoseconds[-1] for stream in self.streams.values())) / SECOND

    def between(self, start: float, stop: float) -> "Log":
        """The rows with start <= time < stop."""
        return self._between(round(start * SECOND), round(stop * SECOND))

    def split(self, *fractions: float) -> tuple["Log", ...]:
        """Cuts the log into parts that follow each other, at fractions of its time."""
        first, length = self._first(), self._last() - self._first()
        return self._cut(fractions, [first + round(f * length) for f in fractions], (0.0, 1.0))

    def split_at(self, *times: float) -> tuple["Log", ...]:
        """Cuts the log into parts that follow each other, at times in seconds."""
        return self._cut(times, [round(t * SECOND) for t in times], (self.start, self.end))

    def from_zero(self) -> "Log":
        """The log with a clock that begins at zero."""
        return self._moved(dict.fromkeys(self.streams, -self._first()))

    def shifted(self, **seconds: float) -> "Log":
        """The log with seconds added to the clocks of streams, as in `log.shifted(gnss=-0.2)`."""
        self._check("`shifted` must name streams", seconds)
        return self._moved({name: round(by * SECOND) for name, by in seconds.items()})

    def where(self, stream: str, keep: Callable[[Stream], Bool[np.ndarray, " n"]]) -> "Log":
        """The log without those rows of a stream for which `keep(stream)` is False."""
        rows = np.asarray(keep(self[stream]))
        if rows.dtype != bool or rows.shape != (len(self[stream]),) or not rows.any():
            raise ValueError(
                f"`keep` must return one True or False for each of the {len(self[stream])} rows, "
                f"and keep some, got {rows.dtype} of shape {rows.shape}."
            )
        return self._with({stream: self[stream].taken(rows)})

    def without_copies(self) -> "Log":
        """The log without rows that equal the row before them, time included."""
        return self._with({name: _without_copies(stream) for name, stream in self.streams.items()})

    def with_columns(self, stream: str, **columns: Float[np.ndarray, " n"]) -> "Log":
        """The log with more columns of a stream, or with others in their place."""
        changed = self[stream]
        arrays = {name: np.asarray(column, np.float64) for name, column in columns.items()}
        for name, array in arrays.items():
            if array.shape != (len(changed),) or not np.isfinite(array).all():
                raise ValueError(
                    f"`{name}` must be a finite number for each of the {len(changed)} rows of "
                    f"{stream!r}, got shape {array.shape}."
                )
        both = {**changed.columns, **arrays}
        units = {name: unit for name, unit in changed.units.items() if name not in arrays}
        return self._with({stream: dataclasses.replace(changed, columns=both, units=units)})

    def events(self, model: Any) -> Steps:
        """The log as steps of a filter, event by event.

        Each reading of a sensor is a step at its own time, and so is each row that drives the
        process. Readings at one time are several steps, with no time between them.

        **Arguments:**

        - `model`: a model that `filtrax.models.build` made, or a `Layout`, which says what columns
          are read and what drives the process.
        """
        return events(self.streams, Layout.of(model), model)

    def grid(self, model: Any, step: float, *, merge: bool = False) -> Steps:
        """The log as steps of a filter on a grid of times, `step` seconds apart.

        Readings move to the nearest time of the grid. Several of them at one time of the grid are
        several steps, with no time between them, so that none is lost. With `merge` those of one
        stream become their mean, and `Steps.note` says how many were merged.
        """
        return on_grid(self.streams, Layout.of(model), model, step, merge)

    def _first(self) -> int:
        return int(min(stream.nanoseconds[0] for stream in self.streams.values()))

    def _last(self) -> int:
        return int(max(stream.nanoseconds[-1] for stream in self.streams.values()))

    def _between(self, start: int, stop: int) -> "Log":
        parts = {}
        for name, stream in self.streams.items():
            rows = (stream.nanoseconds >= start) & (stream.nanoseconds < stop)
            if rows.any():
                parts[name] = stream.taken(rows)
        if not parts:
            raise ValueError(
                f"There must be rows from {start / SECOND:.6f} s to {stop / SECOND:.6f} s, but the "
                f"log runs from {self.start:.6f} s to {self.end:.6f} s."
            )
        return Log(parts, reported(parts))

    def _cut(self, named: Sequence[float], cuts: list[int], limits: Any) -> tuple["Log", ...]:
        low, high = limits
        if not named or any(b <= a for a, b in zip((low, *named), (*named, high), strict=True)):
            raise ValueError(
                f"Cuts must increase and lie between {low} and {high}, got {tuple(named)}."
            )
        ends = [self._first(), *cuts, self._last() + 1]
        return tuple(self._between(a, b) for a, b in itertools.pairwise(ends))

    def _moved(self, nanoseconds: Mapping[str, int]) -> "Log":
        moved = {name: self.streams[name].nanoseconds + by for name, by in nanoseconds.items()}
        return self._with(
            {name: dataclasses.replace(self[name], nanoseconds=n) for name, n in moved.items()}
        )

    def _with(self, streams: Mapping[str, Stream]) -> "Log":
        both = {**self.streams, **streams}
        return Log(both, reported(both, read_findings(self.report)))

    def _check(self, what: str, names: Any) -> None:
        check_known(what, [name for name in names if name not in self.streams], [*self.streams])


def _without_copies(stream: Stream) -> Stream:
    same = np.diff(stream.nanoseconds) == 0
    for column in stream.columns.values():
        same &= column[1:] == column[:-1]
    return stream.taken(np.append(True, ~same))
