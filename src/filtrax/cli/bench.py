"""`filtrax bench`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from filtrax.cli.errors import interruptible


def bench(
    suite: Annotated[
        Literal["quick", "cpu", "gpu", "long", "full"],
        typer.Option(
            help="quick: one of each kind, in minutes. cpu, gpu: for such a device. "
            "long: smoothing of series."
        ),
    ] = "quick",
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only measurements whose name matches a pattern, as in 'gradient/ekf/*'. "
            "Repeatable.",
            metavar="PATTERN",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Start no measurement after this time; repeat the command to continue.",
            min=0,
            show_default="no limit",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time for each measurement, shared by its calls.", min=0)
    ] = 2.0,
    peers: Annotated[
        Path | None,
        typer.Option(
            help="Folder of other libraries to compare with.",
            metavar="DIR",
            show_default="benchmarks/peers",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the records.", metavar="DIR")] = Path(
        "runs/bench"
    ),
    page: Annotated[
        Path | None,
        typer.Option(
            help="Measure nothing; write the page from the records in --out.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Time filters and training, and compare with lower bounds and other libraries.

    Example: filtrax bench --suite cpu --only 'online/*'

    See docs/benchmarks.md for the results.
    """
    from filtrax.lab.bench import run_suite, write_page
    from filtrax.lab.bench.peers import FOLDER
    from filtrax.lab.experiments.records import check_output

    if page is not None:
        check_output(page)
        write_page(out, page)
        typer.echo(f"Page: {page}")
        return
    with interruptible(lambda: "Measurements are kept; repeat the command to continue."):
        path = run_suite(
            suite,
            out,
            only=only or (),
            seconds=None if minutes is None else 60 * minutes,
            seconds_each=seconds,
            peers=FOLDER if peers is None else peers,
            say=typer.echo,
        )
    typer.echo(f"Records: {path}")
