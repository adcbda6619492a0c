"""The run folder: nothing half written, nothing lost, every refusal of the disk one sentence."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab import provenance as origin
from filtrax.lab.experiments.events import EventLog
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.files import RecordError, read_json, write_text, writing


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.config.write_text("name = 'a'")
    return folder


def record(epoch, stage="end to end"):
    member = {"seed": 0, "loss": 1.5, "validation": {"loss": 2.0, "distance": None}}
    return {"stage": stage, "epoch": epoch, "step": 10 * epoch, "members": [member, member]}


def refuse(monkeypatch, number):
    """Every file that is synchronized with the disk is refused with this error from now on."""

    def fsync(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_folder_with_content_is_refused_unless_its_run_goes_on(folder, tmp_path):
    # Rejects a program that overwrites an earlier run.
    with pytest.raises(RecordError, match=r"is not empty: go on with `filtrax train --resume .*ru"):
        folder.create()
    folder.create(resume=True)
    assert folder.config.read_text() == "name = 'a'"
    (tmp_path / "other").mkdir()
    RunFolder(tmp_path / "other").create()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(RecordError, match=r"mine is not empty: choose another folder with --out"):
        RunFolder(tmp_path / "mine").create()


def test_folders_that_are_no_runs_are_named(tmp_path):
    with pytest.raises(RecordError, match=r"There is no run folder at .*none"):
        RunFolder(tmp_path / "none").create(resume=True)
    with pytest.raises(RecordError, match=r"is not the folder of a run: it has no config\.toml"):
        RunFolder(tmp_path).check()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RecordError, match="a file is where a folder should be"):
            RunFolder(path).create()


def test_clear_removes_a_run_and_nothing_else(folder):
    # Rejects the removal of the whole folder.
    folder.append_metrics(record(0))
    folder.checkpoint(1).write_bytes(b"")
    for name in ("provenance", "model", "result", "evaluation", "report"):
        getattr(folder, name).write_text("")
    folder.events.mkdir()
    folder.clear()
    assert list(folder.path.iterdir()) == []
    folder.create()
    folder.config.write_text("")
    (folder.path / "letter.txt").write_text("dear")
    folder.clear()
    assert [path.name for path in folder.path.iterdir()] == ["letter.txt"]
    folder.result.write_text("not of a run: there is no configuration")
    folder.clear()
    assert folder.result.exists()


def test_json_holds_plain_numbers_and_no_nan(folder):
    content = {
        "a": np.float32(0.5),
        "b": jnp.arange(2),
        "c": (float("nan"), np.inf, None, True),
        "d": {"path": Path("x") / "y", "n": np.int64(3)},
    }
    folder.write_json(folder.result, content)
    found = read_json(folder.result)
    expected = {"a": 0.5, "b": [0, 1], "c": [None, None, None, True], "d": {"path": "x/y", "n": 3}}
    assert found == expected


def test_a_file_is_replaced_as_a_whole_or_not_at_all(folder, monkeypatch):
    folder.write_json(folder.result, {"a": 0})
    with folder.result.open() as before:
        folder.write_json(folder.result, {"a": 1})
        assert json.load(before) == {"a": 0}  # whoever reads it meanwhile sees a whole file
    refuse(monkeypatch, errno.ENOSPC)
    with pytest.raises(RecordError):
        folder.write_json(folder.result, {"a": 2})
    assert read_json(folder.result) == {"a": 1}
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"checkpoints", "config.toml", "result.json"}  # no temporary file


def test_files_of_a_killed_process_are_swept_up(folder):
    left = [folder.path / ".result.json.123", folder.path / "checkpoints" / ".checkpoint.npz.9"]
    mine = folder.path / ".notes"
    for path in (*left, mine):
        path.write_text("")
    folder.create(resume=True)
    assert [path.exists() for path in (*left, mine)] == [False, False, True]


def test_metrics_are_cut_back_to_a_checkpoint(folder):
    lines = [record(0, "a"), record(1, "a"), record(0, "b"), record(1, "b")]
    for line in lines:
        folder.append_metrics(line)
    with folder.metrics.open("a") as file:
        file.write('{"stage": "b", "epo')
    assert folder.read_metrics() == lines
    folder.truncate_metrics(3)
    assert folder.read_metrics() == lines[:3]
    folder.append_metrics(lines[3])
    assert folder.read_metrics() == lines
    folder.truncate_metrics(0)
    assert folder.metrics.read_text() == ""


def test_a_line_without_its_end_does_not_count(folder):
    # Rejects a program that joins it with the next line.
    folder.metrics.write_text('{"epoch": 1}\n{"epoch": 2}')
    assert folder.read_metrics() == [{"epoch": 1}]
    folder.truncate_metrics(9)
    assert folder.metrics.read_text() == '{"epoch": 1}\n'


def test_a_damaged_line_is_named(folder):
    folder.metrics.write_text("{}\nx\n{}\n")
    with pytest.raises(RecordError, match=r"Line 2 of .*metrics\.jsonl is damaged"):
        folder.read_metrics()
    folder.result.write_text("{")
    with pytest.raises(RecordError, match=r"result\.json is damaged"):
        read_json(folder.result)
    with pytest.raises(RecordError, match=r"There is no model\.npz in .*run"):
        read_json(folder.model)


def test_checkpoints_are_listed_newest_first(folder):
    for number in (9, 10, 1000000, 2):
        folder.checkpoint(number).write_bytes(b"")
    (folder.path / "checkpoints" / "checkpoint-old.npz").write_bytes(b"")
    assert [number for number, _ in folder.checkpoints()] == [1000000, 10, 9, 2]
    assert folder.checkpoints()[1][1] == folder.checkpoint(10)


def test_a_full_disk_says_what_is_kept_and_how_to_go_on(folder, monkeypatch):
    for epoch in range(4):
        folder.append_metrics(record(epoch))
    folder.checkpoint(3).write_bytes(b"")
    refuse(monkeypatch, errno.ENOSPC)
    with pytest.raises(RecordError) as caught:
        folder.append_metrics(record(4))
    assert str(caught.value) == (
        f"The disk is full: {folder.metrics} could not be written. Free some space. Everything up "
        f"to epoch 2 of stage 'end to end' is kept in {folder.path}; go on with "
        f"`filtrax train --resume {folder.path}`."
    )
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_is_really_full(folder):
    folder.metrics.symlink_to("/dev/full")
    with pytest.raises(RecordError, match=r"^The disk is full: .*\. No epoch was kept before\.$"):
        folder.append_metrics(record(0))


def test_a_damaged_folder_does_not_hide_that_the_disk_is_full(folder, monkeypatch):
    folder.metrics.write_text("x\n")
    folder.checkpoint(1).write_bytes(b"")
    refuse(monkeypatch, errno.ENOSPC)
    with pytest.raises(RecordError, match=r"^The disk is full: .*What was written before is in"):
        folder.write_json(folder.result, {})


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EDQUOT, "The disk is full: x could not be written"),
        (errno.EACCES, "x could not be written: it is not allowed there"),
        (errno.EROFS, "x could not be written: it is not allowed there"),
        (errno.EIO, "x could not be written: Input/output error"),
    ],
)
def test_other_refusals_are_sentences_too(number, expected):
    with pytest.raises(RecordError, match=expected), writing("x"):
        raise OSError(number, os.strerror(number))
    with pytest.raises(ZeroDivisionError), writing("x"):
        raise ZeroDivisionError


def test_a_text_whose_folder_is_missing(tmp_path):
    with pytest.raises(RecordError, match=r"none/a\.json could not be written: No such file"):
        write_text(tmp_path / "none" / "a.json", "")


def test_provenance_says_what_ran_where(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/filtrax", "train", "my config.toml"])
    found = json.loads(json.dumps(origin.provenance(seed=3)))
    assert found["command"] == "filtrax train 'my config.toml'"
    assert found["seed"] == 3
    assert found["packages"].keys() >= {"jax", "equinox", "optax", "numpy"}
    assert found["device"].keys() == {"platform", "kind", "count"}
    assert found["python"].startswith("3.")
    assert found["started"].endswith("+00:00")
    monkeypatch.setattr(sys, "argv", ["/somewhere/filtrax/__main__.py", "demo", "--out", "/a/b"])
    assert origin.provenance(seed=0)["command"] == "python -m filtrax demo --out b"
    assert origin.provenance(seed=0, command="other")["command"] == "other"


def test_absolute_paths_are_left_out_of_arguments_and_settings():
    settings = {"task": {"poses": "/home/me/poses", "root": ""}, "rates": (1e-3,), "start": None}
    shown = origin.without_folders(settings)
    assert shown == {"task": {"poses": "poses", "root": ""}, "rates": [1e-3], "start": None}
    assert origin.without_folders("task.poses=/home/me/poses") == "task.poses=poses"
    assert origin.without_folders("task.poses=my/poses") == "task.poses=my/poses"


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    command = ["git", *who, "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_package_and_of_no_other_work_tree(tmp_path, monkeypatch):
    # Rejects the commit of a project into which the package was merely installed.
    package = tmp_path / "package" / "__init__.py"
    package.parent.mkdir()
    package.write_text("")
    monkeypatch.setattr(origin, "_PACKAGE", package)
    monkeypatch.delenv("FILTRAX_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert origin._commit() == (None, None)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "readme").write_text("")
    git(tmp_path, "add", "readme")
    git(tmp_path, "commit", "--quiet", "-m", "a")
    assert origin._commit() == (None, None)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "b")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert origin._commit() == (head, False)
    package.write_text("changed")
    assert origin._commit() == (head, True)
    # Said on purpose, as for a copy of the files beside a repository that does not know them.
    monkeypatch.setenv("FILTRAX_COMMIT", "abc")
    assert origin._commit() == ("abc", None)


def test_no_git_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("FILTRAX_COMMIT", raising=False)
    assert origin._commit() == (None, None)


def events(folder):
    """All events of a TensorBoard run, as TensorBoard would read them."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("*tfevents*")
    content, found = path.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        found.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return found


