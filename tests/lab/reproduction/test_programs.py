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
import jaxtyping
import numpy as np
import pytest
from reproduction.few_folds import few_folds

from filtrax.lab.config.settings import StartSettings
from filtrax.lab.experiments import building, ensembles
from filtrax.lab.experiments.ensembles import EnsembleTraining, Silent
from filtrax.lab.experiments.evaluation import each_step
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.reproduction.groups import group
from filtrax.lab.reproduction.tables import read_table, table_names
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import evaluate
from filtrax.training.trainer import EpochRecord

REFUSED = {
    "disc_ukf_scaling": {"kappa -10", "kappa -5", "kappa -4.5"},
    "kitti_ukf_scaling": {"kappa -10", "kappa -5"},
}
"""The labels of cells that cannot be built, because kappa is below minus the size of the state."""

TABLES = table_names()
DISC = [name for name in TABLES if name.startswith("disc")]
PUSHING = [name for name in TABLES if name.startswith("pushing")]
TRACED = set()
"""What was traced: kinds of programs, with the structure of all that they depend on."""


@pytest.fixture
def only_shapes(monkeypatch):
    """Nothing that needs numbers happens: models are built in a trace, epochs not recorded.

    Annotations are not checked: tests of the parts are about these, and here they would take
    much of the time.
    """
    nothing = np.zeros(0)
    record = EpochRecord(0, 0, nothing, nothing, nothing, {}, nothing, nothing)
    monkeypatch.setattr(ensembles, "build_ensemble", build)
    monkeypatch.setattr(Training, "_record", lambda *_: record)
    monkeypatch.setattr(Training, "_validate", validate_once(Training._validate))
    monkeypatch.setattr(Training, "epoch", train_once(Training.epoch))
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def is_new(kind, *trees):
    """Whether nothing with the same structure was traced before: other numbers do not matter."""
    structures = [jax.tree.structure(tree) for tree in trees]
    known, total = len(TRACED), (kind, *structures)
    TRACED.add(total)
    return len(TRACED) > known


def sizes(data):
    """Of what a step reads, and of how many discs or images a sequence has."""
    return tuple(leaf.shape[-2:] for leaf in jax.tree.leaves((data.readings, data.context)))


def validate_once(validate):
    """Validation of the first stage with a kind of filter and of score; then only its shape.

    What else a model is made of, training shows.
    """

    def validated(training, learner):
        filt, _ = training.course.rest
        if is_new(("validation", type(filt)), training.stage.score):
            return validate(training, learner)
        return {"loss": jnp.zeros(len(training.keys))}

    return validated


def train_once(epoch):
    """An epoch of each kind of stage, filter and model with the parts that train; then none."""

    def trained(training, ensemble):
        stage = dataclasses.replace(training.stage, num_epochs=1)
        kind = "training", sizes(training.course.data)
        if is_new(kind, stage, training.course.rest, training.readings, ensemble.learner):
            return epoch(training, ensemble)
        return ensemble, None

    return trained


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


def trace(cells, folder, *, whole=True):
    """Traces everything that the cells of a group compile; the shapes of what comes out.

    If not the whole training, then what it begins with.
    """
    experiments = [with_start(cell) for cell in cells]
    training = EnsembleTraining(experiments, RunFolder(folder), Silent())
    task = experiments[0].task.shape  # whatever the noise of the data is, their shapes are these
    sets = {split: [data(task, split)] * len(training.tasks) for split in ("train", "validation")}
    seeds = [member.seed for member in training.members]

    def source(experiment):
        table, name = experiment.start.run.split("/")
        (other,) = (cell for cell in cells_of(table) if cell.name == name)
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
        tested = None
        test = data(task, "test")
        if is_new(("test", type(filt), sizes(test)), score):
            tested = evaluate(score, filt, state[1], test, task.perturbations(), keys)
        return begun, state, tested

    if not whole:
        assert described(eqx.filter_eval_shape(lambda: training.begin(sets["train"], source)))
        return
    begun, state, tested = eqx.filter_eval_shape(everything)
    assert described(state) == described(begun)
    if tested is not None:
        runs, expected = len(task.perturbations()), data(task, "test").states.shape
        assert tested["difference"].shape == (len(seeds), runs, *expected)


