"""Runs that are killed, damaged, edited, or resumed twice: nothing is lost, nothing is stuck."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tiny_run
from filtrax.lab.experiments import ensembles, run
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import RecordError

LONG = pytest.mark.long
pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)


@pytest.fixture(scope="module")
def whole():
    return tiny_run.content(tiny_run.finished()[0])


class Killed(BaseException):
    """Stands for SIGKILL, after which no cleaning up happens."""


@contextlib.contextmanager
def killed_at(moment, monkeypatch):
    """Ends the process at the n-th call that changes the disk, and lets nothing be removed."""
    calls = iter(range(10**9))
    with monkeypatch.context() as patch:
        for module, name in ((os, "fsync"), (os, "replace"), (Path, "mkdir")):
            original = getattr(module, name)

            def dying(*arguments, original=original, **options):
                if next(calls) >= moment:
                    raise Killed
                return original(*arguments, **options)

            patch.setattr(module, name, dying)
        unlink = Path.unlink

        def kept(path, missing_ok=False):
            if sys.exc_info()[0] is Killed:
                raise Killed
            unlink(path, missing_ok=missing_ok)

        patch.setattr(Path, "unlink", kept)
        yield


def go_on(path, watch=None):
    """Does what a user does: resumes what can be resumed, or starts again."""
    if RunFolder(path).config.is_file():
        return run.train(run.open_run(path).experiment, path, watch, resume=True)
    if path.exists() and any(path.iterdir()):
        with pytest.raises(RecordError, match="start it again, without --resume"):
            RunFolder(path).check()
    return run.train(tiny_run.EXPERIMENT, path, watch)


def killed_and_resumed(moment, path, monkeypatch):
    with killed_at(moment, monkeypatch):
        try:
            run.train(tiny_run.EXPERIMENT, path)
        except Killed:
            died = True
        else:
            died = False
    if died:
        go_on(path)
    return died


@pytest.mark.parametrize("moment", [1, *(pytest.param(m, marks=LONG) for m in (0, 2, 3, 4))])
def test_a_run_killed_at_a_write_goes_on_to_the_same_bytes(moment, whole, tmp_path, monkeypatch):
    # Moments 1 to 4 are those of the first file, which left a folder that nothing could use.
    assert killed_and_resumed(moment, tmp_path / "run", monkeypatch)
    assert tiny_run.content(tmp_path / "run") == whole
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.is_file()]


@pytest.mark.long
def test_a_run_killed_at_any_write_goes_on_to_the_same_bytes(whole, tmp_path, monkeypatch):
    moment = 0
    while killed_and_resumed(moment, tmp_path / str(moment), monkeypatch):
        assert tiny_run.content(tmp_path / str(moment)) == whole, moment
        moment += 1
    assert moment >= 15


PROGRAM = """
import sys
from pathlib import Path
import jax
jax.config.update("jax_numpy_dtype_promotion", "strict")
import tiny_run
from filtrax.lab.experiments import run
from filtrax.lab.experiments.records import RunFolder
path = Path(sys.argv[1])
print("begun", flush=True)
if RunFolder(path).config.is_file():
    run.train(run.open_run(path).experiment, path, resume=True)
else:
    run.train(tiny_run.EXPERIMENT, path)
