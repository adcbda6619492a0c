"""Generated pages and pictures: writing them, and the check that they follow from their records."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

from filtrax.lab.files import write_text
from filtrax.lab.reproduction.display.drawing import Picture, numbers_in

Contents = Mapping[Path, str | Picture]
"""The contents of files: pages as text, and pictures."""


def write_files(files: Contents, existing: Iterable[Path]) -> None:
    """Writes files that are not current, and removes existing ones that are not among them."""
    for path in {*existing} - {*files}:
        path.unlink()
    for path, content in files.items():
        if not _is_current(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, content.svg() if isinstance(content, Picture) else content)


def are_current(files: Contents, existing: Iterable[Path]) -> bool:
    """Returns True if all files are current, and no other ones exist."""
    return {*existing} <= {*files} and all(itertools.starmap(_is_current, files.items()))


def _is_current(path: Path, content: str | Picture) -> bool:
    """Compares a file: a page by its text, and a picture by the numbers that it carries."""
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return text == content if isinstance(content, str) else numbers_in(text) == content.numbers()
