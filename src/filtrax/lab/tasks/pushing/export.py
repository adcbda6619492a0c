"""Exports sequences of pushes: images and labels for other programs, and previews.

Training needs no files, because data are drawn from a seed.
"""

import csv
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

import filtrax
from filtrax._checks import check_whole
from filtrax.lab.tasks.pictures import make_empty, save, stack, writing
from filtrax.lab.tasks.pushing.shapes import NAMES
from filtrax.lab.tasks.pushing.sketches import projection, sketch
from filtrax.lab.tasks.pushing.space import STATE
from filtrax.lab.tasks.pushing.task import PushingTask
from filtrax.trajectory import Trajectory

Progress = Callable[[int, int], None]
"""Callback that gets the number of finished sequences and their total."""

LABELS = (*STATE, "orientation", "tip_x", "tip_y", "next_tip_x", "next_tip_y")

LEGEND = {
    "moment": "every 0.2 s; 0 is the start, where a filter is told the state",
    "x, y": "position of the object's centroid on the table in mm",
    "theta": "degrees since moment 0, up to turns after which the object looks the same",
    "l": "c²/100 in mm², c being the largest moment of the table's friction by its largest force",
    "alpha": "atan μ of pusher and object in degrees",
    "rx, ry": "where the coming step touches the object in mm; the pusher without contact",
    "nx, ny": "the inward normal there; zero without contact",
    "s": "whether the coming step touches the object",
    "orientation": "of the object in degrees",
    "tip_x, tip_y, next_tip_x, next_tip_y": "the pusher in mm, now and at the next moment",
}

MILLISECONDS = 200
"""The time between two images of an animation, for 5 Hz."""


def export(
    task: PushingTask,
    data: Trajectory,
    folder: str | Path,
    description: Mapping[str, Any],
    *,
    progress: Progress | None = None,
) -> None:
    """Writes sequences as PNG images and tables of labels.

        dataset.json                 the description, and a legend of the columns
        sequence_0000/object.txt     the name of the object
        sequence_0000/states.csv     one line per moment
        sequence_0000/frame_00.png   the image of that moment

    `dataset.json` is written last, to mark a complete export. The folder must be new or empty.
    """
    folder, total = Path(folder), data.initial.shape[0]
    with writing("The data set", folder):
        make_empty(folder)
        digits = max(4, len(str(total - 1)))
        for index in range(total):
            _write_sequence(task, _moments(data, index), folder / f"sequence_{index:0{digits}}")
            if progress is not None:
                progress(index + 1, total)
        content = {"task": task.kind, "num_sequences": total, **description, "columns": LEGEND}
        content["filtrax"] = filtrax.__version__
        (folder / "dataset.json").write_text(json.dumps(content, indent=2) + "\n")


def contact_sheet(
    task: PushingTask,
    data: Trajectory,
    path: str | Path,
    *,
    num_sequences: int = 6,
    num_images: int = 6,
) -> None:
    """Writes a PNG with a row of images for each of the first sequences, from start to end.

    A line marks contact point and normal of the coming step.
    """
    check_whole("num_images", num_images, 1)
    rows = []
    for index in range(min(num_sequences, data.initial.shape[0])):
        moments = _moments(data, index)
        times = np.linspace(0, moments.num_steps - 1, num_images).round().astype(int)
        rows.append(stack(_marked(task, moments)[np.unique(times)], axis=1))
    save(path, [stack(rows, axis=0)], "PNG")


def animation(
    task: PushingTask, data: Trajectory, path: str | Path, *, num_sequences: int = 4
) -> None:
    """Writes an animated GIF of the first sequences side by side, in real time."""
    count = min(num_sequences, data.initial.shape[0])
    marked = [_marked(task, _moments(data, index)) for index in range(count)]
    pictures = [stack(now, axis=1) for now in zip(*marked, strict=True)]
    save(path, pictures, "GIF", duration=MILLISECONDS, loop=0)


def _moments(data: Trajectory, index: int) -> Trajectory:
    """Returns one sequence with the initial moment as an additional first step."""
    one = jax.tree.map(lambda leaf: leaf[index], data)
    first = one.context["first"] | {
        "next_tip": one.context["first"]["tip"] + one.inputs[0],
        "contact": one.initial[5:],
    }
    joined = jax.tree.map(
        lambda start, rest: jnp.concatenate([start[None], rest]), first, one.readings
    )
    states = jnp.concatenate([one.initial[None], one.states])
    inputs = jnp.concatenate([jnp.zeros_like(one.inputs[:1]), one.inputs])
    return dataclasses.replace(one, readings=joined, states=states, inputs=inputs)


def _marked(task: PushingTask, moments: Trajectory) -> UInt8[np.ndarray, "moments height width 3"]:
    """Renders images with a line from the contact point along the normal."""
    frames, to_pixels = task.frames(moments), projection(task.camera)
    arrows = sketch(moments, np.asarray(moments.states)).arrows[:, 0]
    touches = np.asarray(moments.states)[:, STATE.index("s")] >= 0.5
    marked = [
        _with_line(frame, _pixels(to_pixels, arrow)) if touch else frame
        for frame, arrow, touch in zip(frames, arrows, touches, strict=True)
    ]
    return np.stack(marked)


def _pixels(
    projection: Float[np.ndarray, "3 3"], places: Float[np.ndarray, "n 2"]
) -> Float[np.ndarray, "n 2"]:
    scaled = np.column_stack([places, np.ones(len(places))]) @ projection.T
    return scaled[:, :2] / scaled[:, 2:]


def _with_line(
    frame: UInt8[np.ndarray, "h w 3"], ends: Float[np.ndarray, "2 2"]
) -> UInt8[np.ndarray, "h w 3"]:
    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image)
    (column, row), _ = ends
    draw.line([(float(x), float(y)) for x, y in ends], (255, 40, 40), 1)
    draw.ellipse((column - 2, row - 2, column + 2, row + 2), (255, 40, 40))
    return np.asarray(image)


def _write_sequence(task: PushingTask, moments: Trajectory, folder: Path) -> None:
    folder.mkdir()
    (folder / "object.txt").write_text(NAMES[int(moments.context["shape"])] + "\n")
    readings, states = moments.readings, np.asarray(moments.states)
    orientations = np.asarray(readings["pose"])[:, 2:]
    parts = (states, orientations, readings["tip"], readings["next_tip"])
    table = np.concatenate([np.asarray(part, np.float32) for part in parts], 1)
    with (folder / "states.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("moment", *LABELS))
        # `str` of a float32 is the shortest text that restores it exactly.
        writer.writerows((moment, *map(str, row)) for moment, row in enumerate(table))
    digits = max(2, len(str(len(table) - 1)))
    for moment, frame in enumerate(task.frames(moments)):
        Image.fromarray(frame).save(folder / f"frame_{moment:0{digits}}.png", format="PNG")
