"""Text and JSON files: complete or not there, and one sentence where a disk refuses."""

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
    """A file of a run that could not be written or read: one sentence that says what to do."""


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Turns the refusal of a disk into one clear sentence."""
    try:
        yield
    except RecordError:
        raise
    except OSError as error:
        raise refused(path, error) from error


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file that is either complete or not there."""
    with writing(path):
        replace(Path(path), text)


def read_json(path: str | os.PathLike) -> Any:
    """The content of a JSON file of a run."""
    path = Path(path)
    if not path.is_file():
        raise RecordError(f"There is no {path.name} in {path.parent}.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}.") from error


def as_json(content: Any, indent: int | None = None) -> str:
    """JSON of mappings, lists, texts and numbers, those of NumPy and JAX included.

    JSON knows neither NaN nor infinity: such numbers become null.
    """
    return json.dumps(_plain(content), indent=indent, allow_nan=False)


def refused(path: str | os.PathLike, error: OSError, advice: str = "") -> RecordError:
    """The error that says why a file could not be written, and what to do."""
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
    """Writes a text file in one go, in the place of the one that is there."""
    write_whole(path, lambda file: file.write(text.encode()))
