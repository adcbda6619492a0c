"""Packs records, models and unfinished states into one file, to continue on another machine."""

import functools
import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from filtrax._files import write_whole
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import RecordError, writing
from filtrax.lab.reproduction.groups import Group
from filtrax.lab.reproduction.records import Results

BinaryFile = Any
"""A binary file, on disk or in memory."""


def pack(results: Results, tables: Iterable[str], file: Path) -> None:
    """Writes records, models and unfinished states of tables into one compressed file."""
    paths = [path for name in tables for path in _files(results.path / name)]
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda target: pack_files(target, results, paths))


def pack_files(target: BinaryFile, results: Results, paths: Iterable[Path]) -> None:
    """Writes some files of a folder of results into a gzipped tar archive."""
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path in paths:
            archive.add(path, str(path.relative_to(results.path)))


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
            for member in _new(archive.getmembers(), results):
                tarfile.data_filter(member, str(results.path))  # raises for paths outside
                source = archive.extractfile(member)
                assert source is not None
                path = results.path / member.name
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, functools.partial(shutil.copyfileobj, source))
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise RecordError(
            f"{name} must be a file that --pack has written, but it could not be read: {reason}."
        ) from error


def packed_of(group: Group, results: Results) -> list[Path]:
    """Lists the files of a group: its state, records and models, and the models it starts from."""
    cells = group.cells
    starts = {cell.start[:2] for cell in cells if cell.start is not None}
    kept = starts | {(group.table, cell.name) for cell in cells}
    folders = [results.unfinished(group.table, group.name).path]
    folders += [results.model(*names).path for names in sorted(kept)]
    records = [path for path in map(results.record, cells) if path.is_file()]
    return records + [path for folder in folders for path in _files(folder)]


def _files(folder: Path) -> list[Path]:
    """Lists the files of a folder, with only the newest checkpoint of each training."""
    old = {
        path
        for checkpoints in folder.rglob("checkpoints")
        for _, path in RunFolder(checkpoints.parent).checkpoints()[1:]
    }
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in old]
    return [path for path in files if path.suffix != ".lock" and not path.name.startswith(".")]


def _read_through(packed: BinaryFile) -> None:
    """Raises if the file is damaged anywhere, before any of its content is unpacked."""
    with gzip.open(packed) as content:
        while content.read(1 << 20):
            pass
    packed.seek(0)


def _new(members: list[tarfile.TarInfo], results: Results) -> list[tarfile.TarInfo]:
    """Returns the files to unpack, and removes existing trainings that they replace."""
    files = [member for member in members if member.isfile()]
    packed: dict[str, int] = {}
    for member in files:
        run = _unfinished(member.name)
        if run is not None:
            packed[run] = max(packed.get(run, 0), _number(member.name))
    further = {run for run, number in packed.items() if number > _progress(results.path / run)}
    for run in further:
        shutil.rmtree(results.path / run, ignore_errors=True)
    new = [
        member
        for member in files
        if not (results.path / member.name).exists()
        and _unfinished(member.name) in {None, *further}
    ]
    # Checkpoints last: an interrupted unpack then leaves a training without progress.
    return sorted(new, key=lambda member: _number(member.name))


def _unfinished(name: str) -> str | None:
    """Returns the folder of the unfinished training that a packed file belongs to, if any."""
    table, *rest = PurePosixPath(name).parts
    return "/".join((table, *rest[:2])) if rest[:1] == ["unfinished"] else None


def _number(name: str) -> int:
    """Returns the number of a checkpoint, and 0 for all other files."""
    path = PurePosixPath(name)
    return int(path.stem.removeprefix("checkpoint-")) if path.parent.name == "checkpoints" else 0


def _progress(run: Path) -> int:
    """Returns the number of the newest checkpoint of a training; -1 if there is none."""
    return next((number for number, _ in RunFolder(run).checkpoints()), -1)
