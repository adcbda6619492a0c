"""The record of one cell as a JSON file, as a run of a table writes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filtrax.lab.files import RecordError, as_json, read_json, reason, write_text, writing

VERSION = 1
"""The version of the format; files of commits before it was recorded are of this version, too."""

Record = dict[str, Any]


def write_cell(path: Path, record: Mapping[str, Any]) -> None:
    """Writes the record of a cell atomically."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, as_json({"version": VERSION, **record}, indent=1) + "\n")


def read_cell(path: Path, table: str) -> Record:
    """Reads the record of a cell; raises `RecordError` if it is damaged or of another table."""
    record = read_json(path)
    try:
        version = record.pop("version", VERSION)
        named, _, _ = record["table"], dict(record["config"]), dict(record["origin"])
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is damaged: {reason(error)}.") from error
    if version != VERSION:
        raise RecordError(f"{path} must be a record of version {VERSION}, got {version}.")
    if named != table:
        raise RecordError(f"{path} must be a record of table {table!r}, got {named!r}.")
    return record
