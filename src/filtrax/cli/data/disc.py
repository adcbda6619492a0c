"""`filtrax data disc`: the data of the disc task."""

from typing import TYPE_CHECKING, Any, cast

import typer

from filtrax.cli.data.options import (
    EXPORT,
    PREVIEW,
    SETTINGS,
    check_preview,
    draw_preview,
    read_task,
    write_files,
)
from filtrax.cli.options import SPLIT

if TYPE_CHECKING:
    from filtrax.lab.tasks.disc import DiscTask


def disc(
    overrides: SETTINGS = None,
    split: SPLIT = "test",
    preview: PREVIEW = None,
    export: EXPORT = None,
) -> None:
    """Describe the disc-tracking data: a red disc among others that hide it.

    Example: filtrax data disc --set num_distractors=5 --preview discs.gif
    """
    from filtrax.lab.tasks.disc import DiscTask
    from filtrax.lab.tasks.disc import export as files

    task = read_task(DiscTask, overrides)
    check_preview(preview)
    typer.echo(_summary(task, split))
    available = task.num_sequences(split)
    draw_preview(
        preview,
        sheet=lambda path: files.contact_sheet(task, path, split, num_sequences=min(6, available)),
        animation=lambda path: files.animation(task, path, split, num_sequences=min(4, available)),
    )
    write_files(
        export, lambda folder, progress: files.export(task, split, folder, progress=progress)
    )


def _summary(task: "DiscTask", split: str) -> str:
    """Describes the size of a split, and how often the target is visible."""
    import jax
    import numpy as np

    data = task.data(split)
    states = np.asarray(cast(Any, data.states))
    num_sequences, num_steps, _ = states.shape
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(data))
    height, width, _ = task.frames(jax.tree.map(lambda leaf: leaf[0], data)).shape[1:]
    drawn = num_sequences * num_steps * height * width * 3
    lines = [
        f"{task.kind}, {split}: {num_sequences} sequences of {num_steps} steps",
        f"stored as {_size(stored)} of numbers, seen as {_size(drawn)} of "
        f"{height} x {width} images",
    ]
    visible, view = task.details(data).visible, task.view()
    if visible is not None and view is not None:
        visible = np.asarray(visible)
        pixels = states @ view.matrix.T + view.offset
        inside = ((pixels > -0.5) & (pixels < [width - 0.5, height - 0.5])).all(-1)
        shares = {
            "fully visible": visible == visible.max(),
            "partly visible": (visible > 0) & (visible < visible.max()),
            "hidden by others": (visible == 0) & inside,
            "out of the image": (visible == 0) & ~inside,
        }
        parts = [f"{np.mean(share):.1%} {name}" for name, share in shares.items()]
        lines.append(f"the target in these images: {', '.join(parts)}")
    return "\n".join(lines)


def _size(num_bytes: int) -> str:
    scale = 1e9 if num_bytes >= 1e9 else 1e6 if num_bytes >= 1e6 else 1e3
    return f"{num_bytes / scale:.1f} {({1e3: 'kB', 1e6: 'MB', 1e9: 'GB'})[scale]}"
