"""Exports data of the disc task: images and labels for other programs, and previews.

Training needs no files, because data are drawn from a seed.
"""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

import filtrax
from filtrax._checks import check_whole
from filtrax.lab.tasks.base import View
from filtrax.lab.tasks.disc.images import count_visible, draw_frames
from filtrax.lab.tasks.disc.physics import CORRELATIONS, covariances
from filtrax.lab.tasks.disc.scenes import Scenes
from filtrax.lab.tasks.disc.task import DiscTask
from filtrax.lab.tasks.pictures import make_empty, save, stack, writing

Progress = Callable[[int, int], None]
"""Callback that gets the number of finished sequences and their total."""

Frames = UInt8[np.ndarray, "times height width 3"]

LABELS = ("x", "y", "vx", "vy", "visible", "std_x", "std_y", "std_vx", "std_vy")

LEGEND = {
    "step": "0 is the start, where no step has led to and which a filter is not shown",
    "x, y, vx, vy": "state of the red disc in pixels of a canvas of 120 pixels and per step, "
    "from the centre to the right and down",
    "visible": "red pixels on the canvas of 120 pixels, whatever the size of the images",
    "std_x, std_y, std_vx, std_vy": "standard deviations of the process noise of the step that "
    "led here; their correlations are under process_correlations",
}


def export(
    task: DiscTask, split: str, folder: str | Path, *, progress: Progress | None = None
) -> None:
    """Writes a split as PNG images and tables of labels.

        dataset.json                 the parameters of the task, and a legend of the columns
        sequence_0000/states.csv     one line per time
        sequence_0000/frame_00.png   the image at that time, in the image size of the task

    Times include the start, so there is one more image than there are steps. `dataset.json` is
    written last, to mark a complete export. The folder must be new or empty.
    """
    folder, total = Path(folder), task.num_sequences(split)
    with writing("The data set", folder):
        make_empty(folder)
        scenes = task.scenes(split)
        tables = _labels(task, scenes)
        digits = max(4, len(str(total - 1)))
        for index in range(total):
            _write_sequence(
                folder / f"sequence_{index:0{digits}}", _frames(task, scenes, index), tables[index]
            )
            if progress is not None:
                progress(index + 1, total)
        (folder / "dataset.json").write_text(json.dumps(_description(task, split), indent=2) + "\n")


def contact_sheet(
    task: DiscTask,
    path: str | Path,
    split: str = "test",
    *,
    num_sequences: int = 6,
    num_images: int = 8,
) -> None:
    """Writes a PNG with a row of images for each of the first sequences, from start to end."""
    check_whole("num_images", num_images, 1)
    scenes = task.scenes(split, num_sequences)
    times = np.unique(np.linspace(0, task.num_steps, num_images).round().astype(int))
    rows = [_frames(task, scenes, index)[times] for index in range(num_sequences)]
    sheet = stack([stack(row, axis=1) for row in rows], axis=0)
    save(path, [sheet], "PNG")


def animation(
    task: DiscTask,
    path: str | Path,
    split: str = "test",
    *,
    num_sequences: int = 4,
    zoom: int = 2,
    milliseconds: int = 120,
) -> None:
    """Writes an animated GIF of the first sequences side by side; a cross marks the red disc."""
    check_whole("zoom", zoom, 1)
    check_whole("milliseconds", milliseconds, 1)
    scenes = task.scenes(split, num_sequences)
    view, states = task.view(), np.asarray(scenes.states, float)
    marked = [
        [
            _mark(frame, view, state, zoom)
            for frame, state in zip(frames, states[index], strict=True)
        ]
        for index, frames in enumerate(_frames(task, scenes, i) for i in range(num_sequences))
    ]
    pictures = [stack(now, axis=1) for now in zip(*marked, strict=True)]
    save(path, pictures, "GIF", duration=milliseconds, loop=0)


def _frames(task: DiscTask, scenes: Scenes, index: int) -> Frames:
    """Draws the images of one sequence, including that of the start."""
    radii, colors = scenes.radii[index], scenes.colors[index]
    return np.asarray(draw_frames(scenes.centres[index], radii, colors, task.image_size))


def _labels(task: DiscTask, scenes: Scenes) -> list[list[list[str]]]:
    """Returns the columns `LABELS` for each sequence and time as text."""
    states = scenes.states
    visible = count_visible(scenes.centres, scenes.radii, scenes.colors)
    true_covariances = np.asarray(covariances(task.process_noise, scenes.states[:, :-1]))
    stds = np.sqrt(np.diagonal(true_covariances, axis1=-2, axis2=-1))
    # `str` of a float32 is the shortest text that restores it exactly.
    return [
        [
            [str(number) for number in (*state, count, *std)]
            for state, count, std in zip(
                states[index], visible[index], [[""] * 4, *stds[index]], strict=True
            )
        ]
        for index in range(len(states))
    ]


def _write_sequence(folder: Path, frames: Frames, labels: Iterable[list[str]]) -> None:
    folder.mkdir()
    with (folder / "states.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("step", *LABELS))
        table.writerows((step, *row) for step, row in enumerate(labels))
    digits = max(2, len(str(len(frames) - 1)))
    for step, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"frame_{step:0{digits}}.png", format="PNG")


def _description(task: DiscTask, split: str) -> dict:
    correlations = CORRELATIONS if task.noise == "correlated" else np.eye(4).tolist()
    return {
        "task": task.kind,
        "split": split,
        "num_sequences": task.num_sequences(split),
        "parameters": dataclasses.asdict(task),
        "process_correlations": correlations,
        "columns": LEGEND,
        "filtrax": filtrax.__version__,
    }


def _mark(
    frame: UInt8[np.ndarray, "h w 3"], view: View, state: Float[np.ndarray, " x"], zoom: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Magnifies an image and draws a cross at the position of a state."""
    height, width, _ = frame.shape
    image = Image.fromarray(frame).resize((zoom * width, zoom * height), Image.Resampling.NEAREST)
    place = zoom * (view.matrix @ state + view.offset + 0.5) - 0.5
    column, row = place.round().astype(int).tolist()
    arm, draw = 4 * zoom, ImageDraw.Draw(image)
    for color, line_width in (("black", 3), ("white", 1)):  # visible on any background
        draw.line((column - arm, row, column + arm, row), color, line_width)
        draw.line((column, row - arm, column, row + arm), color, line_width)
    return np.asarray(image)
