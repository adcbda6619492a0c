"""Tables of numbers in files, with the row of the file in which each number stands."""

import contextlib
import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation, Overflow
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from filtrax._checks import check_known
from filtrax.logs._units import NANOSECONDS, split_header

MISSING = {"", "nan", "na", "n/a", "null", "none"}
"""Cells, in small letters, that say that there is no number."""

MOST_ROWS = 50_000_000
"""Files that claim more rows are refused before memory is taken for them."""

FIRST, LAST = -(2**63), 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Table:
    """The columns of a file: cells of text, or arrays of numbers.

    `rows` are the rows of the file, or the entries of arrays, that an error names.
    """

    source: str
    columns: Mapping[str, Any]
    rows: Int[np.ndarray, " n"]
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def error(self, column: str, index: int, problem: str) -> ValueError:
        """An error about one entry."""
        return ValueError(f"{self.source}, column {column!r}, row {self.rows[index]}: {problem}.")

    def check_columns(
        self, names: Sequence[str], what: str = "columns must be in its header"
    ) -> None:
        """Raises unless there are columns of these names."""
        unknown = [name for name in names if name not in self.columns]
        check_known(f"{self.source}, {what}", unknown, [*self.columns])

    def is_text(self, column: str) -> bool:
        """True if no cell of a column is a number, and some hold text."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
            return cells.dtype.kind not in "iufb"
        numbers = (_as_number(cell) for cell in cells)
        return all(number is None or math.isnan(number) for number in numbers) and not all(
            cell.strip().lower() in MISSING for cell in cells
        )

    def numbers(self, column: str) -> Float[np.ndarray, " n"]:
        """A column as numbers, NaN where one is missing."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
            if cells.dtype.kind not in "iufb":
                raise self.error(column, 0, f"numbers must stand here, found {cells[0]!r}")
            values = cells.astype(np.float64)
        else:
            values = self._parsed(column, cells)
        infinite = np.flatnonzero(np.isinf(values))
        if infinite.size:
            index = int(infinite[0])
            raise self.error(column, index, f"numbers must be finite, found {values[index]}")
        return values

    def nanoseconds(self, column: str, unit: str) -> tuple[Int[np.ndarray, " n"], Any]:
        """A column as times in whole nanoseconds, and a mask of the missing ones."""
        cells, factor = self.columns[column], NANOSECONDS[unit]
        if not isinstance(cells, np.ndarray):
            return self._exact_times(column, cells, factor)
        if cells.dtype.kind == "M":
            return cells.astype("datetime64[ns]").astype(np.int64), np.isnat(cells)
        if cells.dtype.kind in "iu":
            largest = int(np.abs(cells.astype(object)).max(initial=0)) * factor
            if largest > LAST:
                raise ValueError(self._beyond(column, unit))
            return cells.astype(np.int64) * factor, np.zeros(len(cells), bool)
        values = self.numbers(column)
        missing = np.isnan(values)
        scaled = np.where(missing, 0.0, values) * factor
        if (np.abs(scaled) >= LAST).any():
            raise ValueError(self._beyond(column, unit))
        return np.rint(scaled).astype(np.int64), missing

    def _beyond(self, column: str, unit: str) -> str:
        return (
            f"{self.source}, column {column!r}: times must be within 292 years of zero, but in "
            f"{unit or 's'} they are not; name the right unit in `units`."
        )

    def _parsed(self, column: str, cells: Sequence[str]) -> Float[np.ndarray, " n"]:
        with contextlib.suppress(ValueError):  # the common case, kept cheap
            if not any("_" in cell for cell in cells):
                return np.fromiter(map(float, cells), np.float64, len(cells))
        values = [_as_number(cell) for cell in cells]
        for index, value in enumerate(values):
            if value is None:
                hint = ""
                if _as_number(cells[index].replace(",", ".")) is not None:
                    hint = ", which has a comma in the place of the decimal point"
                found = f"a number must stand here, found {_short(cells[index])}{hint}"
                raise self.error(column, index, found)
        return np.asarray(values, np.float64)

    def _exact_times(self, column: str, cells: Sequence[str], factor: int):
        times, missing = np.zeros(len(cells), np.int64), np.zeros(len(cells), bool)
        for index, cell in enumerate(cells):
            text = cell.strip()
            if text.lower() in MISSING:
                missing[index] = True
                continue
            try:
                time = Decimal(text) * factor
            except (InvalidOperation, Overflow):
                time = Decimal("nan")
            if not time.is_finite() or "_" in text:
                raise self.error(column, index, f"a time must stand here, found {_short(cell)}")
            # A number of a billion digits is not rounded before it is compared.
            if not FIRST <= time <= LAST:
                problem = f"times must be within 292 years of zero, found {_short(cell)}"
                raise self.error(column, index, problem)
            times[index] = round(time)
        return times, missing