def test_events_hold_every_number_of_every_member(tmp_path):
    # Rejects members that overwrite each other, and steps that are counted by epochs.
    pytest.importorskip("tensorboardX")
    assert EventLog.available()
    with EventLog(tmp_path, first_step=5) as log:
        for epoch in (1, 2):
            log.write(record(epoch))
            version, session, *written = events(tmp_path / "member-1")  # before the file is closed
            assert len(written) == epoch
    assert version.file_version == "brain.Event:2"
    assert (session.step, session.session_log.status) == (5, session.session_log.START)
    assert {path.name for path in tmp_path.iterdir()} == {"member-0", "member-1"}
    for event, step in zip(written, (10, 20), strict=True):
        assert event.step == step
        found = {value.tag: value.simple_value for value in event.summary.value}
        assert found == {"end_to_end/loss": 1.5, "end_to_end/validation/loss": 2.0}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_events_on_a_full_disk_are_an_error_and_no_endless_wait(tmp_path, monkeypatch):
    writer = pytest.importorskip("tensorboardX")

    def write():
        with EventLog(tmp_path) as log:
            log.write(record(1))

    full = writer.RecordWriter("/dev/full")
    monkeypatch.setattr(writer, "RecordWriter", lambda path: full)
    with pytest.raises(OSError, match="No space left"):
        write()


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not EventLog.available()
    with EventLog(tmp_path / "events") as log:
        log.write(record(1))
    assert not (tmp_path / "events").exists()
