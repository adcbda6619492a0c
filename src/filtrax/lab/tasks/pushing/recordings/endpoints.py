"""Tables of pushes with the poses of object and tip at start and end."""

import csv
import dataclasses
import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from filtrax._checks import check_known
from filtrax.lab.files import reason
from filtrax.lab.tasks.pushing.shapes import NAMES

PATTERN = "push_endpoints*.csv*"

_DEGREES = 180 / np.pi
_FACTORS = {
    "tip_speed_mm_s": 1.0,
    **{"obj_x0": 1e3, "obj_y0": 1e3, "obj_th0": _DEGREES},
    **{"obj_x1": 1e3, "obj_y1": 1e3, "obj_th1": _DEGREES},
    **{"tip_x0": 1e3, "tip_y0": 1e3, "tip_x1": 1e3, "tip_y1": 1e3},
}
"""Columns of numbers, with the factors to mm and degrees."""
COLUMNS = ("surface", "shape", *_FACTORS)


@dataclasses.dataclass(frozen=True)
class Pushes:
    """n straight pushes, in mm and degrees, with poses in the frame of the data set."""

    surfaces: np.ndarray
    """Names of the surfaces, shape (n,)."""
    shapes: np.ndarray
    """Names of the objects, shape (n,)."""
    speeds: np.ndarray
    """Speeds of the tip in mm/s, shape (n,)."""
    starts: np.ndarray
    """Poses of the object before the push, shape (n, 3)."""
    ends: np.ndarray
    """Poses of the object after the push, shape (n, 3)."""
    tip_starts: np.ndarray
    """Initial centres of the tip, shape (n, 2)."""
    tip_ends: np.ndarray
    """Final centres of the tip, shape (n, 2)."""

    def __len__(self) -> int:
        return len(self.speeds)

    def __getitem__(self, chosen: np.ndarray) -> "Pushes":
        """Selects pushes by a mask or by indices."""
        fields = dataclasses.fields(self)
        return Pushes(*(getattr(self, field.name)[chosen] for field in fields))

    @property
    def motions(self) -> np.ndarray:
        """The motions of objects, shape (n, 3), with orientations wrapped to [-180, 180)."""
        return wrapped_difference(self.ends, self.starts)


def wrapped_difference(poses: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns differences of poses, with those of orientations in [-180, 180)."""
    difference = poses - others
    difference[..., 2] = (difference[..., 2] + 180) % 360 - 180
    return difference


def find_endpoints(place: str | Path) -> Path:
    """Returns the only table in a folder, or the path itself if it is no folder."""
    place = Path(place)
    if not place.is_dir():
        return place
    found = sorted(place.glob(PATTERN))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(
            f"{place} must hold one table of pushes ({PATTERN}), got {names}: name the file."
        )
    return found[0]


def read_endpoints(path: str | Path) -> Pushes:
    """Reads a table (.csv or .csv.gz) with the columns of `COLUMNS`, in m and rad."""
    path = Path(path)
    rows = _rows(path)
    header = rows[0] if rows else []
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"{path} must have the columns {', '.join(COLUMNS)}, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: its first line begins with "
            f"{','.join(header)[:200]!r}."
        )
    if len(rows) == 1:
        raise ValueError(f"{path} must hold a push at least, but has only the names of columns.")
    _check_lengths(path, rows)
    columns = dict(zip(header, zip(*rows[1:], strict=True), strict=True))
    unknown = sorted({*columns["shape"]} - {*NAMES})
    check_known(f"The shapes in {path} must be those of the data set", unknown, NAMES)
    numbers = {
        name: factor * _numbers(path, name, columns[name]) for name, factor in _FACTORS.items()
    }

    def table(*names: str) -> np.ndarray:
        return np.stack([numbers[name] for name in names], -1)

    return Pushes(
        np.asarray(columns["surface"]),
        np.asarray(columns["shape"]),
        numbers["tip_speed_mm_s"],
        table("obj_x0", "obj_y0", "obj_th0"),
        table("obj_x1", "obj_y1", "obj_th1"),
        table("tip_x0", "tip_y0"),
        table("tip_x1", "tip_y1"),
    )


def _rows(path: Path) -> list[list[str]]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
                return _filled(csv.reader(file))
        with path.open(newline="", encoding="utf-8") as file:
            return _filled(csv.reader(file))
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} must be a table of text, packed by gzip if its name ends in .gz, but it is "
            f"damaged ({reason(error)}): copy it again."
        ) from error


def _filled(rows: Iterable[list[str]]) -> list[list[str]]:
    return [row for row in rows if row]


def _check_lengths(path: Path, rows: Sequence[Sequence[str]]) -> None:
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"Line {index + 1} of {path} must have {len(rows[0])} entries like the first, got "
                f"{len(row)}."
            )


def _numbers(path: Path, name: str, texts: Sequence[str]) -> np.ndarray:
    values = np.empty(len(texts))
    for index, text in enumerate(texts):
        try:
            values[index] = float(text)
        except ValueError:
            values[index] = np.nan
        if not np.isfinite(values[index]):
            raise ValueError(
                f"Column {name} of {path} must hold finite numbers, but line {index + 2} has "
                f"{text!r}."
            )
    return values
