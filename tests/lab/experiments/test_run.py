"""Runs: what they write, and that nothing that interrupts them changes how they end."""

import dataclasses
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import tiny_run
from filtrax.lab import config
from filtrax.lab.config.settings import Experiment, StartSettings
from filtrax.lab.experiments import ensembles, run
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import RecordError
from filtrax.training.steps import train_steps

pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)


@pytest.fixture(scope="module")
def folder():
    return tiny_run.finished()[0]


class StopError(Exception):
    """Stands for whatever ends a process."""


class Stopping(tiny_run.Recorder):
    """Ends the run in the middle of an epoch, after so many steps of the whole run."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def step(self, done):
        super().step(done)
        if len(self.steps) == self.after:
            raise StopError


def lines(folder):
    """The metrics without the times."""
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) | {"seconds": 0} for line in text.splitlines()]


def interrupted(path, experiment=tiny_run.EXPERIMENT, after=3):
    with pytest.raises(StopError):
        run.train(experiment, path, Stopping(after))
    assert not (path / "result.json").exists()
    return path


def resumed(path, watch=None):
    return run.train(run.open_run(path).experiment, path, watch, resume=True)


def assert_same_end(path, folder):
    assert tiny_run.content(path) == tiny_run.content(folder)
    assert lines(path) == lines(folder)


def test_a_run_leaves_everything_that_belongs_to_it(folder):
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.toml",
        "run.json",
        "metrics.jsonl",
        "events",
        "checkpoints",
        "model.npz",
        "result.json",
        "evaluation.npz",
    }
    assert not [name for name in names if name.startswith(".")]
    assert config.read(Experiment, folder / "config.toml") == tiny_run.EXPERIMENT
    kept = [path.name for path in (folder / "checkpoints").iterdir()]
    assert sorted(kept) == ["checkpoint-000002.npz", "checkpoint-000003.npz"]
    origin = json.loads((folder / "run.json").read_text())
    assert origin["seed"] == 0
    assert len(list((folder / "events").iterdir())) == 2


def test_the_metrics_have_a_line_for_each_epoch(folder):
    found = lines(folder)
    _, _, watch = tiny_run.finished()
    assert [line["epoch"] for line in found] == [0, 1, 2]
    assert [line["step"] for line in found] == [0, 2, 4]
    assert watch.starts == [("end to end", 2, 2)]
    assert watch.steps == [1, 2, 1, 2]
    assert [record["epoch"] for record in watch.records] == [0, 1, 2]
    for line, seed in itertools.product(found, (0, 1)):
        member = line["members"][seed]
        assert member["seed"] == seed
        assert member["learning_rate"] == 0.003
        assert (member["loss"] is None) == (line["epoch"] == 0)
        assert (member["gradient_norm"] is None) == (line["epoch"] == 0)
        assert set(member["validation"]) == {"loss", "distance"}
    losses = np.asarray([[m["validation"]["loss"] for m in line["members"]] for line in found])
    np.testing.assert_array_equal([m["best"] for m in found[-1]["members"]], losses.min(0))


def test_the_result_says_what_was_achieved(folder):
    _, result, _ = tiny_run.finished()
    assert json.loads((folder / "result.json").read_text()) == result
    assert (result["name"], result["filter"], result["split"]) == ("tiny", "ekf", "test")
    assert result["task"] == config.as_dict(tiny_run.TASK)
    assert (result["num_sequences"], result["perturbations"]) == (3, 5)
    assert [member["seed"] for member in result["members"]] == [0, 1]
    last = lines(folder)
    for index, member in enumerate(result["members"]):
        losses = [line["members"][index]["validation"]["loss"] for line in last]
        assert member["best_epoch"] == int(np.argmin(losses))
        assert member["validation"]["loss"] == min(losses)
        assert (member["rollbacks"], member["learning_rate"]) == (0, 0.003)
    for name in (
        "distance",
        "nll",
        "sensor_error",
        "nees",
        "coverage_90",
        "noise_correlation",
        "process_noise_distance",
    ):
        values = [member["metrics"][name] for member in result["members"]]
        np.testing.assert_allclose(result["mean"][name], np.mean(values))
        error = np.std(values, ddof=1) / np.sqrt(2)
        np.testing.assert_allclose(result["standard_error"][name], error, atol=1e-12)


def test_a_run_that_was_stopped_in_an_epoch_ends_the_same(folder, tmp_path):
    # Rejects a state that is not in the checkpoint, and metrics of epochs that are made again.
    path = interrupted(tmp_path / "run", after=3)
    assert len(lines(path)) == 2
    watch = tiny_run.Recorder()
    assert resumed(path, watch) == tiny_run.finished()[1]
    assert_same_end(path, folder)
    assert watch.messages == []
    assert [record["epoch"] for record in watch.records] == [2]


def test_a_killed_run_ends_with_the_same_bytes(folder, tmp_path):
    # Rejects files that are complete only if the process ends in good order.
    path = tmp_path / "run"
    program = f"""
