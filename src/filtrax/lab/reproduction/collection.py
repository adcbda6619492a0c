"""All records of a table in one text file, which is how they are kept in the repository.

The first line names format, version and table. Then come settings and origins that records share,
each once, and then the records, a line for each cell. All lines are sorted, so that the same
records give the same bytes, whoever made them and in whatever order.
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
"""Tables of settings of an experiment that are stored once, as each of its stages is."""

_REFERENCE = "$ref"
_DIGITS = 12

Record = dict[str, Any]


def path_of(folder: Path, table: str) -> Path:
    """The file with all records of a table."""
    return Path(folder) / f"{table}.jsonl"


def read_collection(folder: Path, table: str) -> dict[str, Record]:
    """The records of a table in its one file, by the names of their cells; none without a file."""
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
    """Merges the records of cells below a folder into the files of tables in another one.

    Several processes may collect into one folder: they take turns.

    **Arguments:**

    - `source`: a folder with records as `TABLE/CELL.json`.
    - `target`: the folder of the files `TABLE.jsonl`.
    - `tables`: their names.
    - `replace`: whether a record takes the place of another one of its cell, which is otherwise an
      error.

    **Returns:** how many records are new.
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
    """The file of a table with some records, by the names of their cells."""
    parts: dict[str, Any] = {}
    cells = [{"name": name, "record": _folded(records[name], parts)} for name in sorted(records)]
    shared = [{"part": key, "content": parts[key]} for key in sorted(parts)]
    head = {"format": FORMAT, "version": VERSION, "table": table}
    return "".join(_line(content) for content in (head, *shared, *cells))


def _line(content: Any) -> str:
    """JSON without spaces: they would be a tenth of a file."""
    return json.dumps(json.loads(as_json(content)), separators=(",", ":")) + "\n"


def _folded(record: Record, parts: dict[str, Any]) -> Record:
    """The record with references in the place of what others may have as well."""

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
    """The record with what its references stand for."""
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
    """The record of a cell, if it can be part of a collection."""
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
    """Waits until no other process collects into a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
