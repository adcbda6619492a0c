"""How the verbs for data print tables."""

from rich import box
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Where tables are printed."""
    console = Console()
    return console if console.is_terminal else Console(width=160)  # A file is no narrow window.


def table_of_numbers(title: str, label: str, *columns: str) -> Table:
    """A table without rows; the first column has labels, the others numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(label)
    for column in columns:
        table.add_column(column, justify="right")
    return table
