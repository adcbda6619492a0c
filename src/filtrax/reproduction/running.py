"""Training the cells of tables, as far as time allows, and from there on the next time."""

import contextlib
import dataclasses
import functools
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np

from filtrax.experiments import config
from filtrax.experiments.building import blank_ensemble
from filtrax.experiments.ensembles import EnsembleTraining, Policy, Silent, Stopped, Watch
from filtrax.experiments.evaluation import Evaluation, select
from filtrax.experiments.provenance import provenance
from filtrax.experiments.records import RunFolder, read_json
from filtrax.experiments.run import averages, trained_parts
from filtrax.experiments.settings import Experiment, StartSettings
from filtrax.reproduction.groups import Group, group
from filtrax.reproduction.plan import Plan
from filtrax.reproduction.records import Record, Results
from filtrax.reproduction.sharing import shared_cells, take_over
from filtrax.reproduction.tables import Cell, Table, read_table
from filtrax.training.checkpoints import save
from filtrax.training.parts import trainable

SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""Large models take seconds to write, and less than a minute of training is soon done again."""


@runtime_checkable
class GroupWatch(Watch, Protocol):
    """A watch that is also told which cells train."""

    def group(self, group: Group, cells_done: int, num_cells: int) -> None:
        """These cells train now; so many of all cells have a record."""


class SilentCells(Silent):
    """A watch that says nothing."""

    def group(self, group: Group, cells_done: int, num_cells: int) -> None:
        """Says nothing."""


SILENT = SilentCells()


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What is to be trained, and how far it is.

    Attributes:
        groups: All groups that were not done at the beginning.
        cells: All wanted cells, those with a record included.
        shared: Cells, each with one of another table that has the same settings.
        tables: By name.
        results: Where records are.
        scale: At which cells are trained.
        watch: What is told of it.
        end: When time is over, on the clock `time.monotonic`; None is never.
    """

    groups: Sequence[Group]
    cells: Sequence[Cell]
    shared: Sequence[tuple[Cell, Cell]]
    tables: Mapping[str, Table]
    results: Results
    scale: str
    watch: GroupWatch
    end: float | None

    def stop(self) -> bool:
        """Whether time is over."""
        return self.end is not None and time.monotonic() >= self.end

    def seconds_left(self) -> float | None:
        """Until time is over; None is for ever."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)

    def left(self) -> list[Group]:
        """The groups with a cell that is not done; what other tables have is taken over first."""
        take_over(self.shared, self.results)
        return _left(self.groups, self.results)

    def ready(self) -> list[Group]:
        """Those that are left and whose cells start from nothing, or from what is there."""
        ready = lambda group: all(_has_source(cell, self.results) for cell in group.cells)  # noqa: E731
        return [group for group in self.left() if ready(group)]

    def begin(self, group: Group) -> None:
        """Says that a group is trained now."""
        done = sum(self.results.record(cell).is_file() for cell in self.cells)
        self.watch.group(group, done, len(self.cells))

    def end_of(self, group: Group) -> None:
        """Removes the state of a group, if all of it is done."""
        _remove_leftovers([group], self.results)


Executor = Callable[[Schedule], None]
"""Trains what a schedule has, as far as time allows."""

LEFT_TO_OTHERS = "Other processes train what is left, or what it starts from."


def train_here(schedule: Schedule) -> None:
    """Trains one group after the other in this process."""
    while not schedule.stop() and schedule.left():
        if not _any_step(schedule):
            schedule.watch.message(LEFT_TO_OTHERS)
            return


def reproduce(
    tables: Iterable[Table],
    results: Results,
    plan: Plan,
    watch: GroupWatch = SILENT,
    executor: Executor = train_here,
) -> bool:
    """Trains all wanted cells that have no record yet; says whether none is left.

    Several processes may work on the same folder: what one of them trains, the others leave out.
    """
    end = None if plan.seconds is None else time.monotonic() + plan.seconds
    known = {table.name: table for table in tables}
    plan.check(known.values())
    cells = [cell for table in known.values() for cell in plan.cells(table)]
    sources = _sources(cells, plan)
    known |= {name: read_table(name) for name in {cell.table for cell in sources} - {*known}}
    cells = sources + cells
    _check_sources(cells, known)
    _tell_of_other_settings(cells, results, watch)
    groups = group(cells, together=plan.together, most_data_sets=plan.most_data_sets)
    _remove_leftovers(groups, results)
    groups = _without_done(groups, results, plan)
    shared = shared_cells(cells, known, plan)
    executor(Schedule(groups, cells, shared, known, results, plan.scale, watch, end))
    return not _left(groups, results)


def _sources(cells: Sequence[Cell], plan: Plan) -> list[Cell]:
    """The cells of other tables that cells start from, if they are not among these.

    What these in turn start from comes before them.
    """
    needed = {cell.start[:2] for cell in cells if cell.start is not None}
    needed -= {(cell.table, cell.name) for cell in cells}
    if not needed:
        return []
    whole = Plan(scale=plan.scale, settings=plan.settings)
    found = [
        source
        for table in sorted({table for table, _ in needed})
        for source in whole.cells(read_table(table))
        if (table, source.name) in needed
    ]
    return _sources([*found, *cells], plan) + found


def _check_sources(cells: Sequence[Cell], tables: Mapping[str, Table]) -> None:
    for cell in cells:
        if cell.start is not None and not tables[cell.start[0]].models:
            raise ValueError(
                f"Table {cell.start[0]!r} must keep its models (models = true), because cells of "
                f"{cell.table!r} start from them."
            )


def _tell_of_other_settings(cells: Sequence[Cell], results: Results, watch: Watch) -> None:
    """Says which cells are not run although what is wanted is not what their records hold."""
    others = []
    for cell in cells:
        found = (results.read(cell) or {}).get("config")
        if found is not None and found | {"start": None} != cell.settings | {"start": None}:
            others.append(cell)
    if others:
        more = f" and {len(others) - 1} more" if others[1:] else ""
        watch.message(
            f"Records that were made with other settings are left as they are: "
            f"{results.record(others[0])}{more}. Remove them, or choose another folder, to run "
            "their cells again."
        )


def _remove_leftovers(groups: Iterable[Group], results: Results) -> None:
    """Removes states of groups that are done, left by a kill or come from a packed file."""
    for done in groups:
        if all(results.record(cell).is_file() for cell in done.cells):
            path = _state(done, results).path
            if path.exists():
                with results.claimed(done.table, done.name) as mine:
                    if mine:
                        shutil.rmtree(path)


def _without_done(groups: Sequence[Group], results: Results, plan: Plan) -> list[Group]:
    """First the groups that were begun, as they are; then what is left of the others."""
    begun = [group for group in groups if _state(group, results).config.is_file()]
    taken = {id(cell) for group in begun for cell in group.cells}
    cells = [cell for group in groups for cell in group.cells]
    rest = [cell for cell in _undone(cells, results) if id(cell) not in taken]
    return begun + group(rest, together=plan.together, most_data_sets=plan.most_data_sets)


def _state(group: Group, results: Results) -> RunFolder:
    return results.unfinished(group.table, group.name)


def _left(groups: Iterable[Group], results: Results) -> list[Group]:
    """The groups with a cell that is not done."""
    groups = list(groups)
    undone = {id(cell) for cell in _undone([c for g in groups for c in g.cells], results)}
    return [group for group in groups if any(id(cell) in undone for cell in group.cells)]


def _undone(cells: Sequence[Cell], results: Results) -> list[Cell]:
    """The cells that lack a record, or a model that a cell without a record starts from.

    Records may have been copied here without models.
    """
    known = {(cell.table, cell.name): cell for cell in cells}
    new = {key for key, cell in known.items() if not results.record(cell).is_file()}
    undone: set[tuple[str, str]] = set()
    while new:
        undone |= new
        awaited = {start[:2] for key in new if (start := known[key].start) is not None}
        new = {key for key in (awaited & {*known}) - undone if _lacks_model(known[key], results)}
    return [cell for cell in cells if (cell.table, cell.name) in undone]


def _lacks_model(cell: Cell, results: Results) -> bool:
    there = results.model(cell.table, cell.name).model.is_file()
    return not there and "refused" not in (results.read(cell) or {})


def _any_step(schedule: Schedule) -> bool:
    """Trains the first group that can be trained now; False if there is none."""
    results = schedule.results
    policy = Policy(schedule.stop, SECONDS_BETWEEN_CHECKPOINTS)
    for candidate in schedule.ready():
        with results.claimed(candidate.table, candidate.name) as mine:
            if mine and candidate in schedule.left():
                schedule.begin(candidate)
                table = schedule.tables[candidate.table]
                run = GroupRun(candidate, table, results, schedule.scale, schedule.watch, policy)
                with contextlib.suppress(Stopped):
                    run.train()
                return True
    return False


def _has_source(cell: Cell, results: Results) -> bool:
    return cell.start is None or results.model(*cell.start[:2]).model.is_file()


class GroupRun:
    """One group of cells, from fresh models or an unfinished state to their records."""

    def __init__(
        self,
        group: Group,
        table: Table,
        results: Results,
        scale: str,
        watch: Watch,
        policy: Policy,
    ):
        self.group, self.table, self.results, self.scale = group, table, results, scale
        self.watch, self.policy = watch, policy
        self.folder = results.unfinished(group.table, group.name)

    def train(self) -> None:
        """Trains the cells and writes their records."""
        cells = [cell for cell in self.group.cells if not self._refuse(cell)]
        if not cells:
            return
        experiments = [self._experiment(cell) for cell in cells]
        training = EnsembleTraining(experiments, self.folder, self.watch, self.policy)
        data = [task.data("train") for task in training.tasks]
        state = training.begin(data, trained_parts)
        resume = self.folder.config.is_file()
        if not resume and self.folder.path.exists():
            shutil.rmtree(self.folder.path)  # of a process that was killed while it began
        self.folder.create(resume=resume)
        if not resume:
            config.write(self.folder.config, experiments[0])
        if not self.folder.provenance.is_file():
            self.folder.write_json(self.folder.provenance, provenance(seed=experiments[0].seed))
        state = training.train(data, state, resume=resume)
        for task in training.tasks:
            chosen = [i for i, experiment in enumerate(experiments) if experiment.task == task]
            self._record(training, state, [(i, cells[i]) for i in chosen])
        shutil.rmtree(self.folder.path)

    def _experiment(self, cell: Cell) -> Experiment:
        """The experiment of a cell, with the run that it starts from."""
        if cell.start is None:
            return cell.experiment
        table, name, parts = cell.start
        start = StartSettings(str(self.results.model(table, name).path), parts)
        return dataclasses.replace(cell.experiment, start=start)

    def _refuse(self, cell: Cell) -> bool:
        """Whether a cell cannot be built, which is then its result."""
        experiment = cell.experiment
        try:
            blank_ensemble(experiment, experiment.task.data("test"))
        except ValueError as error:
            origin = provenance(seed=experiment.seed)
            self.results.write(cell, self._header(cell, origin) | {"refused": str(error)})
            return True
        return False

    def _header(self, cell: Cell, origin: dict[str, Any]) -> Record:
        return {
            "table": cell.table,
            "cell": cell.labels,
            "scale": self.scale,
            "origin": origin,
            "config": config.as_dict(self._experiment(cell)),
        }

    def _record(
        self, training: EnsembleTraining, state: tuple[Any, Any], cells: list[tuple[int, Cell]]
    ) -> None:
        """Tests the cells of one task together, and writes the record of each."""
        origin = read_json(self.folder.provenance)
        members = {i: training.chosen(i) for i, _ in cells}
        filt, model = select(state, np.concatenate([members[i] for i, _ in cells]))
        evaluation = Evaluation(cells[0][1].experiment, filt, model, "test")
        summary = training.summary()
        first = 0
        for i, cell in cells:
            numbers = range(first, first + len(members[i]))
            first += len(members[i])
            own = select((filt, model), np.asarray(numbers))
            tested = [
                summary[j] | {"metrics": evaluation.metrics(n)}
                for j, n in zip(members[i], numbers, strict=True)
            ]
            record = self._header(cell, origin) | {
                "epochs": {"done": self.group.num_epochs, "planned": cell.planned_epochs},
                "seeds": [member["seed"] for member in tested],
                "parameters": _count_parameters(cell.experiment, *own),
                "seconds": self._seconds(len(training.members)),
                "members": tested,
            }
            record |= averages(tested)
            if self.table.shown:
                record["shown"] = evaluation.shown(numbers[0])
            if self.table.models:
                self._keep_model(cell, *own)
            self.results.write(cell, record)

    def _keep_model(self, cell: Cell, filt: Any, model: Any) -> None:
        folder = self.results.model(cell.table, cell.name)
        with folder.writing(folder.model):
            folder.path.mkdir(parents=True, exist_ok=True)
            config.write(folder.config, self._experiment(cell))
            save(folder.model, filt, model)

    def _seconds(self, num_members: int) -> dict[str, float]:
        """How long the training of the whole ensemble took, by its typical epoch."""
        times = [line["seconds"] for line in self.folder.read_metrics()]
        # The clock begins anew with every stage, and where an interrupted one goes on.
        lengths = [after - before for before, after in itertools.pairwise(times)]
        lengths = [length for length in lengths if length > 0]
        typical = statistics.median(lengths) if lengths else 0.0
        return {"training": round(typical * self.group.num_epochs, 3), "members": num_members}


def _count_parameters(experiment: Experiment, filt: Any, model: Any) -> int:
    """The trained parameters of one member, without parts that its filter does not use."""
    if not experiment.stages:
        return 0
    masks = [trainable(filt, model, stage.train) for stage in experiment.stages]
    mask = jax.tree.map(lambda *flags: any(flags), *masks)
    arrays = eqx.filter((filt, model), mask)
    unused = [_find(arrays[1], name) for name in experiment.filter.unused(model)]
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(part)) for part in (arrays, *unused)]
    return (sizes[0] - sum(sizes[1:])) // experiment.num_seeds


def _find(model: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), model)