"""


def process(path):
    command = [sys.executable, "-c", PROGRAM, str(path)]
    started = subprocess.Popen(command, env=tiny_run.environment(), stdout=subprocess.PIPE)
    started.stdout.readline()
    started.stdout.close()
    return started


@pytest.mark.long
def test_a_run_killed_at_50_random_moments_goes_on_to_the_same_bytes(tmp_path):
    for name in ("warm", "whole"):  # the first one fills the cache of programs
        began = time.monotonic()
        assert process(tmp_path / name).wait() == 0
    whole, seconds = tiny_run.content(tmp_path / "whole"), time.monotonic() - began
    draw, kills = random.Random(0), 0
    for number in range(50):
        path = tmp_path / str(number)
        started = process(path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(draw.uniform(0, seconds))
        started.kill()
        kills += started.wait() == -signal.SIGKILL
        assert process(path).wait() == 0, number
        assert tiny_run.content(path) == whole, number
        shutil.rmtree(path)
    assert kills >= 30


class StopError(Exception):
    """Stands for whatever ends a process."""


class Stopping(tiny_run.Recorder):
    """Ends the run in the middle of its second epoch, when two checkpoints are there."""

    def step(self, done):
        super().step(done)
        if len(self.steps) == 3:
            raise StopError


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
        with pytest.raises(StopError):
            run.train(tiny_run.EXPERIMENT, path, Stopping())
    return path


@pytest.fixture
def begun(interrupted, tmp_path):
    """A copy of a run with checkpoints 1 and 2."""
    path = shutil.copytree(interrupted, tmp_path / "run")
    assert [number for number, _ in RunFolder(path).checkpoints()] == [2, 1]
    return path


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 255
    return bytes(changed)


DAMAGE = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-10],
    "a byte in the middle": lambda data: flipped(data, len(data) // 2),
    "a byte of a header": lambda data: flipped(data, 60),
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"What is this?" * 99,
}


@pytest.mark.parametrize("kind", ["half", *(pytest.param(k, marks=LONG) for k in DAMAGE)])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(kind, begun, whole):
    newest, watch = RunFolder(begun).checkpoint(2), tiny_run.Recorder()
    newest.write_bytes(DAMAGE[kind](newest.read_bytes()))
    go_on(begun, watch)
    assert tiny_run.content(begun) == whole
    (message,) = watch.messages
    assert "checkpoint-000002.npz is not a complete file" in message
    assert message.endswith("It is left out, and the one before it is tried.")


def other_zip(folder):
    np.savez(folder.checkpoint(2), a=np.zeros(3))


def lying(folder):
    data = folder.checkpoint(2).read_bytes()
    folder.checkpoint(2).write_bytes(data.replace(b"'shape': (", b"'shape': (9", 1))


def of_no_epoch(folder):
    shutil.copy(folder.checkpoint(1), folder.checkpoint(0))
    shutil.copy(folder.checkpoint(1), folder.checkpoint(9))


def without_lines(folder):
    folder.truncate_metrics(1)


MORE = [pytest.param(damage, marks=LONG) for damage in (without_lines, other_zip, lying)]


@pytest.mark.parametrize("damage", [of_no_epoch, *MORE])
def test_checkpoints_that_cannot_be_are_left_out(damage, begun, whole):
    watch = tiny_run.Recorder()
    damage(RunFolder(begun))
    go_on(begun, watch)
    assert tiny_run.content(begun) == whole
    assert len(watch.messages) == 1
    assert watch.messages[0].endswith("It is left out, and the one before it is tried.")


@pytest.mark.long
@pytest.mark.parametrize("lost", ["metrics.jsonl", "run.json", "checkpoints", "events"])
def test_what_is_lost_is_trained_again(lost, begun, whole):
    remove = shutil.rmtree if (begun / lost).is_dir() else Path.unlink
    remove(begun / lost)
    go_on(begun)
    assert tiny_run.content(begun) == whole


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("num_epochs = 2", "num_epochs = 1", "stages.0.num_epochs is 1, was 2"),
        ("num_epochs = 2", "num_epochs = 3", "stages.0.num_epochs is 3, was 2"),
        ("num_seeds = 2", "num_seeds = 1", "num_seeds is 1, was 2"),
        ("\nseed = 0\nnum_seeds", "\nseed = 7\nnum_seeds", "seed is 7, was 0"),
        ("length = 2", "length = 1", "stages.0.length is 1, was 2"),
        ("0.003", "0.004", "stages.0.learning_rates.0 is 0.004, was 0.003"),
    ],
)
def test_a_run_whose_settings_were_edited_is_not_resumed(old, new, change, begun):
    config = begun / "config.toml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(ValueError, match="A resumed run keeps its settings") as caught:
        go_on(begun)
    assert change in str(caught.value)
    assert "--out OTHER" in str(caught.value)


@LONG
def test_another_name_is_told_and_taken(begun, whole):
    config, watch = begun / "config.toml", tiny_run.Recorder()
    config.write_text(config.read_text().replace('name = "tiny"', 'name = "other"', 1))
    go_on(begun, watch)
    told = "Settings were changed after the run began: name is 'other', was 'tiny'."
    assert watch.messages == [told]
    assert json.loads(tiny_run.content(begun)["result.json"])["name"] == "other"
    assert tiny_run.content(begun)["model.npz"] == whole["model.npz"]


HOLDER = """
import sys, time
from pathlib import Path
from filtrax.lab.experiments.records import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(100)
"""


def test_a_run_is_resumed_by_one_process_and_a_dead_one_keeps_no_lock(begun, whole):
    command = [sys.executable, "-c", HOLDER, str(begun)]
    environment = tiny_run.environment()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
        with pytest.raises(RecordError, match="Another process works on the run in"):
            go_on(begun)
        after = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
        assert after == before
        holder.kill()
    go_on(begun)
    assert tiny_run.content(begun) == whole


@LONG
def test_two_processes_cannot_begin_in_one_folder(tmp_path, whole):
    folder = RunFolder(tmp_path / "run")
    folder.create()
    with folder.locked(), pytest.raises(RecordError, match="Another process"):
        run.train(tiny_run.EXPERIMENT, folder.path)
    run.train(tiny_run.EXPERIMENT, folder.path)
    assert tiny_run.content(folder.path) == whole


STAGES = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
stage, folder = sys.argv[1:]

def hang(*_, **__):
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        if stage == "twice":
            print("again", flush=True)
            time.sleep(60)

if stage == "import":
    import importlib.abc

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            return hang() if name == "filtrax.cli" else None

    sys.meta_path.insert(0, Slow())
else:
    import filtrax.lab.config
    import filtrax.lab.experiments.run as run

    if stage == "configuration":
        filtrax.lab.config.read = hang
    run.train = hang
sys.argv = ["filtrax", "train", "--set", "num_seeds=2", "--out", folder]
if stage == "resume":
    sys.argv = ["filtrax", "train", "--resume", folder]
from filtrax.__main__ import main
main()
"""
RESUME = "Go on with `filtrax train --resume {}`."
AGAIN = "The same command begins again."


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        pytest.param("import", AGAIN, marks=LONG),
        ("configuration", AGAIN),
        pytest.param(
            "training", "Nothing was trained yet: the same command begins again.", marks=LONG
        ),
        pytest.param("resume", RESUME, marks=LONG),
        ("twice", "Nothing was trained yet: the same command begins again."),
    ],
)
def test_ctrl_c_ends_with_130_and_the_right_advice(stage, advice, begun, tmp_path):
    folder = begun if stage == "resume" else tmp_path / "new"
    command, pipe = [sys.executable, "-c", STAGES, stage, str(folder)], subprocess.PIPE
    environment = tiny_run.environment()
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as started:
        assert started.stdout.readline() == "ready\n"
        started.send_signal(signal.SIGINT)
        if stage == "twice":
            assert started.stdout.readline() == "again\n"
            started.send_signal(signal.SIGINT)
        _, error = started.communicate(timeout=30)
    assert started.returncode == 130
    assert error.strip() == f"Interrupted. {advice.format(folder)}"


def test_a_record_of_edited_settings_is_complete(begun):
    # Rejects a comparison that some settings escape.
    settings = json.loads((begun / "run.json").read_text())["settings"]
    fields = {field.name for field in dataclasses.fields(tiny_run.EXPERIMENT)}
    assert set(settings) == fields
