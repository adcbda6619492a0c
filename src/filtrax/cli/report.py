"""`filtrax report`."""

from pathlib import Path
from typing import Annotated

import typer

from filtrax.cli.options import PLUGIN, load_plugins, say_if_changed


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of one or more runs.", metavar="RUN...", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The HTML file.", metavar="FILE", show_default="report.html; of one run, in it"
        ),
    ] = None,
    plugin: PLUGIN = None,
) -> None:
    """Write one HTML page that shows and compares runs. It opens from disk.

    Example: filtrax report runs/ekf runs/ukf --out comparison.html
    """
    from filtrax.lab import report as reports
    from filtrax.lab.experiments.records import RunFolder, check_output
    from filtrax.lab.files import writing

    load_plugins(plugin)
    for run in runs:
        RunFolder(run).check()
        say_if_changed(run)
    alone = RunFolder(runs[0]).report if len(runs) == 1 else Path("report.html")
    path = alone if out is None else out
    check_output(path)
    with writing(path):
        reports.write(runs, path)
    typer.echo(f"Report: {path}")
