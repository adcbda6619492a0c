"""The command line: it parses, calls and prints.

Verbs import what they need when they run, so that help and usage errors are instant.
"""

from typing import Annotated

import typer

from filtrax.cli import (
    bench,
    compiler,
    data,
    demo,
    evaluate,
    interrupts,
    programs,
    report,
    reproduce,
    schema,
    train,
)
from filtrax.cli.errors import Program

__all__ = ["app", "main"]

app = typer.Typer(
    name="filtrax",
    cls=Program,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: filtrax demo",
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("bench")(bench.bench)
app.command("schema")(schema.schema)
app.add_typer(data.app, name="data")


def main() -> None:
    """Runs the command line with the arguments of this process."""
    interrupts.handle()
    compiler.set_flags()
    programs.keep()
    app(prog_name="filtrax")


def _print_version(wanted: bool) -> bool:
    if wanted:
        from filtrax import __version__

        typer.echo(f"filtrax {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from. May stand anywhere.")
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache", help="Compile everything anew, and keep nothing. May stand anywhere."
        ),
    ] = False,
) -> None:
    """Train Bayesian filters end to end, and look at what they learned."""
    del version, debug, no_cache  # `--version` has exited already; `Program` handles the others.
