"""Writes pictures and folders of exported data."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image

GAP, GREY = 2, 96
"""Width and brightness of the lines between images."""


def stack(
    pictures: Iterable[UInt8[np.ndarray, "_ _ 3"]], axis: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Stacks pictures vertically (axis 0) or horizontally (axis 1), with lines between them."""
    pictures = list(pictures)
    shape = list(pictures[0].shape)
    shape[axis] = GAP
    line = np.full(shape, GREY, np.uint8)
    parts = itertools.chain.from_iterable((line, picture) for picture in pictures)
    return np.concatenate(list(parts)[1:], axis)


def save(
    path: str | Path,
    pictures: Iterable[UInt8[np.ndarray, "height width 3"]],
    kind: Literal["PNG", "GIF"],
    **options: object,
) -> None:
    """Writes a picture, or an animation of several pictures."""
    path = Path(path)
    first, *others = (Image.fromarray(picture) for picture in pictures)
    if others:
        options = {"save_all": True, "append_images": others, **options}
    with writing("The preview", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, format=kind, **options)


def make_empty(folder: Path) -> None:
    """Makes a folder; raises if it contains files, or if there is a file of its name."""
    is_file = folder.is_file()
    if is_file or (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(
            f"The folder of an exported data set must be new or empty, but {folder} "
            f"{'is a file' if is_file else 'holds files'}: choose another one."
        )
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turns an `OSError` into one that says what could not be written, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is not None and str(error.filename) != str(path):
            reason = f"{reason}, {error.filename}"
        raise OSError(f"{what} cannot be written to {path}: {reason}.") from error
