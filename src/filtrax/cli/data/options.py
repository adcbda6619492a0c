"""Options shared by the verbs for data, and their implementation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from filtrax.cli.progress import counting

SETTINGS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the task, as in num_test=50. Repeatable.",
        show_default=False,
    ),
]
PREVIEW = Annotated[
    Path | None,
    typer.Option(
        help="Draw some of it: a contact sheet (.png) or an animation (.gif).",
        metavar="FILE",
        show_default=False,
    ),
]
EXPORT = Annotated[
    Path | None,
    typer.Option(help="Write images as PNG files, and states.", metavar="DIR", show_default=False),
]

Task = TypeVar("Task")
Progress = Callable[[int, int], None]
"""Callback that gets the number of finished sequences and their total."""


def read_task(kind: type[Task], settings: Sequence[str] | None) -> Task:
    """Builds a task from assignments like "num_test=50" or "task.num_test=50"."""
    from filtrax.lab.config import read

    return read(kind, None, [text.removeprefix("task.") for text in settings or ()])


def check_preview(path: Path | None) -> None:
    """Raises `ValueError` unless the path of a preview, if any, ends in .png or .gif."""
    if path is not None and path.suffix.lower() not in (".png", ".gif"):
        raise ValueError(f"A preview must be a .png or .gif file, got {path}.")


def draw_preview(
    path: Path | None, *, sheet: Callable[[Path], None], animation: Callable[[Path], None]
) -> None:
    """Draws a contact sheet (.png) or an animation (any other suffix), if a path is given."""
    if path is None:
        return
    draw = sheet if path.suffix.lower() == ".png" else animation
    draw(path)
    typer.echo(f"Preview: {path}")


def write_files(folder: Path | None, write: Callable[[Path, Progress], None]) -> None:
    """Writes sequences into the folder, if one is given, with a progress bar."""
    if folder is None:
        return
    with counting("Sequences") as progress:
        write(folder, progress)
    typer.echo(f"Files: {folder}")
