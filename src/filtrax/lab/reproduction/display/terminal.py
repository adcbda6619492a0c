"""Prints the comparison with the paper on a terminal."""

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table as Lines
from rich.text import Text

from filtrax.lab.reproduction.display.comparison import Comparison, Entry, Grid
from filtrax.lab.reproduction.display.page import ordered_names
from filtrax.lab.reproduction.display.sections import judged
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.tables import Table, read_table
from filtrax.lab.reproduction.values import Record

_STYLES = {"better": "green", "within": "", "worse": "red"}


def print_table(table: Table, records: Mapping[str, Record], console: Console) -> None:
    """Prints the records of a table beside the paper's numbers, and the verdicts on its claims.

    **Arguments:**

    - `table`: the table.
    - `records`: records by the names of their cells.
    - `console`: the console to print on.
    """
    compared = Comparison(table, records)
    run = f"{len(compared.run)} of {len(compared.cells)} cells"
    scales = ", ".join(dict.fromkeys(str(record["scale"]) for record in compared.run))
    run += f" at scale {scales}" if scales else ""
    console.print(Text(f"{table.title} ({table.source}): {run}", style="bold"))
    console.print(Text("ours ± standard error (the paper's)"))
    for block in compared.blocks:
        if block.is_run:
            for grid in block.grids:
                heading = ", ".join(filter(None, (block.title, grid.heading)))
                console.print(Text(f"\n{heading}"), _lines(grid))
    said = (*table.claims, *table.goals)
    for claim, verdicts in zip(said, [*compared.verdicts, *compared.goals], strict=True):
        known = {name: verdict for name, verdict in verdicts.items() if verdict.judged}
        if known:
            found = [f"{name}: {judged(verdict)}".lstrip(": ") for name, verdict in known.items()]
            console.print(Text(f"- {claim.says} {'; '.join(found)}"))


def print_list(console: Console, results: Results) -> None:
    """Lists all tables with name, title, source, and the numbers of all and of finished cells.

    **Arguments:**

    - `console`: where to print.
    - `results`: where records are.
    """
    lines = Lines(box=box.SIMPLE_HEAD)
    for heading in ("name", "title", "source"):
        lines.add_column(heading)
    for heading in ("cells", "done"):
        lines.add_column(heading, justify="right")
    for name in ordered_names():
        table = read_table(name)
        compared = Comparison(table, results.records(name))
        counts = str(len(compared.cells)), str(len(compared.run))
        lines.add_row(Text(name, no_wrap=True), Text(table.title), Text(table.source), *counts)
    console.print(lines)


def _lines(grid: Grid) -> Lines:
    """Makes the table of a grid without rows that were not run, and without empty columns.

    A column is empty if neither ours nor the paper has a number in it.
    """
    lines = Lines(box=box.SIMPLE_HEAD)
    lines.add_column(Text(grid.corner))
    rows = {row: entries for row, entries in grid.rows.items() if any(map(_is_run, entries))}
    columns = list(zip(*rows.values(), strict=True))
    shown = [i for i, column in enumerate(columns) if any(map(_has_number, column))]
    for i in shown:
        lines.add_column(Text(grid.columns[i]), justify="right")
    best = grid.best()
    for row, entries in rows.items():
        lines.add_row(Text(row), *(_cell(entries[i], (row, i) in best) for i in shown))
    return lines


def _is_run(entry: Entry | None) -> bool:
    return entry is not None and bool(entry.records or not entry.cells)


def _has_number(entry: Entry | None) -> bool:
    return _is_run(entry) or (entry is not None and entry.paper is not None)


def _cell(entry: Entry | None, best: bool) -> Text:
    if entry is None:
        return Text("")
    measure = entry.measure
    text = Text(entry.state or measure.text(entry.ours), style="bold" if best else "")
    for note in filter(None, (entry.epochs, entry.part)):
        text.append(f" [{note}]", style="dim")
    if entry.paper is not None:
        text.append(f" ({measure.text(entry.paper)})", style="dim")
    if entry.outcome:
        text.append(f" {entry.outcome}", style=_STYLES[entry.outcome])
    return text
