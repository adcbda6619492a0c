"""Trains one group of cells, from fresh models or an unfinished state to their records."""

import dataclasses
import functools
import itertools
import shutil
import statistics
from typing import Any

import equinox as eqx
import jax
import numpy as np

from filtrax.lab import config
from filtrax.lab.config.settings import Experiment, StartSettings
from filtrax.lab.experiments.building import blank_ensemble
from filtrax.lab.experiments.ensembles import EnsembleTraining, Policy, Watch
from filtrax.lab.experiments.evaluation import Evaluation, select
from filtrax.lab.experiments.run import averages, trained_parts
from filtrax.lab.files import read_json
from filtrax.lab.provenance import provenance, without_folders
from filtrax.lab.reproduction.groups import Group
from filtrax.lab.reproduction.records import Record, Results
from filtrax.lab.reproduction.tables import Cell, Table
from filtrax.training.checkpoints import save
from filtrax.training.parts import trainable


class GroupRun:
    """The training of one group of cells, which is resumed if it was interrupted."""

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
            shutil.rmtree(self.folder.path)  # left by a process that was killed during its start
        self.folder.create(resume=resume)
        if not resume:
            config.write(self.folder.config, experiments[0])
        if resume and self.folder.provenance.is_file():
            origin = read_json(self.folder.provenance)
        else:
            origin = provenance(seed=experiments[0].seed)
            self.folder.write_json(self.folder.provenance, origin)
        state = training.train(data, state, resume=resume)
        for task in training.tasks:
            chosen = [i for i, experiment in enumerate(experiments) if experiment.task == task]
            self._record(training, state, [(i, cells[i]) for i in chosen], origin)
        shutil.rmtree(self.folder.path)

    def _experiment(self, cell: Cell) -> Experiment:
        """Returns the experiment of a cell with the folder of the run that it starts from."""
        if cell.start is None:
            return cell.experiment
        table, name, parts = cell.start
        start = StartSettings(str(self.results.model(table, name).path), parts)
        return dataclasses.replace(cell.experiment, start=start)

    def _refuse(self, cell: Cell) -> bool:
        """Returns True if the cell's settings are invalid, and records the error as its result."""
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
            "config": without_folders(config.as_dict(self._experiment(cell))),
        }

    def _record(
        self,
        training: EnsembleTraining,
        state: tuple[Any, Any],
        cells: list[tuple[int, Cell]],
        origin: dict[str, Any],
    ) -> None:
        """Evaluates all cells of one task together, and writes their records."""
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
                "seconds": self._seconds(training),
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

    def _seconds(self, training: EnsembleTraining) -> dict[str, float]:
        """Estimates the training time of the ensemble from its median epoch."""
        times = [line["seconds"] for line in training.lines]
        # The clock restarts with every stage, and when a run resumes.
        lengths = [after - before for before, after in itertools.pairwise(times)]
        lengths = [length for length in lengths if length > 0]
        typical = statistics.median(lengths) if lengths else 0.0
        seconds = round(typical * self.group.num_epochs, 3)
        return {"training": seconds, "members": len(training.members)}


def _count_parameters(experiment: Experiment, filt: Any, model: Any) -> int:
    """Counts the trained parameters of one member, without parts that its filter does not use."""
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
