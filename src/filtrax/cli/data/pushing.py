"""`filtrax data pushing`: simulated and recorded pushes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from filtrax.cli.data.drives import check_preview
from filtrax.cli.options import SPLIT
from filtrax.cli.progress import counting

if TYPE_CHECKING:
    from filtrax.tasks.pushing.sequences import Sequences
    from filtrax.tasks.pushing.validation import Validation


def pushing(
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of the task, as in num_test=50. Repeatable.",
            show_default=False,
        ),
    ] = None,
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
    preview: Annotated[
        Path | None,
        typer.Option(
            help="Draw some sequences: a contact sheet (.png) or an animation (.gif).",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write images as PNG files, and states.", metavar="DIR", show_default=False
        ),
    ] = None,
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
        _validate(validate, seed, residual)
        return
    from filtrax.experiments.config import read
    from filtrax.tasks.pushing import PushingTask

    check_preview(preview)
    # Also as they are written for a whole experiment.
    task = read(PushingTask, None, [text.removeprefix("task.") for text in overrides or ()])
    if trial:
        sequences, data = _recorded(trial)
        title = f"{task.kind}, recorded"
    else:
        sequences, data = task.sequences(split), task.data(split)
        title = f"{task.kind}, {split}"
    _console().print(_summary(title, sequences))
    if preview is not None:
        from filtrax.tasks.pushing import export as files

        draw = files.contact_sheet if preview.suffix.lower() == ".png" else files.animation
        draw(task, data, preview)
        typer.echo(f"Preview: {preview}")
    if export is not None:
        _export(task, data, export, {"recorded": [*map(str, trial)]} if trial else {"split": split})


def _export(task: Any, data: Any, folder: Path, source: dict[str, Any]) -> None:
    import dataclasses

    from filtrax.tasks.pushing import export as files

    description = source | {"parameters": dataclasses.asdict(task)}
    with counting("Sequences") as progress:
        files.export(task, data, folder, description, progress=progress)
    typer.echo(f"Files: {folder}")


def _recorded(paths: list[Path]) -> tuple["Sequences", Any]:
    """One sequence of trials, and how it is looked at."""
    import jax
    import jax.random as jr

    from filtrax.checks import check_known
    from filtrax.tasks.pushing.disturbances import real_friction
    from filtrax.tasks.pushing.recordings.sequences import recorded
    from filtrax.tasks.pushing.recordings.trials import read_trial, resampled
    from filtrax.tasks.pushing.render import random_arm, random_look
    from filtrax.tasks.pushing.shapes import NAMES
    from filtrax.tasks.pushing.task import trajectories

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
    sequences = recorded(name, [resampled(trial) for trial in trials], friction)
    scene = random_look(key=jr.key(0)), random_arm(key=jr.key(1))
    look, arm = jax.tree.map(lambda leaf: leaf[None], scene)
    return sequences, trajectories(sequences, look, arm)


def _summary(title: str, sequences: "Sequences") -> Table:
    """What happens to each object."""
    import numpy as np

    from filtrax.tasks.pushing.shapes import NAMES

    count, moments = sequences.touches.shape
    number = "one sequence" if count == 1 else f"{count} sequences"
    title = f"{title}: {number} of {moments - 1} steps"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("object")
    for column in (
        *("sequences", "steps of pushes", "in contact", "motion in contact, median"),
        *("90th percentile", "l (mm²/100)", "α"),
    ):
        table.add_column(column, justify="right")
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


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)  # A file is no narrow window.


def _validate(place: Path, seed: int, residual: bool) -> None:
    """Prints errors of models on real pushes.

    One half of the pushes with each object is fitted, the other predicted.
    """
    from filtrax.tasks.pushing.residual import ResidualTraining
    from filtrax.tasks.pushing.validation import QUANTILES
    from filtrax.tasks.pushing.validation import validate as compare

    console = _console()
    with Console(stderr=True).status("Reading") as status:
        found = compare(
            place,
            seed=seed,
            residual=ResidualTraining() if residual else None,
            progress=status.update,
        )
    typer.echo(
        f"{len(found.pushes)} pushes were predicted that nothing was fitted to: errors of the end, "
        "in mm / degrees."
    )
    for quantile in QUANTILES:
        console.print(_errors(found, quantile))
    console.print(_fitted(found))
    console.print(_simulator(found))


def _errors(found: "Validation", quantile: int) -> Table:
    """A row per part of the pushes and a column per model."""
    import numpy as np

    title = "Median" if quantile == 50 else f"{quantile}th percentile"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("pushes")
    for row in found.rows:
        table.add_column(row.name, justify="right")
    for name, chosen in found.parts().items():
        cells = [
            " / ".join(
                f"{np.percentile(errors[chosen], quantile):.2f}" if chosen.any() else "–"
                for errors in (row.translation, row.rotation)
            )
            for row in found.rows
        ]
        table.add_row(f"{name} ({chosen.sum()})", *cells)
    return table


def _fitted(found: "Validation") -> Table:
    """What was fitted to the pushes with each object."""
    import numpy as np

    *_, (name, calibration) = found.calibrations.items()
    title = f"Fitted, {name} (mm and degrees)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("object")
    for column in ("even c", "c", "μ", "tip x, y", "turn", "centre x, y"):
        table.add_column(column, justify="right")
    even = np.asarray(found.calibrations["even pressure"].friction.length)
    friction, registration = calibration.friction, np.asarray(calibration.registration)
    for index, name in enumerate(found.names):
        x, y, turn = registration[index]
        centre = np.asarray(friction.centre[index])
        table.add_row(
            name,
            f"{even[index]:.1f}",
            f"{friction.length[index]:.1f}",
            f"{friction.coefficient[index]:.2f}",
            f"{x:.2f}, {y:.2f}",
            f"{turn:.2f}",
            f"{centre[0]:.1f}, {centre[1]:.1f}",
        )
    return table


def _simulator(found: "Validation") -> Table:
    """Whether simulated pushes are as uncertain as real ones."""
    from filtrax.tasks.pushing.agreement import QUANTILES
    from filtrax.tasks.pushing.validation import SIMULATED

    title = f"Errors of {SIMULATED} on all real pushes and on simulated sequences (mm / degrees)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("object")
    shown = (QUANTILES.index(50), QUANTILES.index(90))
    for quantile in ("median", "90th percentile"):
        for column in (f"{quantile}, real", "simulated", "ratio"):
            table.add_column(column, justify="right")
    for row in found.simulator:
        cells = [
            " / ".join(f"{number:.2f}" for number in numbers[:, index])
            for index in shown
            for numbers in (row.real, row.simulated, row.ratios)
        ]
        table.add_row(f"{row.name} ({row.num_pushes})", *cells)
    return table
