"""`filtrax data pushing --validate`: compare physics and simulator with real pushes."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from filtrax.cli.data.tables import table_of_numbers
from filtrax.cli.tables import console

if TYPE_CHECKING:
    from filtrax.lab.tasks.pushing.validation import Validation


def print_validation(place: Path, *, seed: int, residual: bool) -> None:
    """Prints the errors of all models on held-out real pushes.

    Half of the pushes with each object are used for fitting, the other half for testing.
    """
    from filtrax.lab.tasks.pushing.residual import ResidualTraining
    from filtrax.lab.tasks.pushing.validation import QUANTILES, validate

    with Console(stderr=True).status("Reading") as status:
        found = validate(
            place,
            seed=seed,
            residual=ResidualTraining() if residual else None,
            progress=status.update,
        )
    typer.echo(
        f"{len(found.pushes)} pushes were predicted that nothing was fitted to: errors of the end, "
        "in mm / degrees."
    )
    tables = [_errors(found, quantile) for quantile in QUANTILES]
    for table in (*tables, _fitted(found), _simulator(found)):
        console().print(table)


def _errors(found: "Validation", quantile: int) -> Table:
    """Tabulates a quantile of the errors: one row per subset of pushes, one column per model."""
    import numpy as np

    title = "Median" if quantile == 50 else f"{quantile}th percentile"
    table = table_of_numbers(title, "pushes", *(row.name for row in found.rows))
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
    """Tabulates the fitted parameters, one row per object."""
    import numpy as np

    *_, (model, calibration) = found.calibrations.items()
    title = f"Fitted, {model} (mm and degrees)"
    columns = ("even c", "c", "μ", "tip x, y", "turn", "centre x, y")
    table = table_of_numbers(title, "object", *columns)
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
    """Compares the spread of real and simulated pushes, one row per object."""
    from filtrax.lab.tasks.pushing.agreement import QUANTILES
    from filtrax.lab.tasks.pushing.validation import SIMULATED

    title = f"Errors of {SIMULATED} on all real pushes and on simulated sequences (mm / degrees)"
    columns = [
        column
        for quantile in ("median", "90th percentile")
        for column in (f"{quantile}, real", "simulated", "ratio")
    ]
    table = table_of_numbers(title, "object", *columns)
    shown = (QUANTILES.index(50), QUANTILES.index(90))
    for row in found.simulator:
        cells = [
            " / ".join(f"{number:.2f}" for number in numbers[:, index])
            for index in shown
            for numbers in (row.real, row.simulated, row.ratios)
        ]
        table.add_row(f"{row.name} ({row.num_pushes})", *cells)
    return table
