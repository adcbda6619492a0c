"""Options shared by several verbs."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

SPLIT = Annotated[Literal["train", "validation", "test"], typer.Option(help="Part of the data.")]

PLUGIN = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        help="Import a module that registers tasks, filters or parts of models: its name, or the "
        "path of a .py file. Repeatable.",
        metavar="MODULE",
        show_default=False,
    ),
]
"""The option for plugins. Only what a user names here is imported, never what a file names."""


def load_plugins(names: Sequence[str] | None) -> None:
    """Imports the plugins of a command line."""
    if names:
        from filtrax.lab import plugins

        for name in names:
            plugins.load(name)


def say_if_changed(run: object) -> None:
    """Warns if plugins of a run have changed since; raises if they are not loaded."""
    from pathlib import Path

    from filtrax.cli.errors import say
    from filtrax.lab.experiments.records import RunFolder

    for sentence in RunFolder(Path(str(run))).check_plugins():
        say(f"Warning: {sentence}")
