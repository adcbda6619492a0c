"""`filtrax data streets`: generated drives in KITTI's layout."""

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

NUM_FRAMES = 1000
"""Default length of a drive. Copied from the generator, which is slow to import; tested."""


def streets(
    out: Annotated[
        Path, typer.Argument(help="Folder to write to.", metavar="OUT", show_default=False)
    ],
    poses: Annotated[
        Path | None,
        typer.Option(
            help="Drive along the poses in this folder (poses/NN.txt); without it, along paths of "
            "a driver model.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    sequence: SEQUENCES = None,
    frames: Annotated[
        int | None,
        typer.Option(
            min=2,
            help=f"Frames of each drive; without it those of the poses, or {NUM_FRAMES}.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    size: SIZE = "50x150",
    cameras: Annotated[
        str, typer.Option(help="Cameras, with a comma between them.", metavar="NAMES")
    ] = "image_2,image_3",
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other streets.")] = 0,
    preview: PREVIEW = None,
) -> None:
    """Write drives through generated streets, as KITTI's folders have them.

    Without `--poses` there are eleven drives, and 01 is the one on a highway.

    Example: filtrax data streets generated --sequence 00 --frames 300 --preview streets.gif
    """
    from filtrax.lab.tasks.kitti import streets as generator
    from filtrax.lab.tasks.kitti.recordings.files import read_drive, write_drive

    check_preview(preview)
    height_and_width, names_of_cameras = image_size(size), _cameras(cameras)
    names = _names(out, poses, sequence)
    drives = []
    for name in names:
        with counting(f"Drive {name}, drawn") as progress:
            drive = generator.street_drive(
                name,
                poses=poses or "",
                num_frames=frames or 0,
                image_size=height_and_width,
                cameras=names_of_cameras,
                seed=seed,
                progress=progress,
            )
        with counting(f"Drive {name}, written") as progress:
            write_drive(drive, out, progress=progress)
        # Read the drive back, so that its images are mapped from disk, as in training.
        drives.append(read_drive(out, name, image_size=height_and_width, cameras=names_of_cameras))
    source = "driver model" if poses is None else str(poses)
    print_drives(f"{out}, generated along {source}", drives, ["file"] * len(drives))
    preview_drives(drives, preview)


def _names(out: Path, poses: Path | None, sequence: list[str] | None) -> list[str]:
    """Returns the drives to write; raises if one is unknown or exists already."""
    from filtrax._checks import check_known
    from filtrax.lab.tasks.kitti.recordings.files import check_absent
    from filtrax.lab.tasks.kitti.streets import street_names

    known = street_names(poses or "")
    if not known:
        raise FileNotFoundError(
            f"A folder of poses must have files poses/NN.txt, but there are none in {poses}."
        )
    names = drive_numbers(sequence) or list(known)
    unknown = [name for name in names if name not in known]
    check_known("A drive must be one of those to be driven", unknown, known)
    for name in names:
        check_absent(out, name)
    return names


def _cameras(text: str) -> tuple[str, ...]:
    from filtrax._checks import check_known
    from filtrax.lab.tasks.kitti.recordings.layout import CAMERAS

    names = tuple(dict.fromkeys(text.replace(" ", "").split(",")))
    check_known(
        "`--cameras` must be KITTI's names", [n for n in names if n not in CAMERAS], CAMERAS
    )
    return names
