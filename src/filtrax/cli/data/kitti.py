"""`filtrax data kitti`: recorded drives."""

from pathlib import Path
from typing import Annotated

import typer

from filtrax.cli.data.drives import (
    SEQUENCES,
    SIZE,
    drive_numbers,
    image_size,
    preview_drives,
    print_drives,
)
from filtrax.cli.data.options import PREVIEW, check_preview
from filtrax.cli.progress import counting


def kitti(
    root: Annotated[
        Path,
        typer.Option(
            help="Folder with `poses` and `sequences`, as KITTI odometry is downloaded.",
            metavar="DIR",
            show_default=False,
        ),
    ],
    sequence: SEQUENCES = None,
    size: SIZE = "50x150",
    preview: PREVIEW = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Where smaller images are kept; in the user's cache without it.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Convert KITTI's drives once, and describe them.

    Example: filtrax data kitti --root kitti --sequence 00 --preview drives.png
    """
    from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
    from filtrax.lab.tasks.kitti.recordings.files import (
        drive_names,
        has_times,
        pose_names,
        read_drive,
    )

    check_preview(preview)
    height_and_width = image_size(size)
    drives = []
    names = drive_numbers(sequence) or drive_names(root)
    for name in names:
        with counting(f"Drive {name}") as progress:
            drives.append(
                read_drive(root, name, image_size=height_and_width, cache=cache, progress=progress)
            )
    timed = [has_times(root, drive.name) for drive in drives]
    print_drives(str(root), drives, ["file" if known else "mean step" for known in timed])
    if not all(timed):
        typer.echo(f"Without a times file the mean step of {MEAN_STEP} s is taken.")
    left_out = [] if sequence else sorted({*pose_names(root)} - {*names})
    if left_out:
        typer.echo(f"Poses without images, left out: {', '.join(left_out)}.")
    kept = {Path(images.filename).parent for drive in drives for images in drive.cameras.values()}
    typer.echo(f"Images are kept in: {', '.join(sorted(map(str, kept)))}")
    preview_drives(drives, preview)
