"""Tables of the verbs for data."""

from rich import box
from rich.table import Table


def table_of_numbers(title: str, label: str, *columns: str) -> Table:
    """Makes an empty table with one column of labels and right-aligned columns of numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(label)
    for column in columns:
        table.add_column(column, justify="right")
    return table
