"""One stream of a log: readings of one source on a clock of their own."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from filtrax._checks import check_known

SECOND = 10**9


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """Rows of named numbers in SI units, sorted by time.

    **Attributes:**

    - `nanoseconds`: the time of each row in whole nanoseconds, so that stamps since 1970 lose
      nothing.
    - `columns`: the numbers by name; `stream["range"]` is one of them.
    - `units`: the SI units of columns, where the file or the caller named a unit.
    - `source`: the file and column of the clock, for messages.
    """

    nanoseconds: Int[np.ndarray, " n"]
    columns: Mapping[str, Float[np.ndarray, " n"]]
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = "a stream"

    def __len__(self) -> int:
        return len(self.nanoseconds)

    def __getitem__(self, column: str) -> Float[np.ndarray, " n"]:
        check_known(f"{self.file}, columns must exist", {column} - {*self.columns}, [*self.columns])
        return self.columns[column]

    @property
    def file(self) -> str:
        """The file alone, for messages about another column than the clock."""
        return self.source.partition(", column ")[0]

    @property
    def times(self) -> Float[np.ndarray, " n"]:
        """The time of each row in seconds."""
        return self.nanoseconds / SECOND

    @property
    def rate(self) -> float:
        """Rows per second: the inverse of the median interval between different times."""
        intervals = np.diff(np.unique(self.nanoseconds))
        return SECOND / float(np.median(intervals)) if intervals.size else 0.0

    def at(
        self,
        times: Float[np.ndarray, " t"],
        *,
        angles: Sequence[str] | Mapping[str, float] = (),
        largest_gap: float | None = None,
    ) -> dict[str, Float[np.ndarray, " t"]]:
        """The columns at other times, in seconds, interpolated linearly between rows.

        Nothing is extrapolated: before the first and after the last row, and between rows that are
        further apart than `largest_gap` seconds, there is NaN. `angles` names columns that go the
        short way round, with a period of 2π unless a mapping gives another one; they come out in
        [-period/2, period/2).
        """
        nanoseconds = np.rint(np.asarray(times, np.float64) * SECOND).astype(np.int64)
        return self.at_nanoseconds(nanoseconds, angles=angles, largest_gap=largest_gap)

    def at_nanoseconds(
        self,
        nanoseconds: Int[np.ndarray, " t"],
        *,
        angles: Sequence[str] | Mapping[str, float] = (),
        largest_gap: float | None = None,
    ) -> dict[str, Float[np.ndarray, " t"]]:
        """The columns at other times in whole nanoseconds; see `at`."""
        periods = angles if isinstance(angles, Mapping) else dict.fromkeys(angles, 2 * np.pi)
        check_known("`angles` must name columns", {*periods} - {*self.columns}, [*self.columns])
        # The last of several rows at one time counts.
        last = np.append(np.diff(self.nanoseconds) > 0, True)
        stamps = self.nanoseconds[last]
        after = np.clip(np.searchsorted(stamps, nanoseconds), 1, max(len(stamps) - 1, 1))
        before = after - 1
        after = np.minimum(after, len(stamps) - 1)
        length = np.maximum(stamps[after] - stamps[before], 1)
        share = (nanoseconds - stamps[before]) / length
        known = (nanoseconds >= stamps[0]) & (nanoseconds <= stamps[-1])
        if largest_gap is not None:
            exact = (nanoseconds == stamps[before]) | (nanoseconds == stamps[after])
            known &= exact | (length <= largest_gap * SECOND)
        results = {}
        for name, column in self.columns.items():
            values, period = column[last], periods.get(name)
            change = values[after] - values[before]
            if period is not None:
                change = wrapped(change, period)
            result = values[before] + share * change
            if period is not None:
                result = wrapped(result, period)
            results[name] = np.where(known, result, np.nan)
        return results

    def taken(self, rows: np.ndarray) -> "Stream":
        """The stream of some rows, by a mask or by their order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return dataclasses.replace(self, nanoseconds=self.nanoseconds[rows], columns=columns)


def wrapped(angle: np.ndarray, period: float) -> np.ndarray:
    """Angles in [-period/2, period/2)."""
    return (angle + period / 2) % period - period / 2