import os, signal
from pathlib import Path
import numpy as np
import tiny_run
from filtrax.lab.experiments import run

class Watch(tiny_run.Recorder):
    def epoch(self, record):
        # The next checkpoint is cut off while it is written.
        if record["epoch"] == 1:
            save = np.savez
            def cut(file, **arrays):
                save(file, **arrays)
                file.truncate(100)
                os.kill(os.getpid(), signal.SIGKILL)
            np.savez = cut

run.train(tiny_run.EXPERIMENT, Path({str(path)!r}), Watch())
"""
    command, environment = [sys.executable, "-c", program], tiny_run.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list((path / "checkpoints").glob(".*"))) == 1
    assert len(lines(path)) == 3  # the line of the epoch whose checkpoint was never finished
    resumed(path)
    assert_same_end(path, folder)
    assert not list((path / "checkpoints").glob(".*"))


def test_a_truncated_checkpoint_falls_back_to_the_one_before(folder, tmp_path):
    path = interrupted(tmp_path / "run", after=3)
    newest = path / "checkpoints" / "checkpoint-000002.npz"
    newest.write_bytes(newest.read_bytes()[:-100])
    watch = tiny_run.Recorder()
    resumed(path, watch)
    assert_same_end(path, folder)
    (message,) = watch.messages
    assert "checkpoint-000002.npz is not a complete file" in message
    assert message.endswith("It is left out, and the one before it is tried.")
    assert [record["epoch"] for record in watch.records] == [1, 2]


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(folder, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(folder, path)
    for name in ("model.npz", "result.json", "evaluation.npz"):
        (path / name).unlink()
    watch = tiny_run.Recorder()
    resumed(path, watch)
    assert_same_end(path, folder)
    assert watch.records == []
    ours, theirs = np.load(path / "evaluation.npz"), np.load(folder / "evaluation.npz")
    assert ours.files == theirs.files
    for name in ours.files:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_a_run_that_was_killed_before_its_first_epoch_can_be_resumed(folder, tmp_path):
    path = tmp_path / "run"
    records = RunFolder(path)
    records.create()
    config.write(records.config, tiny_run.EXPERIMENT)
    resumed(path)
    assert_same_end(path, folder)
    assert records.provenance.is_file()


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """One seed with two learning rates, of which the second is far too large."""
    path = tmp_path_factory.mktemp("searched") / "run"
    stage = dataclasses.replace(tiny_run.STAGE, learning_rates=(3e-3, 30.0))
    experiment = tiny_run.changed(num_seeds=1, stages=(stage,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
        watch = tiny_run.Recorder()
        return path, run.train(experiment, path, watch), watch


def test_the_learning_rate_with_the_best_validation_loss_is_kept(searched, folder):
    path, result, watch = searched
    (member,) = result["members"]
    assert (member["seed"], member["learning_rate"]) == (0, 3e-3)
    assert result["standard_error"]["distance"] is None
    assert len(lines(path)[0]["members"]) == 2
    # The first learning rate is that of the plain run, and members do not depend on others.
    alone = json.loads((folder / "result.json").read_text())["members"][0]
    np.testing.assert_allclose(member["metrics"]["nll"], alone["metrics"]["nll"], rtol=1e-9)
    assert run.evaluate(path)["members"] == result["members"]
    assert any("Seed 0 diverged" in message for message in watch.messages)


def test_a_run_begins_with_the_trained_parts_of_another_one_member_for_all(searched, tmp_path):
    # Rejects parts of the member that was not chosen, and parts that were not named.
    start = StartSettings(str(searched[0]), ("model.sensor", "model.process"))
    experiment = tiny_run.changed(start=start)
    begun = run.Run(experiment, RunFolder(tmp_path / "run"), run.Silent())
    _, model = begun.training.begin([tiny_run.TASK.data("train")], run.trained_parts)
    _, trained = run.open_run(searched[0]).trained()
    _, fresh = tiny_run.build_once(experiment, None)
    for part in ("sensor", "process"):
        leaves = zip(*(jax.tree.leaves(getattr(m, part)) for m in (model, trained)), strict=True)
        for ours, theirs in leaves:
            if hasattr(ours, "shape"):
                np.testing.assert_array_equal(ours[0], theirs[0])
                np.testing.assert_array_equal(ours[1], theirs[0])
    np.testing.assert_array_equal(model.process_noise.bias, fresh.process_noise.bias)


def test_members_begin_with_those_of_their_seeds(folder, tmp_path):
    # Rejects a search of learning rates, or a run of fewer seeds, that is refused.
    rates = dataclasses.replace(tiny_run.STAGE, learning_rates=(1e-3, 1e-4))
    start = StartSettings(str(folder), ("model.process",))
    _, trained = run.open_run(folder).trained()
    for changes, expected in (({"num_seeds": 1}, [0]), ({"stages": (rates,)}, [0, 1, 0, 1])):
        experiment = tiny_run.changed(start=start, **changes)
        begun = run.Run(experiment, RunFolder(tmp_path / "run"), run.Silent())
        _, model = begun.training.begin([tiny_run.TASK.data("train")], run.trained_parts)
        leaves = zip(*(jax.tree.leaves(m.process) for m in (model, trained)), strict=True)
        for ours, theirs in leaves:
            if hasattr(ours, "shape"):
                np.testing.assert_array_equal(ours, theirs[np.asarray(expected)])


def test_a_start_that_cannot_be_leaves_nothing_behind(folder, tmp_path):
    path = tmp_path / "run"
    cases = [
        (tiny_run.changed(start=StartSettings(str(tmp_path / "none"))), "There is no run folder"),
        (
            tiny_run.changed(start=StartSettings(str(folder), ("model.sensr",))),
            "sensor",
        ),
        (
            tiny_run.changed(start=StartSettings(str(folder)), num_seeds=3),
            "must have one member, or one for each of the 3 seeds of this run: .* has 2",
        ),
        (
            tiny_run.changed(stages=(dataclasses.replace(tiny_run.STAGE, train=("model.none",)),)),
            "whose parts must exist",
        ),
    ]
    for experiment, message in cases:
        with pytest.raises((ValueError, OSError), match=message):
            run.train(experiment, path)
        assert not path.exists()


def test_two_stages_follow_each_other_and_resume_in_either(tmp_path):
    # Rejects a second stage that begins anew, and a checkpoint of one stage read as another's.
    second = dataclasses.replace(tiny_run.STAGE, name="again", num_epochs=1)
    first = dataclasses.replace(tiny_run.STAGE, num_epochs=1)
    experiment = tiny_run.changed(stages=(first, second))
    whole = tmp_path / "whole"
    watch = tiny_run.Recorder()
    run.train(experiment, whole, watch)
    assert watch.starts == [("end to end", 1, 2), ("again", 1, 2)]
    found = lines(whole)
    assert [(line["stage"], line["epoch"]) for line in found] == [
        ("end to end", 0),
        ("end to end", 1),
        ("again", 0),
        ("again", 1),
    ]
    best = [min(line["members"][i]["validation"]["loss"] for line in found[:2]) for i in (0, 1)]
    np.testing.assert_allclose([m["validation"]["loss"] for m in found[2]["members"]], best)
    path = interrupted(tmp_path / "stopped", experiment, after=3)
    resumed(path)
    assert_same_end(path, whole)


def test_a_disk_that_is_full_from_the_start_leaves_a_folder_that_can_be_used(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="The disk is full"):
        run.train(tiny_run.EXPERIMENT, path)
    monkeypatch.undo()
    RunFolder(path).create()


def test_a_rollback_is_told_with_its_seed(searched):
    _, _, watch = searched
    message = next(message for message in watch.messages if "diverged" in message)
    assert "epoch 1" in message
    assert "rollback 1" in message


def test_numbers_of_the_experiment_do_not_compile_again(folder, tmp_path):
    # Rejects start values, rates and weights that are compiled in: each costs half a minute.
    del folder
    before = train_steps._cached._cache_size()
    stage = dataclasses.replace(
        tiny_run.STAGE, learning_rates=(1e-3,), sensor_weight=0.5, clip_norm=2.0, num_epochs=1
    )
    model = dataclasses.replace(tiny_run.EXPERIMENT.model, process_std=5.0, sensor_std=20.0)
    run.train(tiny_run.changed(model=model, stages=(stage,), seed=2), tmp_path / "run")
    assert train_steps._cached._cache_size() == before


def test_evaluate_needs_a_run_that_has_finished(tmp_path):
    path = interrupted(tmp_path / "run", after=1)
    with pytest.raises(FileNotFoundError, match=r"has not finished training: go on with `filtrax"):
        run.evaluate(path)
