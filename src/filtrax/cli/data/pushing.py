"""`filtrax data pushing`: simulated and recorded pushes."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from filtrax.cli.data.options import (
    EXPORT,
    PREVIEW,
    SETTINGS,
    check_preview,
    draw_preview,
    read_task,
    write_files,
)
from filtrax.cli.data.pushing_validation import print_validation
from filtrax.cli.data.tables import table_of_numbers
from filtrax.cli.options import SPLIT
from filtrax.cli.tables import console

if TYPE_CHECKING:
    from filtrax.lab.tasks.pushing.sequences import Sequences
    from filtrax.trajectory import Trajectory


def pushing(
    overrides: SETTINGS = None,
    split: SPLIT = "test",
    trial: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A recorded push (.json or .h5), in place of simulated ones. Repeatable: trials "
            "with one object become one sequence.",
            show_default=False,
        ),
    ] = None,
    preview: PREVIEW = None,
    export: EXPORT = None,
    validate: Annotated[
        Path | None,
        typer.Option(
            help="Compare physics and simulator with real pushes: a table of them "
            "(push_endpoints*.csv or .csv.gz), or a folder with one.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="For --validate: another seed, other halves to fit and test.")
    ] = 0,
    residual: Annotated[
        bool,
        typer.Option(
            "--residual",
            help="For --validate: also train a correction of the physics; takes minutes.",
        ),
    ] = False,
) -> None:
    """Describe pushes of objects on a table, or compare their physics with real ones.

    Example: filtrax data pushing --set num_test=11 --preview pushes.gif
    """
    if validate is not None:
        print_validation(validate, seed=seed, residual=residual)
        return
    from filtrax.lab.tasks.pushing import PushingTask
    from filtrax.lab.tasks.pushing import export as files

    check_preview(preview)
    task = read_task(PushingTask, overrides)
    sequences = _recorded(trial) if trial else task.sequences(split)
    console().print(_summary(f"{task.kind}, {'recorded' if trial else split}", sequences))
    if preview is None and export is None:
        return
    data = _in_a_scene(sequences) if trial else task.as_seen(split, sequences)
    draw_preview(
        preview,
        sheet=lambda path: files.contact_sheet(task, data, path),
        animation=lambda path: files.animation(task, data, path),
    )
    source = {"recorded": [*map(str, trial)]} if trial else {"split": split}
    description = source | {"parameters": dataclasses.asdict(task)}
    write_files(
        export,
        lambda folder, progress: files.export(task, data, folder, description, progress=progress),
    )


def _recorded(paths: list[Path]) -> "Sequences":
    """Joins recorded trials with one object into one sequence."""
    from filtrax._checks import check_known
    from filtrax.lab.tasks.pushing.disturbances import real_friction
    from filtrax.lab.tasks.pushing.recordings.sequences import recorded
    from filtrax.lab.tasks.pushing.recordings.trials import read_trial, resampled
    from filtrax.lab.tasks.pushing.shapes import NAMES

    trials = [read_trial(path) for path in paths]
    objects = {trial.settings.get("shape", "none") for trial in trials}
    if len(objects) != 1:
        raise ValueError(
            f"Trials of one sequence must have one object, got {', '.join(sorted(objects))}."
        )
    (name,) = objects
    check_known(
        "The name of a trial must tell its object, as in shape=hex", objects - {*NAMES}, NAMES
    )
    friction, _ = real_friction(name)
    return recorded(name, [resampled(trial) for trial in trials], friction)


def _in_a_scene(sequences: "Sequences") -> "Trajectory":
    """Adds random colours, light and an arm, which recordings lack, so that it can be drawn."""
    import jax
    import jax.random as jr

    from filtrax.lab.tasks.pushing.render import random_arm, random_look
    from filtrax.lab.tasks.pushing.task import trajectories

    scene = random_look(key=jr.key(0)), random_arm(key=jr.key(1))
    look, arm = jax.tree.map(lambda leaf: leaf[None], scene)
    return trajectories(sequences, look, arm)


def _summary(title: str, sequences: "Sequences") -> Table:
    """Summarizes contact, motion and friction in a table with one row per object."""
    import numpy as np

    from filtrax.lab.tasks.pushing.shapes import NAMES

    count, moments = sequences.touches.shape
    how_many = "one sequence" if count == 1 else f"{count} sequences"
    table = table_of_numbers(
        f"{title}: {how_many} of {moments - 1} steps",
        "object",
        *("sequences", "steps of pushes", "in contact", "motion in contact, median"),
        *("90th percentile", "l (cm²)", "α"),
    )
    poses = np.asarray(sequences.poses, np.float64)
    steps = np.diff(poses, axis=1)
    for number in np.unique(np.asarray(sequences.shape)):
        own = np.asarray(sequences.shape) == number
        touches, pushes = (
            np.asarray(which)[own, :-1] for which in (sequences.touches, sequences.pushes)
        )
        moved = steps[own][touches]
        motion = np.stack([np.hypot(moved[:, 0], moved[:, 1]), np.abs(moved[:, 2])])
        table.add_row(
            NAMES[number],
            str(own.sum()),
            f"{pushes.mean():.0%}",
            f"{touches.mean():.0%}",
            *(_motion(motion, quantile) for quantile in (50, 90)),
            _range(np.asarray(sequences.friction)[own], ""),
            _range(np.asarray(sequences.half_angle)[own], "°"),
        )
    return table


def _motion(motion: Any, quantile: int) -> str:
    import numpy as np

    if motion.size == 0:
        return "–"
    distance, angle = np.percentile(motion, quantile, axis=1)
    return f"{distance:.1f} mm / {angle:.1f}°"


def _range(values: Any, unit: str) -> str:
    return f"{values.min():.1f} to {values.max():.1f}{unit}"
