"""Everything that is known of tables in one file, to go on with on another machine."""

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
"""A file of bytes, on a disk or in memory."""


def pack(results: Results, tables: Iterable[str], file: Path) -> None:
    """Writes records, models and unfinished states of tables into one compressed file."""
    paths = [path for name in tables for path in _files(results.path / name)]
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda target: pack_files(target, results, paths))


def pack_files(target: BinaryFile, results: Results, paths: Iterable[Path]) -> None:
    """Writes some files of a folder of results into one compressed file."""
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path in paths:
            archive.add(path, str(path.relative_to(results.path)))


def unpack(file: Path, results: Results) -> None:
    """Puts what a file holds into a folder.

    Records that are there already stay as they are; of an unfinished training that both have,
    the one that is further is kept.
    """
    with file.open("rb") as source:
        unpack_files(source, results, str(file))


def unpack_files(packed: BinaryFile, results: Results, name: str) -> None:
    """As `unpack`, from a file that is open; `name` is what an error calls it."""
    try:
        _read_through(packed)
        with tarfile.open(fileobj=packed) as archive:
            for member in _new(archive.getmembers(), results):
                tarfile.data_filter(member, str(results.path))  # refuses paths that lead elsewhere
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
    """The files of a group: its state, its records and models, and the models it starts from."""
    cells = group.cells
    starts = {cell.start[:2] for cell in cells if cell.start is not None}
    kept = starts | {(group.table, cell.name) for cell in cells}
    folders = [results.unfinished(group.table, group.name).path]
    folders += [results.model(*names).path for names in sorted(kept)]
    records = [path for path in map(results.record, cells) if path.is_file()]
    return records + [path for folder in folders for path in _files(folder)]


def _files(folder: Path) -> list[Path]:
    """The files of a folder; of several checkpoints of a training only the newest."""
    old = {
        path
        for checkpoints in folder.rglob("checkpoints")
        for _, path in RunFolder(checkpoints.parent).checkpoints()[1:]
    }
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in old]
    return [path for path in files if path.suffix != ".lock" and not path.name.startswith(".")]


def _read_through(packed: BinaryFile) -> None:
    """Raises if the file is damaged anywhere: half of what it holds must not be taken over."""
    with gzip.open(packed) as content:
        while content.read(1 << 20):
            pass
    packed.seek(0)


def _new(members: list[tarfile.TarInfo], results: Results) -> list[tarfile.TarInfo]:
    """What is taken over; trainings that are replaced are removed first."""
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
    # Checkpoints last: without any, what is there counts as nothing.
    return sorted(new, key=lambda member: _number(member.name))


def _unfinished(name: str) -> str | None:
    """The folder of the unfinished training that a packed file belongs to, if any."""
    table, *rest = PurePosixPath(name).parts
    return "/".join((table, *rest[:2])) if rest[:1] == ["unfinished"] else None


def _number(name: str) -> int:
    """The number of a checkpoint; 0 of all other files."""
    path = PurePosixPath(name)
    return int(path.stem.removeprefix("checkpoint-")) if path.parent.name == "checkpoints" else 0


def _progress(run: Path) -> int:
    """The number of the newest checkpoint of a training; -1 if there is none."""
    return next((number for number, _ in RunFolder(run).checkpoints()), -1)
