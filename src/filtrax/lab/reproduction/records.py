"""Folders of records: one JSON file per cell while a table runs, later one file per table."""

import contextlib
import dataclasses
import fcntl
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import writing
from filtrax.lab.reproduction.cell_files import read_cell, write_cell
from filtrax.lab.reproduction.collection import path_of as collection_of
from filtrax.lab.reproduction.collection import read_collection
from filtrax.lab.reproduction.tables import Cell, Table

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Results:
    """A folder of records, of any number of tables.

    - `TABLE/CELL.json`: the record of a cell.
    - `TABLE.jsonl`: collected records of a table, in this folder or in `collected`.
    - `TABLE/models/CELL`: configuration and trained model of a cell that others start from.
    - `TABLE/unfinished`: states of cells that are still to be trained.
    """

    path: Path
    collected: Path | None = None

    def record(self, cell: Cell) -> Path:
        """Returns the path of a cell's record."""
        return self.path / cell.table / f"{cell.name}.json"

    def model(self, table: str, name: str) -> RunFolder:
        """Returns the folder of a cell's trained model."""
        return RunFolder(self.path / table / "models" / name)

    def unfinished(self, table: str, name: str) -> RunFolder:
        """Returns the folder of a group's unfinished training."""
        return RunFolder(self.path / table / "unfinished" / name)

    def read(self, cell: Cell) -> Record | None:
        """Returns the record of a cell, or None if there is none yet."""
        path, table = self.record(cell), cell.table
        return read_cell(path, table) if path.is_file() else self._collection(table).get(cell.name)

    def has(self, cell: Cell) -> bool:
        """Returns True if there is a record of a cell."""
        return self.record(cell).is_file() or cell.name in self._collection(cell.table)

    def records(self, table: str) -> dict[str, Record]:
        """Returns all records of a table by cell name; files of cells take precedence."""
        paths = sorted((self.path / table).glob("*.json"))
        own = {path.stem: read_cell(path, table) for path in paths}
        return self._collection(table) | own

    def _collection(self, table: str) -> dict[str, Record]:
        path = collection_of(self.collected or self.path, table)
        try:
            status = path.stat()
        except OSError:
            return {}
        return _read_once(path.parent, table, status.st_mtime_ns, status.st_size)

    def write(self, cell: Cell, record: Record) -> None:
        """Writes the record of a cell atomically."""
        write_cell(self.record(cell), record)

    @contextlib.contextmanager
    def claimed(self, table: str, name: str) -> Iterator[bool]:
        """Claims a group of cells during the block; yields False if another process holds it.

        The claim is a file lock, which is released when the process ends, even by a crash.
        """
        path = self.path / table / "unfinished" / f"{name}.lock"
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
                # A process that has opened the lock before finds the records.
                if not self.unfinished(table, name).path.exists():
                    path.unlink(missing_ok=True)


def read_records(folder: Path, table: Table) -> dict[str, Record]:
    """The records of a table in a folder, by the names of their cells."""
    return dict(sorted(Results(Path(folder)).records(table.name).items()))


@functools.lru_cache(maxsize=64)
def _read_once(folder: Path, table: str, changed: int, size: int) -> dict[str, Record]:
    """The collected records of a table, read again only if their file has changed."""
    del changed, size
    return read_collection(folder, table)
