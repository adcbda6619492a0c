"""Collections: all records of a table in one text file, as in the repository.

The first line has format, version and table. The next lines are settings and origins that records
share, followed by the records, one line per cell. Both are sorted, so that equal records give equal
bytes, in whatever order they were made.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filtrax.lab.files import RecordError, as_json, write_text, writing

FORMAT, VERSION = "filtrax records", 1
SHARED = ("task", "model", "filter", "start")
"""Settings of an experiment that are stored once for all records, as its stages are."""

_REFERENCE = "$ref"
_DIGITS = 12

Record = dict[str, Any]


def path_of(folder: Path, table: str) -> Path:
    """Returns the path of the collection of a table."""
    return Path(folder) / f"{table}.jsonl"


def read_collection(folder: Path, table: str) -> dict[str, Record]:
    """Reads the records of a table by cell name; empty without a file."""
    path = path_of(folder, table)
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        head, *others = [json.loads(line) for line in lines]
        _check(head, table, path)
        parts = {line["part"]: line["content"] for line in others if "part" in line}
        cells = [line for line in others if "name" in line]
        return {line["name"]: _unfolded(line["record"], parts) for line in cells}
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is damaged: {error!r}. Restore it from the history.") from error


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
    found = {path.stem: _read(path, table) for path in sorted(source.glob("*.json"))}
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
    parts: dict[str, Any] = {}
    cells = [{"name": name, "record": _folded(records[name], parts)} for name in sorted(records)]
    shared = [{"part": key, "content": parts[key]} for key in sorted(parts)]
    head = {"format": FORMAT, "version": VERSION, "table": table}
    return "".join(_line(content) for content in (head, *shared, *cells))


def _line(content: Any) -> str:
    """Serializes one line without spaces, which would add a tenth to a file."""
    return json.dumps(json.loads(as_json(content)), separators=(",", ":")) + "\n"


def _folded(record: Record, parts: dict[str, Any]) -> Record:
    """Replaces settings and origin of a record by references, and adds them to `parts`."""

    def kept(content: Any) -> Any:
        text = json.dumps(content, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        parts[key] = json.loads(text)
        return {_REFERENCE: key}

    config = {name: kept(v) if name in SHARED else v for name, v in record["config"].items()}
    config |= {name: [kept(s) for s in config[name]] for name in ("stages",) if name in config}
    origin = {name: v for name, v in record["origin"].items() if name != "started"}
    own = {"started": record["origin"].get("started")}
    return record | {"origin": own | kept(origin), "config": config}


def _unfolded(record: Record, parts: Mapping[str, Any]) -> Record:
    """Resolves the references in a record."""
    config = {name: _resolved(value, parts) for name, value in record["config"].items()}
    origin = dict(record["origin"])
    whole = parts[origin.pop(_REFERENCE)] | origin
    return record | {"origin": whole, "config": config}


def _resolved(value: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(each, parts) for each in value]
    is_reference = isinstance(value, dict) and set(value) == {_REFERENCE}
    return parts[value[_REFERENCE]] if is_reference else value


def _read(path: Path, table: str) -> Record:
    """Reads the record of a cell; raises if it is damaged or of another table."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        named, _, _ = record["table"], dict(record["config"]), dict(record["origin"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is damaged: {error!r}.") from error
    if named != table:
        raise RecordError(f"{path} must be a record of table {table!r}, got {named!r}.")
    return record


def _check(head: Any, table: str, path: Path) -> None:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise RecordError(f"{path} must begin with a line of the format {FORMAT!r}, got {head!r}.")
    if head["version"] != VERSION:
        raise RecordError(
            f"{path} has version {head['version']} of its format, and this filtrax reads version "
            f"{VERSION}."
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
