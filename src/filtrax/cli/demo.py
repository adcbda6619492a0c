"""`filtrax demo`."""

from pathlib import Path
from typing import Annotated

import typer

from filtrax.cli.errors import interruptible
from filtrax.cli.progress import watch
from filtrax.cli.tables import print_rows


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder of the run; an earlier demo in it is replaced.")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws everything anew.")] = 0,
) -> None:
    """Watch a filter learn to follow a disc in a few minutes, and compare it.

    The baseline is the same sensor and process under the best constant noise.

    Example: filtrax demo --out runs/demo
    """
    from filtrax.lab.experiments import demo as experiment
    from filtrax.lab.report import write

    with interruptible(lambda: "Start again with `filtrax demo`."), watch() as progress:
        outcome = experiment.run(out, progress, seed=seed)
        report = write(outcome["runs"], out / "report.html")
    print_rows("Held-out sequences", outcome["comparison"])
    for text in (outcome["summary"], f"Report: {report}"):
        typer.echo(text)
