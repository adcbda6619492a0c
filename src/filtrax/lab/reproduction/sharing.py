"""Shares records between cells of different tables with the same settings."""

import dataclasses
from collections.abc import Iterable, Mapping

from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.tables import Cell, Table, read_table


def shared_cells(
    cells: Iterable[Cell], tables: Mapping[str, Table], plan: Plan
) -> list[tuple[Cell, Cell]]:
    """Pairs cells with cells of the same settings in the tables that their own table `shares`."""
    whole = dataclasses.replace(plan, only=())
    sources: dict[str, dict[Experiment, Cell]] = {}
    pairs = []
    for cell in cells:
        for name in tables[cell.table].shares if cell.start is None else ():
            if name not in sources:
                found = whole.cells(tables.get(name) or read_table(name))
                sources[name] = {_nameless(one): one for one in found if one.start is None}
            other = sources[name].get(_nameless(cell))
            if other is not None:
                pairs.append((cell, other))
                break
    return pairs


def take_over(pairs: Iterable[tuple[Cell, Cell]], results: Results) -> None:
    """Copies records to cells without one from counterparts with the same settings."""
    for cell, other in pairs:
        if results.has(cell) or not results.has(other):
            continue
        record = results.read(other)
        if record is None or not other.made(record):
            continue
        own = {"table": cell.table, "cell": cell.labels, "config": cell.settings}
        results.write(cell, record | own | {"shared": f"{other.table}/{other.name}"})


def _nameless(cell: Cell) -> Experiment:
    return dataclasses.replace(cell.experiment, name="")
