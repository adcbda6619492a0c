"""Options, table and previews shared by the verbs for drives."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from filtrax.cli.data.options import draw_preview
from filtrax.cli.tables import console

if TYPE_CHECKING:
    from filtrax.lab.tasks.kitti.recordings.drives import Drive

SEQUENCES = Annotated[
    list[str] | None,
    typer.Option(
        "--sequence",
        metavar="NN",
        help="Number of a drive, as in 00. Repeatable; all without it.",
        show_default=False,
    ),
]
SIZE = Annotated[str, typer.Option(metavar="HxW", help="Height and width of images in pixels.")]

NUM_ANIMATED = 4
"""The largest number of drives side by side in an animation."""


def drive_numbers(given: Sequence[str] | None) -> list[str]:
    """Returns drive numbers with two digits, as in KITTI's file names, without duplicates."""
    return list(dict.fromkeys(text.zfill(2) for text in given or ()))


def image_size(text: str) -> tuple[int, int]:
    """Parses height and width in pixels, as in 50x150."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise ValueError(f"A size must be height x width in pixels, as in 50x150, got {text!r}.")
    return int(match[1]), int(match[2])


def preview_drives(drives: Sequence["Drive"], path: Path | None) -> None:
    """Draws the drives into a file, if a path is given."""
    from filtrax.lab.tasks.kitti.recordings import preview

    draw_preview(
        path,
        sheet=lambda path: preview.contact_sheet(drives, path),
        animation=lambda path: preview.animation(drives[:NUM_ANIMATED], path),
    )


def print_drives(title: str, drives: Sequence["Drive"], sources: Sequence[str]) -> None:
    """Prints one row per drive; `sources` name where the time stamps of each come from."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("drive", "frames", "cameras", "size", "length", "speed", "heading rate", "times"):
        table.add_column(name, justify="left" if name in ("cameras", "times") else "right")
    for drive, source in zip(drives, sources, strict=True):
        table.add_row(*_row(drive), source)
    console().print(Text(title, style="bold"), table)


def _row(drive: "Drive") -> list[str]:
    import numpy as np

    from filtrax.lab.tasks.kitti.motion import states

    height, width = drive.image_size
    kind = "gray" if drive.num_channels == 1 else "colour"
    speeds, rates = states(drive.poses, drive.times)[:-1, 3:].T
    return [
        drive.name,
        str(drive.num_frames),
        f"{', '.join(drive.cameras)} ({kind})",
        f"{height} x {width}",
        f"{drive.length:.0f} m",
        _range(np.asarray(speeds), "m/s"),
        _range(np.asarray(rates), "°/s"),
    ]


def _range(values, unit: str) -> str:
    return f"{values.min():.1f} to {values.max():.1f} {unit}" if len(values) else "–"
