"""`filtrax bench`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from filtrax.cli.errors import interruptible


def bench(
    suite: Annotated[
        Literal["quick", "cpu", "gpu", "full"],
        typer.Option(help="quick: one of each kind, in minutes. cpu, gpu: for such a device."),
    ] = "quick",
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Measurements whose name matches a pattern like 'gradient/ekf/*'. Repeatable.",
            metavar="PATTERN",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Begin nothing after that time; the same command goes on.",
            min=0,
            show_default="no limit",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long the calls of one measurement take turns.", min=0)
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
            help="Measure nothing; write the page of the records in --out.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure how long filters and training take, against their floors and other libraries.

    Example: filtrax bench --suite cpu --only 'online/*'

    See docs/benchmarks.md for what came out.
    """
    from filtrax.lab.bench import run_suite, write_page
    from filtrax.lab.bench.peers import FOLDER

    if page is not None:
        write_page(out, page)
        typer.echo(f"Page: {page}")
        return
    with interruptible("What was measured is kept: the same command goes on."):
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
