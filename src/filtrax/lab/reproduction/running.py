"""Trains the cells of tables within a time limit; a later call resumes."""

from collections.abc import Iterable, Mapping, Sequence

from filtrax.lab.experiments.ensembles import Watch
from filtrax.lab.reproduction.executors import train_here
from filtrax.lab.reproduction.groups import group
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.scheduling import (
    SILENT,
    Executor,
    GroupWatch,
    Schedule,
    end_after,
    groups_left,
    remove_leftovers,
    without_done,
)
from filtrax.lab.reproduction.sharing import shared_cells
from filtrax.lab.reproduction.tables import Cell, Table, read_table


def reproduce(
    tables: Iterable[Table],
    results: Results,
    plan: Plan,
    watch: GroupWatch = SILENT,
    executor: Executor = train_here,
) -> bool:
    """Trains all selected cells without a record; returns True if none is left.

    Several processes may work on the same folder; each trains different cells.
    """
    end = end_after(plan.seconds)
    known = {table.name: table for table in tables}
    plan.check(known.values())
    cells = [cell for table in known.values() for cell in plan.cells(table)]
    sources = _sources(cells, plan)
    known |= {name: read_table(name) for name in {cell.table for cell in sources} - {*known}}
    cells = sources + cells
    _check_sources(cells, known)
    _tell_of_other_settings(cells, results, watch)
    groups = group(cells, together=plan.together, most_data_sets=plan.most_data_sets)
    remove_leftovers(groups, results)
    groups = without_done(groups, results, plan)
    shared = shared_cells(cells, known, plan)
    executor(Schedule(groups, cells, shared, known, results, plan.scale, watch, end))
    return not groups_left(groups, results)


def _sources(cells: Sequence[Cell], plan: Plan) -> list[Cell]:
    """Returns the cells of other tables that cells start from, recursively, sources first.

    Cells that are among the given ones are omitted.
    """
    needed = {cell.start[:2] for cell in cells if cell.start is not None}
    needed -= {(cell.table, cell.name) for cell in cells}
    if not needed:
        return []
    found: list[Cell] = []
    for table in sorted({table for table, _ in needed}):
        names = tuple(sorted(name for source, name in needed if source == table))
        sources = Plan(plan.scale, only=names, settings=plan.settings).cells(read_table(table))
        found += [source for source in sources if source.name in names]
    return _sources([*found, *cells], plan) + found


def _check_sources(cells: Sequence[Cell], tables: Mapping[str, Table]) -> None:
    for cell in cells:
        if cell.start is not None and not tables[cell.start[0]].models:
            raise ValueError(
                f"Table {cell.start[0]!r} must keep its models (models = true), because cells of "
                f"{cell.table!r} start from them."
            )


def _tell_of_other_settings(cells: Sequence[Cell], results: Results, watch: Watch) -> None:
    """Tells the watch about cells that are skipped although their records have other settings."""
    others = []
    for cell in cells:
        record = results.read(cell)
        if record is not None and not cell.made(record, ignoring="start"):
            others.append(cell)
    if others:
        more = f" and {len(others) - 1} more" if others[1:] else ""
        watch.message(
            f"Records that were made with other settings are left as they are: "
            f"{results.record(others[0])}{more}. Remove them, or choose another folder, to run "
            "their cells again."
        )
