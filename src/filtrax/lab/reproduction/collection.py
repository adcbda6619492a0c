"""Collections: all records of a table in one text file, as in the repository.

The first line has format, version and table. The next lines are what records share, such as
settings and the names of values, each under its hash; then follows one line per cell. Both are
sorted, so that equal records give equal bytes, in whatever order they were made.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filtrax.lab.files import RecordError, as_json, reason, write_text, writing
from filtrax.lab.reproduction.cell_files import read_cell
from filtrax.lab.reproduction.folding import Parts, compact, fold, unfold

FORMAT, VERSION = "filtrax records", 2
READERS = {1: "472da6c83a5b"}
"""The last commit that reads an older version."""

_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)

Record = dict[str, Any]


def path_of(folder: Path, table: str) -> Path:
    """Returns the path of the collection of a table."""
    return Path(folder) / f"{table}.jsonl"


def read_collection(folder: Path, table: str) -> dict[str, Record]:
    """Reads the records of a table by cell name; empty without a file."""
    path = path_of(folder, table)
    if not path.is_file():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines:
            raise ValueError("it is empty")
        head, *others = [json.loads(line) for line in lines]
        _check(head, table, path)
        parts = {line["part"]: line["content"] for line in others if "part" in line}
        cells = [line for line in others if "cell" in line]
        return {line["cell"]: {"table": table} | unfold(line, parts) for line in cells}
    except _DAMAGE as error:
        raise RecordError(
            f"{path} is damaged: {reason(error)}. Restore it from the history."
        ) from error


def collect(source: Path, target: Path, tables: Iterable[str], *, replace: bool = False) -> int:
    """Merges records of cells into the collections of their tables.

    Processes that collect into the same folder wait for each other.

    **Arguments:**

    - `source`: a folder with records as `TABLE/CELL.json`.
    - `target`: the folder of the collections `TABLE.jsonl`.
    - `tables`: the names of the tables.
    - `replace`: replace existing records of the same cells, which otherwise raise an error if they
      differ.

    **Returns:** the number of new or changed records.
    """
    target = Path(target)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    with _in_turn(target):
        return sum(_collect(Path(source) / name, target, name, replace) for name in tables)


def _collect(source: Path, target: Path, table: str, replace: bool) -> int:
    found = {path.stem: read_cell(path, table) for path in sorted(source.glob("*.json"))}
    there = read_collection(target, table)
    new = {name: record for name, record in found.items() if there.get(name) != record}
    changed = sorted(new.keys() & there.keys())
    if changed and not replace:
        raise RecordError(
            f"{path_of(target, table)} has other records of {', '.join(changed)}, which stay as "
            "they are: give `--replace` if the new ones are right."
        )
    if new:
        write_text(path_of(target, table), as_text(table, there | new))
    return len(new)


def as_text(table: str, records: Mapping[str, Record]) -> str:
    """Serializes the collection of a table; `records` are by cell name."""
    parts = Parts()
    cells = []
    for name, record in sorted(records.items()):
        plain = json.loads(as_json({key: v for key, v in record.items() if key != "table"}))
        cells.append(compact({"cell": name, **fold(plain, parts)}))
    head = compact({"format": FORMAT, "table": table, "version": VERSION})
    contents = sorted(parts.contents.items())
    shared = [f'{{"part":"{key}","content":{text}}}' for key, text in contents]
    return "".join(f"{line}\n" for line in (head, *shared, *cells))


def _check(head: Any, table: str, path: Path) -> None:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise RecordError(f"{path} must begin with a line of the format {FORMAT!r}, got {head!r}.")
    version = head["version"]
    if version != VERSION:
        reader = f"; commit {READERS[version]} reads it" if version in READERS else ""
        raise RecordError(
            f"{path} must have version {VERSION} of the format {FORMAT!r}, got {version}{reader}."
        )
    if head["table"] != table:
        raise RecordError(f"{path} must be of table {table!r}, got {head['table']!r}.")


@contextlib.contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on a folder; waits for other processes to release it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
