"""`filtrax evaluate`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from filtrax.cli.options import SPLIT
from filtrax.cli.tables import print_metrics


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", show_default=False)
    ],
    split: SPLIT = "test",
    members: Annotated[
        bool, typer.Option("--members", help="Show the metrics of every seed too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the metrics as JSON too.", metavar="FILE", show_default=False),
    ] = None,
) -> None:
    """Compute the metrics of a trained run on one part of the data.

    Example: filtrax evaluate runs/disc --split validation --members
    """
    from filtrax.experiments import run as experiments
    from filtrax.experiments.records import RecordError, RunFolder, as_json, write_text

    folder = RunFolder(run)
    folder.check()
    if not folder.model.is_file():
        raise RecordError(
            f"{run} has no trained filter yet: `filtrax train --resume {shlex.quote(str(run))}` "
            "finishes the run."
        )
    result = experiments.evaluate(run, split)
    print_metrics(result, members=members)
    if out is not None:
        write_text(out, as_json(result, indent=2) + "\n")
        typer.echo(f"Metrics: {out}")
