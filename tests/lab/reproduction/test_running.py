"""Training of cells: records do not depend on company, interruptions or other processes."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys

import equinox as eqx
import jax
import numpy as np
import pytest
from reproduction.tiny_table import (
    DATA,
    NOISE,
    Recorder,
    StoppedClock,
    Ticking,
    timeless,
    tiny_table,
)

import tiny_run
from filtrax.lab import config
from filtrax.lab.config.filters import Ekf
from filtrax.lab.experiments import ensembles
from filtrax.lab.reproduction import scheduling
from filtrax.lab.reproduction.groups import group
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results, read_records
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.tables import Axis, Value
from filtrax.training.parts import trainable

pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)


@pytest.fixture(scope="module", autouse=True)
def programs():
    """The compiled programs, which other tests share and other processes find on the disk."""
    return tiny_run.finished()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Cells of a table, each of them alone, and what the watch was told."""
    results, watch = Results(tmp_path_factory.mktemp("whole")), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
        plan = Plan(together=False, only=("*_3",))
        assert reproduce([tiny_table(NOISE, DATA)], results, plan, watch)
    return results, watch


@pytest.fixture
def one_cell(whole):
    """A table with one of these cells, and its record."""
    return tiny_table(Axis("noise", NOISE.values[1:]), DATA), Plan(only=("large_3",)), whole[0]


def record_of(results, name="large_3", table="tiny"):
    return json.loads((results.path / table / f"{name}.json").read_text())


def assert_same_record(results, whole, name="large_3"):
    ours, theirs = (record_of(one, name) for one in (results, whole))
    assert timeless(ours) == timeless(theirs)


class KilledError(Exception):
    """Stands for the end of a process."""


class Killing(Recorder):
    """Ends the process in the last epoch, after checkpoints are not written any more."""

    def step(self, done):
        if len(self.records) == 2:
            raise KilledError


def test_a_record_says_everything_of_its_cell(whole):
    results, _ = whole
    found = record_of(results)
    cells = {cell.name: cell for cell in tiny_table(NOISE, DATA).cells("paper")}
    assert found["table"] == "tiny"
    assert found["cell"] == {"noise": "large", "data": "3"}
    assert found["scale"] == "paper"
    assert found["epochs"] == {"done": 2, "planned": 2}
    assert found["seeds"] == [0, 1]
    both = tiny_run.build_once(cells["large_3"].experiment, None)
    leaves = jax.tree.leaves(eqx.filter(both, trainable(*both, ("model",))))
    assert found["parameters"] == sum(leaf[0].size for leaf in leaves)
    assert found["seconds"]["members"] == 2
    assert found["seconds"]["training"] > 0
    assert found["origin"]["command"]
    assert found["origin"]["device"]["platform"] == "cpu"
    assert found["config"]["model"]["process_std"] == 9.0
    assert found["config"]["task"]["position_std"] == 3.0
    for index, member in enumerate(found["members"]):
        assert (member["seed"], member["learning_rate"], member["rollbacks"]) == (index, 3e-3, 0)
        assert member["best_epoch"] in (0, 1, 2)
        assert set(member["validation"]) == {"loss", "distance"}
    for name in ("distance", "nll", "moment_nll", "coverage_50", "sensor_error"):
        values = [member["metrics"][name] for member in found["members"]]
        np.testing.assert_allclose(found["mean"][name], np.mean(values))
        error = np.std(values, ddof=1) / np.sqrt(2)
        np.testing.assert_allclose(found["standard_error"][name], error, atol=1e-12)
    assert "shown" not in found
    assert set(read_records(results.path, tiny_table(NOISE, DATA))) == {"small_3", "large_3"}


def test_the_watch_is_told_what_trains_and_nothing_is_left_over(whole):
    results, watch = whole
    names = ["small_3", "large_3"]
    assert watch.groups == [([name], i, 2) for i, name in enumerate(names)]
    left = [path for path in results.path.rglob("*") if path.is_file()]
    assert sorted(path.stem for path in left) == sorted(names)


