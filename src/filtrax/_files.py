"""Files that are either complete or not there, and .npz files that nobody needs to trust."""

import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

MOST_COMPRESSED = 2**31
"""The size of all arrays of a compressed .npz file together, above which it is not read."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file under another name, and gives it its own once it is complete on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_arrays(path: Path, *, compressed: bool = False) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file, which may be a compressed one only where that is expected.

    Raises `ValueError` with the reason if the file is damaged in any way. What headers promise is
    compared with the size of the file before memory is allocated, and nothing is unpickled.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            most = MOST_COMPRESSED if compressed else path.stat().st_size
            _check_sizes(entries, most)
            return {
                entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries
            }
    except (MemoryError, RecursionError) as error:
        raise ValueError("a header in it cannot be true") from error
    except Exception as error:  # damaged bytes raise nearly anything in zipfile and numpy
        raise ValueError(str(error).rstrip(".") or type(error).__name__) from error


def _check_sizes(entries: list[zipfile.ZipInfo], most: int) -> None:
    total = sum(entry.file_size for entry in entries)
    if total > most:
        raise ValueError(f"its arrays would have {total} bytes, and at most {most} are read")
    names = [entry.filename for entry in entries]
    if len({*names}) < len(names) or not all(name.endswith(".npy") for name in names):
        raise ValueError("its entries are not arrays with different names")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        reader: Any = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, fortran, dtype = reader(file)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename} holds Python objects, which are never read")
        size = math.prod(shape) * dtype.itemsize
        if size != entry.file_size - file.tell():
            raise ValueError(f"{entry.filename} is not as long as its header says")
        content = bytearray(file.read())  # to the end, where zipfile compares the checksum
    array = np.frombuffer(content, dtype) if size else np.zeros(shape, dtype)
    return array.reshape(shape, order="F" if fortran else "C")
