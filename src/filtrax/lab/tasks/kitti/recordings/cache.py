"""A cache of resized images as memory-mapped arrays.

A JSON file beside each array describes its sources. If they have changed, or if the array is
damaged, it is computed again.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import UInt8

from filtrax._files import write_whole
from filtrax.lab.tasks.kitti.recordings.images import read_image, shrunk

Progress = Callable[[int], None]
"""Callback that gets the number of finished images."""

FOLDER = ".filtrax"
VERSION = 1
"""Must be raised with every change of the code that changes resized images."""

_AT_ONCE = 256
"""The number of images to read ahead, small enough to fail early."""


def cache_folders(root: Path, cache: Path | None = None) -> list[Path]:
    """Returns candidate folders for the arrays of a data set, the preferred one first.

    Without `cache`, these are the user's cache folder, because data sets may be shared, and then a
    folder within the data set. Folders that data sets share have a subfolder for each.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    own = f"{root.resolve().name}-{digest}"
    if cache is not None:
        return [cache / own]
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [users / "filtrax" / "kitti" / own, root / FOLDER]


def cached_images(
    files: Sequence[Path],
    image_size: tuple[int, int],
    name: str,
    folders: Sequence[Path],
    progress: Progress | None = None,
) -> UInt8[np.ndarray, "n height width channels"]:
    """Returns resized images of files as a read-only array, from the first folder that has it.

    If none has it, they are resized and written into the first writable folder.
    """
    origin = _origin(files, image_size)
    file = f"{name}_{image_size[0]}x{image_size[1]}.npy"
    for folder in folders:
        kept = _read(folder / file, origin)
        if kept is not None:
            return kept
    folder = next(filter(_can_be_written, folders), None)
    if folder is None:
        places = " or ".join(str(folder) for folder in folders)
        raise OSError(
            f"The images in their new size must be kept somewhere, but nothing can be written to "
            f"{places}: name another folder as the cache."
        )
    with _writing(folder / file):
        _write(folder / file, files, origin, progress)
    kept = _read(folder / file, origin)
    if kept is None:
        raise OSError(f"{folder / file} was changed by another program: try again.")
    return kept


def _origin(files: Sequence[Path], image_size: tuple[int, int]) -> dict[str, Any]:
    """Describes the sources of an array, for its JSON file."""
    facts = [path.stat() for path in files]
    return {
        "version": VERSION,
        "image_size": list(image_size),
        "number": len(files),
        "first": files[0].name,
        "bytes": sum(fact.st_size for fact in facts),
        "newest_nanoseconds": max(fact.st_mtime_ns for fact in facts),
    }


def _read(path: Path, origin: dict[str, Any]) -> np.ndarray | None:
    """Maps an array into memory; None if it is missing, damaged, or of other sources."""
    try:
        if json.loads(path.with_suffix(".json").read_text()) != origin:
            return None
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    shape = (origin["number"], *origin["image_size"])
    return images if images.shape[:3] == shape and images.dtype == np.uint8 else None


def _write(
    path: Path, files: Sequence[Path], origin: dict[str, Any], progress: Progress | None
) -> None:
    # Remove the description first, so that an interrupted write leaves no valid array.
    path.with_suffix(".json").unlink(missing_ok=True)
    image_size = tuple(origin["image_size"])
    write_whole(path, lambda file: _write_array(file, files, image_size, progress))
    text = json.dumps(origin, indent=2) + "\n"
    write_whole(path.with_suffix(".json"), lambda file: file.write(text.encode()))


def _write_array(
    file: IO[bytes],
    files: Sequence[Path],
    image_size: tuple[int, int],
    progress: Progress | None,
) -> None:
    """Writes resized images one after another, to limit memory."""
    first = read_image(files[0])
    if any(old < new for old, new in zip(first.shape, image_size, strict=False)):
        raise ValueError(
            f"Images can be made smaller alone, to {_size(image_size)} pixels, but {files[0]} has "
            f"{_size(first.shape)}: ask for that size."
        )
    shape = (len(files), *image_size, first.shape[2])
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    read = functools.partial(_read_alike, first=first, origin=files[0], image_size=image_size)
    with ThreadPoolExecutor() as pool:  # decoding and resizing release the GIL
        for start in range(0, len(files), _AT_ONCE):
            for offset, image in enumerate(pool.map(read, files[start : start + _AT_ONCE])):
                file.write(image.tobytes())
                if progress is not None:
                    progress(start + offset + 1)


def _read_alike(
    path: Path, first: np.ndarray, origin: Path, image_size: tuple[int, int]
) -> np.ndarray:
    """Reads and resizes an image; raises unless it has the shape of its camera's first image."""
    image = read_image(path)
    if image.shape != first.shape:
        raise ValueError(
            f"All images of a camera must have one size and be all gray or all in colour, but "
            f"{path} has {_size(image.shape)} pixels with {image.shape[2]} channels, and {origin} "
            f"has {_size(first.shape)} with {first.shape[2]}."
        )
    return shrunk(image, image_size)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns an `OSError` into one that says what could not be written, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            f"The images in their new size cannot be written to {path}: {reason}."
        ) from error