def assert_same_as_alone(names, results, whole):
    """One seed of each cell together is the first seed of each alone."""
    distances = set()
    for name in names:
        ours, theirs = record_of(results, name), record_of(whole, name)
        (ours_member,), theirs_member = ours["members"], theirs["members"][0]
        for part in ("metrics", "validation"):
            assert set(ours_member[part]) == set(theirs_member[part])
            for metric, value in theirs_member[part].items():
                both = np.asarray([ours_member[part][metric], value], float)  # None becomes NaN
                np.testing.assert_allclose(both[0], both[1], rtol=1e-6, err_msg=metric)
        for key in ("seed", "learning_rate", "rollbacks", "best_epoch"):
            assert ours_member[key] == theirs_member[key]
        assert ours["cell"] == theirs["cell"]
        assert ours["parameters"] == theirs["parameters"]
        assert ours["seconds"]["members"] == len(names)
        assert ours["standard_error"]["distance"] is None
        distances.add(ours_member["metrics"]["distance"])
    assert len(distances) == len(names)


def test_cells_that_train_together_have_the_same_records_as_alone(whole, tmp_path):
    # Rejects members that have the numbers or the random draws of others.
    results, watch = Results(tmp_path), Recorder()
    plan = Plan(together=True, num_seeds=1, only=("*_3",))
    assert reproduce([tiny_table(NOISE, DATA)], results, plan, watch)
    names = ["small_3", "large_3"]
    assert watch.groups == [(names, 0, 2)]
    assert_same_as_alone(names, results, whole[0])


@pytest.mark.long
def test_cells_with_other_data_train_together(whole, tmp_path):
    # Rejects members that see the data of others. It compiles a program of its own.
    results, watch = Results(tmp_path / "together"), Recorder()
    plan = Plan(together=True, num_seeds=1, most_data_sets=2)
    assert reproduce([tiny_table(NOISE, DATA)], results, plan, watch)
    names = ["small_0.1", "large_0.1", "small_3", "large_3"]
    assert watch.groups == [(names, 0, 4)]
    alone = Results(tmp_path / "alone")
    shutil.copytree(whole[0].path, alone.path)
    assert reproduce([tiny_table(NOISE, DATA)], alone, Plan(together=False))
    assert_same_as_alone(names, results, alone)


def test_a_training_that_ran_out_of_time_goes_on(one_cell, tmp_path, monkeypatch):
    table, plan, whole = one_cell
    clock, results = StoppedClock(), Results(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "time", clock)
        limited = dataclasses.replace(plan, seconds=1.0)
        watch = Ticking(clock)
        assert not reproduce([table], results, limited, watch)
    assert [record["epoch"] for record in watch.records] == [0, 1]
    assert not list(tmp_path.rglob("large_3.json"))
    watch = Recorder()
    assert reproduce([table], results, plan, watch)
    assert [record["epoch"] for record in watch.records] == [2]
    assert_same_record(results, whole)
    assert not any(path.is_dir() for path in tmp_path.glob("tiny/unfinished/*"))


def test_a_training_that_was_interrupted_in_an_epoch_goes_on(one_cell, tmp_path):
    table, plan, whole = one_cell
    results = Results(tmp_path)
    with pytest.raises(KilledError):
        reproduce([table], results, plan, Killing())
    watch = Recorder()
    assert reproduce([table], results, plan, watch)
    # A minute has not passed, so the only checkpoint is the one before the first epoch.
    assert [record["epoch"] for record in watch.records] == [1, 2]
    assert_same_record(results, whole)


@pytest.mark.parametrize("left", ["half a configuration", "a configuration"])
def test_a_training_that_was_killed_while_it_began_begins_again(left, one_cell, tmp_path):
    # Rejects a folder that can neither be created nor resumed, and a record without origin.
    table, plan, whole = one_cell
    results = Results(tmp_path)
    (cell,) = plan.cells(table)
    (only,) = group([cell])
    folder = results.unfinished(only.table, only.name)
    folder.create()
    if left == "half a configuration":
        (folder.path / ".config.toml.123").write_text("[task")
    if left == "a configuration":
        config.write(folder.config, cell.experiment)
    assert reproduce([table], results, plan)
    assert_same_record(results, whole)


