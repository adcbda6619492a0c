"""How the verbs for data print tables."""

from rich import box
from rich.table import Table


def table_of_numbers(title: str, label: str, *columns: str) -> Table:
    """A table without rows; the first column has labels, the others numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(label)
    for column in columns:
        table.add_column(column, justify="right")
    return table
