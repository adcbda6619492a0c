"""Options shared by several verbs."""

from typing import Annotated, Literal

import typer

SPLIT = Annotated[Literal["train", "validation", "test"], typer.Option(help="Part of the data.")]