def read_csv(path: str | Path) -> Table:
    """Reads the cells of a CSV file whose first row names its columns.

    Cells are separated by commas, semicolons or tabs, and rows that begin with `#` are comments,
    but for a header. A byte-order mark, as Excel writes it, is no part of the header.
    """
    path = Path(path)
    header, rows, cells = _cells(path, _text(path))
    if not rows:
        raise ValueError(f"{path} must hold rows below its header {header}, found none.")
    names, units = _names(path, header)
    columns = {
        name: column for name, column in zip(names, zip(*cells, strict=True), strict=True) if name
    }
    return Table(str(path), columns, np.asarray(rows), units)


def read_parquet(path: str | Path) -> Table:
    """Reads the columns of numbers and times of a Parquet file (extra `logs`)."""
    pyarrow, parquet = _pyarrow()
    path = Path(path)
    try:
        with parquet.ParquetFile(path) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise ValueError(
                    f"{path} claims {file.metadata.num_rows:,} rows, and at most {MOST_ROWS:,} are "
                    "read: split it."
                )
            flat = [field.name for field in file.schema_arrow if _is_number(pyarrow, field.type)]
            table = file.read(columns=flat)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} must be a Parquet file, but cannot be read: {reason}") from error
    if not table.num_rows or not flat:
        raise ValueError(f"{path} must hold rows and columns of numbers, found none.")
    arrays = [table[name].to_numpy() for name in flat]
    names, units = _names(path, flat)
    return Table(
        str(path), dict(zip(names, arrays, strict=True)), 1 + np.arange(table.num_rows), units
    )


def table_of(source: str, columns: Mapping[str, Any]) -> Table:
    """A table of arrays in memory."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    sizes = {name: array.shape for name, array in arrays.items()}
    if len(set(sizes.values())) != 1 or any(len(shape) != 1 for shape in sizes.values()):
        raise ValueError(
            f"{source}, all columns must be vectors of one length, got shapes {sizes}."
        )
    count = len(next(iter(arrays.values())))
    if not count:
        raise ValueError(f"{source} must hold rows, found none.")
    names, units = _names(source, list(arrays))
    return Table(source, dict(zip(names, arrays.values(), strict=True)), np.arange(count), units)


def _cells(path: Path, text: str) -> tuple[list[str], list[int], list[list[str]]]:
    """The header, the rows that hold numbers, and their cells."""
    header: list[str] = []
    rows, cells = [], []
    # Strict: a quote that is never closed is an error, and does not swallow the rows behind it.
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        for line in lines:
            if not any(cell.strip() for cell in line):
                continue
            if not header:
                header = _header(path, line)
            elif not line[0].lstrip().startswith("#"):
                _check_width(path, lines.line_num, line, header)
                rows.append(lines.line_num)
                cells.append(line)
    except csv.Error as error:
        raise ValueError(f"{path}, row {lines.line_num}: no row of a CSV file: {error}.") from error
    if not header:
        raise ValueError(f"{path} must hold a header and rows, found an empty file.")
    return header, rows, cells


def _check_width(path: Path, row: int, line: Sequence[str], header: Sequence[str]) -> None:
    if len(line) == len(header):
        return
    problem = f"a row must have the {len(header)} cells of the header, found {len(line)}"
    if len(line) < len(header):
        problem += f"; the first that is missing is column {header[len(line)]!r}"
    raise ValueError(f"{path}, row {row}: {problem}.")


def _text(path: Path) -> str:
    data = path.read_bytes()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, row {row}: must be text in UTF-8, found other bytes.") from error
    if "\0" in text:
        row = text[: text.index("\0")].count("\n") + 1
        raise ValueError(f"{path}, row {row}: must be text, found a zero byte.")
    return text


def _delimiter(text: str) -> str:
    """The mark between cells: the one that is most often in the first row."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return max(",;\t", key=first.count)


def _header(path: Path, line: Sequence[str]) -> list[str]:
    header = [cell.strip() for cell in line]
    header[0] = header[0].lstrip("# ")
    if all(_as_number(cell) is not None for cell in header):
        raise ValueError(
            f"{path}, row 1: the first row must name the columns, found the numbers {header}."
        )
    return header


def _names(source: Any, header: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Names of columns without their units, and those units by name."""
    pairs = [split_header(cell) for cell in header]
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{source}, columns must have distinct names, found {twice} twice.")
    return names, {name: unit for name, unit in pairs if unit}


def _as_number(cell: str) -> float | None:
    """The number in a cell, NaN for a missing one, None for other text."""
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _is_number(pyarrow: Any, kind: Any) -> bool:
    types = pyarrow.types
    return (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_timestamp(kind)
    )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError(
            'Parquet files are read by pyarrow: install it by `pip install "filtrax[logs]"`.'
        ) from error
    return pyarrow, parquet
