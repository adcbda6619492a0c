"""Packs records, models and unfinished states into one file, to continue on another machine.

See `unpacking` for the way back, which trusts nothing in such a file.
"""

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filtrax._files import write_whole
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import writing
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
    # Links are followed, because only files may be unpacked.
    with tarfile.open(fileobj=target, mode="w:gz", dereference=True) as archive:
        for path in paths:
            archive.add(path, str(path.relative_to(results.path)))


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