def is_refused(cell):
    return bool(REFUSED.get(cell.table, set()) & {*cell.labels.values()})


def accepted(cells):
    """The cells that can be built; the others are those that must be refused."""
    kept = []
    for cell in cells:
        try:
            eqx.filter_eval_shape(build, cell.experiment, data(cell.experiment.task.shape, "test"))
        except ValueError:
            assert is_refused(cell), cell.name
        else:
            assert not is_refused(cell), cell.name
            kept.append(cell)
    return kept


@functools.cache
def cells_of(name):
    """The cells of a table, of the first fold alone if it has any: others are other numbers."""
    cells = few_folds(read_table(name)).cells("smoke")
    return [cell for cell in cells if cell.labels.get("fold", "00") == "00"]


def traced_once(cell):
    """What a trace of a cell depends on: its program, but for how much of everything there is."""
    program = cell.experiment.program
    sizes = {"num_epochs": 2, "learning_rates": (1.0,)}
    lengths = [1 + (stage.objective == "process") for stage in program.stages]
    stages = tuple(
        dataclasses.replace(stage, length=length, frames_per_batch=length, **sizes)
        for stage, length in zip(program.stages, lengths, strict=True)
    )
    return dataclasses.replace(program, num_seeds=1, stages=stages)


TRAINED = {
    "kitti_benchmark": ["dekf_00", "dpf-m-lrn-normalized_00", "lstm_00"],
    "kitti_noise": ["hand-tuned_dekf_00", "rcqh-full-covariances_dpf-m_00"],
    "kitti_training": ["individual_dukf_00", "finetune-all_dekf_00"],
    "kitti_position": ["motion-and-position_dmcukf_00", "motion_dekf_00"],
    "kitti_ukf_scaling": ["kappa--10_00"],
    "kitti_length": ["dekf_10_00"],
}
"""Cells of the tables on KITTI that train in one process, since generated streets take long."""

LONGEST_WAY = {
    "pushing_sensor": "pretrained",
    "pushing_process": "analytical-measured-noise",
    "pushing_noise": "hand-tuned_dekf",
}
"""Cells of the tables on pushing that train one after the other: sensor, noise, filter."""


def trained(name):
    """The cells of a table that really train below."""
    cells = cells_of(name)
    if name in DISC:
        return [cells[0], cells[1], cells[-1]]
    return [cell for cell in cells if cell.name in (*TRAINED.get(name, ()), LONGEST_WAY.get(name))]


@functools.cache
def trained_programs():
    return {traced_once(cell) for name in TABLES for cell in trained(name)}


TRACED_WHOLE = {
    "pushing_process": {"learned-heteroscedastic-noise"},
    "pushing_noise": {"rhqh_dekf"},
    "pushing_benchmark": {"dpf-m-lrn", "lstm", "imm-analytical-process"},
}
"""Cells on pushing whose training is traced; it takes long, with images drawn in every step. Of
the others it is what they begin with: filters and noise are the same as in other tables."""


def is_traced_whole(cell):
    if traced_once(cell) in trained_programs():
        return False
    return cell.table not in TRACED_WHOLE or cell.name in TRACED_WHOLE[cell.table]


def by_task(name):
    """Tables of one task are traced in one process, because they share programs."""
    return pytest.param(name, marks=pytest.mark.xdist_group(f"traces of {name[:4]}"))


@pytest.mark.long
@pytest.mark.parametrize("name", [by_task(name) for name in TABLES])
def test_every_program_of_every_table_can_be_traced(name, only_shapes, tmp_path):
    before = [other for other in TABLES[: TABLES.index(name)] if other[:4] == name[:4]]
    seen = {traced_once(cell) for other in before for cell in cells_of(other)}
    if name in REFUSED:
        accepted(cells_of(name))
    for one in group(cells_of(name), together=True):
        program = traced_once(one.cells[0])
        if program not in seen:
            seen.add(program)
            # Cells of one program differ in numbers: two say whether they can be joined.
            cells = [cell for cell in one.cells if not is_refused(cell)]
            cells = accepted(cells[:1] + cells[1:][-1:])
            if cells:
                trace(cells, tmp_path, whole=is_traced_whole(cells[0]))


