"""Unpacks packed files, which may come from anybody, so that nothing in them is trusted.

All entries are checked by name, kind and size before anything is written. They are unpacked into a
folder of their own, where records, models and states must prove to be readable, and are then moved
to their places. A file that exists is kept; an unfinished training gives way only to a readable
state of the same training with more epochs, and is removed last.
"""

import gzip
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filtrax._files import read_arrays
from filtrax.lab.config import load
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import RecordError, read_json, writing
from filtrax.lab.reproduction.cell_files import read_cell
from filtrax.lab.reproduction.packing import BinaryFile
from filtrax.lab.reproduction.records import Results

_PART = r"(?!\.)[^/\\\x00-\x1f\x7f]{1,200}"
_STATE = r"config\.toml|run\.json|metrics\.jsonl|checkpoints/checkpoint-\d{6,12}\.npz"
NAMES = re.compile(
    rf"(?P<record>(?P<table>{_PART})/{_PART}\.json)"
    rf"|{_PART}/models/{_PART}/(?:config\.toml|(?P<model>model\.npz))"
    rf"|(?P<run>{_PART}/unfinished/{_PART})/(?:{_STATE}|events/(?:{_PART}/)?{_PART})"
)
"""The names of all files that `pack` writes."""

MOST_BYTES = 2**26
"""The size of the content of any packed file, in bytes."""

MOST_EXPANSION = 100
"""How many times larger than the packed file its content may be, above `MOST_BYTES`."""

_DAMAGE = (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, ArithmeticError)


def unpack(file: Path, results: Results) -> None:
    """Unpacks a file into a folder of results.

    Existing records are kept. Of an unfinished training that both have, the one with more epochs
    is kept.
    """
    with file.open("rb") as source:
        unpack_files(source, results, str(file))


def unpack_files(packed: BinaryFile, results: Results, name: str) -> None:
    """Unpacks an open file as `unpack` does; `name` is its name in error messages."""
    try:
        _read_through(packed)
        with tarfile.open(fileobj=packed) as archive:
            members = archive.getmembers()
            _check_members(members, results)
            with writing(results.path):
                results.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=results.path) as folder:
                _extract(archive, members, results, Path(folder, "new"))
                _check_files(Path(folder, "new"))
                _move(Path(folder, "new"), results, Path(folder, "old"))
    except RecordError:
        raise
    except _DAMAGE as error:
        reason = str(error).rstrip(".")
        raise RecordError(
            f"{name} must be a file that --pack has written, but it could not be read: {reason}."
        ) from error


def _read_through(packed: BinaryFile) -> None:
    """Raises if the file is damaged anywhere, or if its content is far larger than itself."""
    limit = MOST_BYTES + MOST_EXPANSION * packed.seek(0, os.SEEK_END)
    packed.seek(0)
    size = 0
    with gzip.open(packed) as content:
        while block := content.read(1 << 20):
            size += len(block)
            if size > limit:
                raise ValueError(f"its content has more than {limit} bytes")
    packed.seek(0)


def _extract(
    archive: tarfile.TarFile, members: list[tarfile.TarInfo], results: Results, folder: Path
) -> None:
    """Writes the files that are new into a folder."""
    for member in members:
        match = NAMES.fullmatch(member.name)
        assert match is not None
        if match["run"] is None and (results.path / member.name).exists():
            continue
        source = archive.extractfile(member)
        assert source is not None
        path = folder / member.name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())


def _check_members(members: list[tarfile.TarInfo], results: Results) -> None:
    inside = results.path.resolve()
    for member in members:
        # Sparse files count as files, too, and are longer than what the archive holds of them.
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{member.name!r} in it is no plain file")
        if NAMES.fullmatch(member.name) is None:
            raise ValueError(f"it has a file {member.name[:200]!r}, which --pack never writes")
        if not (results.path / member.name).resolve().is_relative_to(inside):
            raise ValueError(f"{member.name!r} in it leads out of {results.path}")
    if len({member.name for member in members}) < len(members):
        raise ValueError("it has two files of one name")


def _check_files(folder: Path) -> None:
    """Raises unless records, models and states can be read."""
    for path in _files(folder):
        match = NAMES.fullmatch(path.relative_to(folder).as_posix())
        assert match is not None
        try:
            if match["record"]:
                read_cell(path, match["table"])
            elif path.name == "run.json":
                read_json(path)
            elif path.name == "config.toml":
                load(path)
            elif path.suffix == ".npz":
                read_arrays(path)
            elif path.name == "metrics.jsonl":
                RunFolder(path.parent).read_metrics()
        except (RecordError, ValueError) as error:
            reason = str(error).replace(f"{folder}{os.sep}", "")
            raise ValueError(f"{path.relative_to(folder)} in it is damaged: {reason}") from error


def _move(new: Path, results: Results, old: Path) -> None:
    """Moves unpacked files to their places, and trainings that they replace into `old`."""
    runs = [run.relative_to(new) for run in sorted(new.glob("*/unfinished/*"))]
    further = [run for run in runs if _is_further(RunFolder(new / run), results.path / run)]
    for run in further:
        _swap(new / run, results.path / run, old / run)
    for run in {*runs} - {*further}:
        shutil.rmtree(new / run)
    for path in _files(new):
        place = results.path / path.relative_to(new)
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                os.replace(path, place)


def _swap(run: Path, place: Path, aside: Path) -> None:
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            os.replace(place, aside)
        try:
            os.replace(run, place)
        except BaseException:
            os.replace(aside, place)
            raise


def _is_further(new: RunFolder, place: Path) -> bool:
    """Tells if a training may take the place of another, of which there may be nothing yet."""
    ours, theirs = RunFolder(place).checkpoints()[:1], new.checkpoints()[:1]
    if not ours:
        return not place.exists() or bool(theirs)
    if not theirs or theirs[0][0] <= ours[0][0]:
        return False
    if theirs[0][0] > len(new.read_metrics()):
        raise ValueError(f"{new.path.name} in it has fewer epochs than its checkpoint says")
    return _alike(theirs[0][1], ours[0][1])


def _alike(new: Path, old: Path) -> bool:
    """Tells if a checkpoint has the arrays of another; one that is damaged gives way."""
    try:
        before = _shapes(old)
    except ValueError:
        return True
    if _shapes(new) != before:
        raise ValueError(f"{new.name} in it is not of the training that is there")
    return True


def _shapes(path: Path) -> dict[str, Any]:
    return {name: (array.shape, array.dtype) for name, array in read_arrays(path).items()}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
