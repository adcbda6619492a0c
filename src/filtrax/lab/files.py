"""Atomic writes of text and JSON files, with clear errors."""

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filtrax._files import write_whole

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class RecordError(OSError):
    """A file could not be written or read; the message says what to do."""


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Turns an `OSError` into a `RecordError` with a clear message."""
    try:
        yield
    except RecordError:
        raise
    except OSError as error:
        raise refused(path, error) from error


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file atomically; raises `RecordError` if it fails."""
    with writing(path):
        replace(Path(path), text)


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file; raises `RecordError` if it is missing or damaged."""
    path = Path(path)
    if not path.is_file():
        raise RecordError(f"There is no {path.name} in {path.parent}.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {reason(error)}.") from error


def reason(error: Exception) -> str:
    """Says in words of users why a file could not be read, without a full stop."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is no text in UTF-8 from byte {error.start} on"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}"
    if isinstance(error, AttributeError | TypeError | IndexError):
        return "its content has another structure"
    return str(error).rstrip(".") or "it ends too early"


def as_json(content: Any, indent: int | None = None) -> str:
    """Serializes mappings, sequences, strings, paths and numbers, including arrays, as JSON.

    NaN and infinities, which JSON lacks, become null.
    """
    return json.dumps(_plain(content), indent=indent, allow_nan=False)


def refused(path: str | os.PathLike, error: OSError, advice: str = "") -> RecordError:
    """Makes the `RecordError` for a failed write, with its reason and advice."""
    if error.errno in _FULL:
        reason = f"The disk is full: {path} could not be written. Free some space."
    elif error.errno in _FORBIDDEN:
        reason = f"{path} could not be written: it is not allowed there."
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        reason = f"{path} could not be written: a file is where a folder should be."
    else:
        reason = f"{path} could not be written: {error.strerror or error}."
    refused = RecordError(reason + advice)
    refused.errno = error.errno
    return refused


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(entry) for entry in content]
    if hasattr(content, "tolist"):
        return _plain(content.tolist())
    if isinstance(content, os.PathLike):
        return os.fspath(content)
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def replace(path: Path, text: str) -> None:
    """Writes a text file atomically, replacing an existing one."""
    write_whole(path, lambda file: file.write(text.encode()))