def train(names, cells, folder, *options):
    """Trains cells of tables in one process, which starts and compiles only once."""
    program = [sys.executable, "-m", "filtrax", "reproduce", *names, "--scale", "smoke"]
    only = [part for name in cells for part in ("--only", name)]
    command = [*program, *only, "--out", str(folder), *options]
    environment = os.environ | {"COLUMNS": "120"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def trains(what):
    """Training takes long, in a process of its own: any worker may do one of them."""
    return pytest.mark.xdist_group(f"training {what}")


@pytest.mark.long
@pytest.mark.parametrize("half", [pytest.param(half, marks=trains(half)) for half in (0, 1)])
def test_three_cells_of_every_table_train(half, tmp_path):
    tables = {name: read_table(name) for name in DISC[half::2]}
    cells = {name: table.cells("smoke") for name, table in tables.items()}
    wanted = {name: trained(name) for name in tables}
    names = {cell.name for chosen in wanted.values() for cell in chosen}
    done = train(tables, names, tmp_path)
    assert done.returncode == 0, done.stderr
    for name, table in tables.items():
        assert f"of {len(cells[name])} cells at scale smoke" in done.stdout
        for cell in wanted[name]:
            record = json.loads((tmp_path / name / f"{cell.name}.json").read_text())
            check_record(table, cell, record)


@pytest.mark.long
@trains("on kitti")
def test_some_cells_of_the_tables_on_kitti_train(tmp_path):
    assert {*TRAINED} | {"kitti_sensor", "kitti_process"} == {*TABLES} - {*DISC} - {*PUSHING}
    cells = [name for names in TRAINED.values() for name in names]
    done = train(TRAINED, cells, tmp_path, "--set", "task.seed=1")
    assert done.returncode == 0, done.stderr
    for name in ("kitti_sensor", "kitti_process", *TRAINED):
        table = few_folds(read_table(name))
        cells = {cell.name: cell for cell in table.cells("smoke")}
        records = {p.stem: json.loads(p.read_text()) for p in (tmp_path / name).glob("*.json")}
        assert {*TRAINED.get(name, ())} <= {*records} <= {*cells}
        for found, record in records.items():
            check_record(table, cells[found], record)
            assert record["config"]["task"]["seed"] == 1
    shared = json.loads((tmp_path / "kitti_position" / "motion_dekf_00.json").read_text())
    assert shared["shared"] == "kitti_benchmark/dekf_00"


@pytest.mark.long
@trains("on pushing")
def test_noise_of_pushing_is_tuned_by_hand_after_its_sensor_has_trained(tmp_path):
    # What else trains is traced above.
    done = train(["pushing_noise"], ["hand-tuned_dekf"], tmp_path)
    assert done.returncode == 0, done.stderr
    for name, wanted in LONGEST_WAY.items():
        table = read_table(name)
        (cell,) = (cell for cell in table.cells("smoke") if cell.name == wanted)
        records = {p.stem: json.loads(p.read_text()) for p in (tmp_path / name).glob("*.json")}
        assert [*records] == [wanted]
        check_record(table, cell, records[wanted])


def check_record(table, cell, record):
    assert ("refused" in record) == is_refused(cell)
    if "refused" not in record:
        assert record["epochs"] == {"done": cell.planned_epochs, "planned": cell.planned_epochs}
        assert np.isfinite([record["mean"][metric] for metric in known(table, record)]).all()


def known(table, record):
    """The metrics of a table that are averages over members, and never undefined."""
    undefined = {"noise_correlation"}  # of constant noise, or where nothing is ever hidden
    return [metric for metric in table.metrics if metric in record["mean"].keys() - undefined]