@pytest.mark.long
def test_a_killed_process_goes_on(one_cell, tmp_path):
    table, plan, whole = one_cell
    program = f"""
import os, signal
from pathlib import Path
import tiny_run
from filtrax.lab.reproduction import Plan, executors, reproduce
from filtrax.lab.reproduction.records import Results
from reproduction.tiny_table import DATA, NOISE, Recorder, tiny_table

executors.SECONDS_BETWEEN_CHECKPOINTS = 0.0

class Watch(Recorder):
    def epoch(self, record):
        if record["epoch"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)

plan = Plan(only=("large_3",))
reproduce([tiny_table(NOISE, DATA)], Results(Path({str(tmp_path)!r})), plan, Watch())
"""
    command, environment = [sys.executable, "-c", program], tiny_run.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    results, watch = Results(tmp_path), Recorder()
    assert reproduce([table], results, plan, watch)
    assert [record["epoch"] for record in watch.records] == [2]
    ours, theirs = (timeless(record_of(one)) for one in (results, whole))
    assert ours | {"origin": {}} == theirs | {"origin": {}}


@dataclasses.dataclass(frozen=True)
class Fussy(Ekf):
    """A filter that refuses some of its numbers."""

    limit: float = 1.0

    @property
    def program(self):
        return Ekf()

    def build(self, task, model, example, *, key):
        if self.limit < 0:
            raise ValueError(f"limit must not be negative, got {self.limit}.")
        return super().build(task, model, example, key=key)


def fussy(limit):
    return lambda experiment: dataclasses.replace(experiment, filter=Fussy(limit=limit))


def test_a_refusal_is_a_result_and_the_others_train(tmp_path):
    values = (Value("bad", change=fussy(-1.0)), Value("good", change=fussy(1.0)))
    results, watch = Results(tmp_path), Recorder()
    table = tiny_table(Axis("noise", values))
    assert reproduce([table], results, Plan(together=True, num_epochs=1), watch)
    assert [names for names, *_ in watch.groups] == [["bad", "good"]]
    refused, trained = record_of(results, "bad"), record_of(results, "good")
    assert refused["refused"] == "limit must not be negative, got -1.0."
    assert (refused["table"], refused["cell"], refused["scale"]) == (
        "tiny",
        {"noise": "bad"},
        "paper",
    )
    assert refused["config"]["filter"]["limit"] == -1.0
    assert refused["origin"]["command"]
    assert "mean" not in refused
    assert np.isfinite(trained["mean"]["distance"])
    assert trained["seconds"]["members"] == 2
    # That there were fewer epochs than the table says is in the record, too.
    assert trained["epochs"] == {"done": 1, "planned": 2}
    assert trained["config"]["stages"][0]["num_epochs"] == 1


def test_a_table_of_refusals_alone_is_done_at_once(tmp_path):
    table = tiny_table(Axis("noise", (Value("bad", change=fussy(-1.0)),)))
    assert reproduce([table], Results(tmp_path), Plan())
    assert record_of(Results(tmp_path), "bad")["refused"]


def test_cells_begin_with_the_models_of_other_cells_which_train_first(started, tmp_path):
    results, watch = Results(tmp_path / "out"), Recorder()
    plan = Plan(only=("large_3",))
    assert reproduce([started], results, plan, watch)
    # Of the other table only what is needed.
    assert [names for names, *_ in watch.groups] == [["3"], ["large_3"]]
    source = record_of(results, "3", "tiny_source")
    assert results.model("tiny_source", "3").model.is_file()
    assert not (results.path / "tiny" / "models").exists()
    first = next(r for r in watch.records[1:] if r["epoch"] == 0)
    for ours, theirs in zip(first["members"], source["members"], strict=True):
        np.testing.assert_allclose(ours["validation"]["loss"], theirs["validation"]["loss"])
    assert record_of(results)["config"]["start"]["parts"] == ["model"]
    # Records alone were copied to another place: the source trains again there, and nothing else.
    other = Results(tmp_path / "other")
    shutil.copytree(results.path / "tiny_source", other.path / "tiny_source")
    shutil.rmtree(other.path / "tiny_source" / "models")
    watch = Recorder()
    assert reproduce([started], other, plan, watch)
    assert [names for names, *_ in watch.groups] == [["3"], ["large_3"]]
    watch = Recorder()
    shutil.rmtree(other.path / "tiny_source" / "models")
    assert reproduce([started], other, plan, watch)
    assert watch.groups == []
