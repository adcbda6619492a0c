"""`filtrax data pushing`: recorded pushes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from filtrax.tasks.pushing.validation import Validation


def pushing(
    validate: Annotated[
        Path,
        typer.Option(
            help="A table of real pushes (push_endpoints*.csv or .csv.gz), or a folder with one.",
            metavar="DIR",
            show_default=False,
        ),
    ],
    seed: Annotated[
        int, typer.Option(min=0, help="Another seed, other halves to fit and to test.")
    ] = 0,
    residual: Annotated[
        bool,
        typer.Option("--residual", help="Also train a correction of the physics; takes minutes."),
    ] = False,
) -> None:
    """Compare the physics of pushing with real pushes.

    One half of the pushes with each object is fitted, the other predicted.

    Example: filtrax data pushing --validate mit_push
    """
    from filtrax.tasks.pushing.residual import ResidualTraining
    from filtrax.tasks.pushing.validation import QUANTILES
    from filtrax.tasks.pushing.validation import validate as compare

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # A file is no narrow window.
    with Console(stderr=True).status("Reading") as status:
        found = compare(
            validate,
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
