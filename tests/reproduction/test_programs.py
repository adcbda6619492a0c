"""Every table can run: its programs are traced for shapes, and some of its cells really train."""

import dataclasses
import functools
import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.experiments import building, ensembles
from filtrax.experiments.ensembles import EnsembleTraining, Silent
from filtrax.experiments.evaluation import each_step
from filtrax.experiments.records import RunFolder
from filtrax.experiments.settings import StartSettings
from filtrax.reproduction.groups import group
from filtrax.reproduction.tables import read_table, table_names
from filtrax.training.ensembles import EpochRecord, Training
from filtrax.training.evaluation import evaluate

REFUSED = {"kappa -10", "kappa -5", "kappa -4.5"}
"""The labels of cells that cannot be built, because kappa is below minus the size of the state."""


@pytest.fixture(autouse=True)
def only_shapes(monkeypatch):
    """Nothing that needs numbers happens: models are built in a trace, epochs not recorded."""
    nothing = np.zeros(0)
    record = EpochRecord(0, 0, nothing, nothing, nothing, {}, nothing, nothing)
    monkeypatch.setattr(ensembles, "build_ensemble", build)
    monkeypatch.setattr(Training, "_record", lambda *_: record)


def build(experiment, data):
    seeds = jnp.asarray([seed for seed, _ in experiment.members])
    return building._build(experiment, building._first(data), seeds)


@functools.cache
def data(task, split):
    return task.data(split)


def described(state):
    """The shapes and types of all arrays, which training must not change."""
    arrays, _ = jax.tree.flatten(eqx.filter(state, lambda leaf: hasattr(leaf, "dtype")))
    return [(leaf.shape, leaf.dtype) for leaf in arrays]


def with_start(cell):
    if cell.start is None:
        return cell.experiment
    table, name, parts = cell.start
    start = StartSettings(f"{table}/{name}", parts)
    return dataclasses.replace(cell.experiment, start=start)


def trace(cells, folder):
    """Traces everything that the cells of a group compile; the shapes of what comes out."""
    experiments = [with_start(cell) for cell in cells]
    training = EnsembleTraining(experiments, RunFolder(folder), Silent())
    task = experiments[0].task.shape  # whatever the noise of the data is, their shapes are these
    sets = {split: [data(task, split)] * len(training.tasks) for split in ("train", "validation")}
    seeds = [member.seed for member in training.members]

    def source(experiment):
        table, name = experiment.start.run.split("/")
        (other,) = (cell for cell in read_table(table).cells("smoke") if cell.name == name)
        return *build(other.experiment, data(task, "train")), len(other.experiment.members)

    def everything():
        begun = state = training.begin(sets["train"], source)
        for index in range(len(training.settings)):
            stage = building.build_stages(experiments, index)
            run = Training(stage, *state, *sets.values(), task.perturbations(), seeds)
            ensemble, _ = run.begin()
            ensemble, _ = run.epoch(ensemble)
            state = run.best(ensemble)
        settings, keys = experiments[0].filter, jax.vmap(jr.key)(jnp.asarray(seeds))
        filt, score = settings.for_test(state[0]), each_step(settings.density)
        tested = evaluate(score, filt, state[1], data(task, "test"), task.perturbations(), keys)
        return begun, state, tested

    begun, state, tested = eqx.filter_eval_shape(everything)
    assert described(state) == described(begun)
    assert tested["difference"].shape == (len(seeds), 5, task.num_test, task.num_steps, 4)


def accepted(cells):
    """The cells that can be built; the others are those that must be refused."""
    kept = []
    for cell in cells:
        try:
            eqx.filter_eval_shape(build, cell.experiment, data(cell.experiment.task.shape, "test"))
        except ValueError:
            assert REFUSED & {*cell.labels.values()}, cell.name
        else:
            assert not REFUSED & {*cell.labels.values()}, cell.name
            kept.append(cell)
    return kept


def groups(name):
    return group(read_table(name).cells("smoke"), together=True)


@pytest.mark.long
@pytest.mark.parametrize("name", table_names())
def test_every_program_of_every_table_can_be_traced(name, tmp_path):
    before = table_names()[: table_names().index(name)]
    seen = {
        cell.experiment.program for other in before for cell in read_table(other).cells("smoke")
    }
    for one in groups(name):
        program = one.cells[0].experiment.program
        if program not in seen:
            seen.add(program)
            # Cells of one program differ in numbers, of which only those of sigma points can be
            # refused; for the rest, two say whether they can be joined.
            few = one.cells if name == "disc_ukf_scaling" else one.cells[:1] + one.cells[1:][-1:]
            cells = accepted(few)
            if cells:
                trace(cells, tmp_path)


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Programs that are compiled in little time, and kept for the other tables."""
    return os.environ | {
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "COLUMNS": "120",
    }


@pytest.mark.long
@pytest.mark.parametrize("name", table_names())
def test_three_cells_of_every_table_train(name, environment, tmp_path):
    table = read_table(name)
    cells = table.cells("smoke")
    wanted = [cells[0], cells[1], cells[-1]]
    program = [sys.executable, "-m", "filtrax", "reproduce", name, "--scale", "smoke"]
    only = [part for cell in wanted for part in ("--only", cell.name)]
    command = [*program, *only, "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"3 of {len(cells)} cells at scale smoke" in done.stdout
    for cell in wanted:
        record = json.loads((tmp_path / name / f"{cell.name}.json").read_text())
        assert ("refused" in record) == bool(REFUSED & {*cell.labels.values()})
        if "refused" not in record:
            assert record["epochs"] == {"done": cell.planned_epochs, "planned": cell.planned_epochs}
            assert np.isfinite([record["mean"][metric] for metric in known(table, record)]).all()


def known(table, record):
    """The metrics of a table that are averages over members, and never undefined."""
    undefined = {"noise_correlation"}  # of constant noise, or where nothing is ever hidden
    return [metric for metric in table.metrics if metric in record["mean"].keys() - undefined]
