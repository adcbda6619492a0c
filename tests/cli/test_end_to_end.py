"""Every verb on a tiny configuration, and every mistake as one sentence that leaves nothing."""

import errno
import json
import os
import shutil

import pytest
from typer.testing import CliRunner

import tiny_run
from filtrax.cli import app
from filtrax.lab import config
from filtrax.lab.experiments import ensembles

pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def here(own_folder, monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
    config.write("tiny.toml", tiny_run.EXPERIMENT)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_one_sentence(done, part):
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    error = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert done.stderr.endswith(error[0] + "\n")
    assert part in error[0]
    assert "Traceback" not in done.stderr


def test_train_evaluate_and_report(tmp_path):
    folder, result, _ = tiny_run.finished()
    done = call("train", "tiny.toml")
    assert done.exit_code == 0, done.output
    mine = tmp_path / "runs" / "tiny"
    assert tiny_run.content(mine) == tiny_run.content(folder)
    assert "end to end: epoch 2 of 2" in done.stderr
    assert f"{result['mean']['distance']:.3f}" in done.stdout
    done = call("evaluate", mine, "--members", "--out", "metrics.json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "metrics.json").read_text())
    assert written["mean"] == result["mean"]
    done = call("report", mine, folder, "--out", "both.html")
    assert done.exit_code == 0, done.output
    assert "<html" in (tmp_path / "both.html").read_text()
    done = call("train", "tiny.toml")
    assert_one_sentence(done, "go on with `filtrax train --resume runs/tiny`")
    done = call("train", "--resume", mine)
    assert done.exit_code == 0, done.output
    assert tiny_run.content(mine) == tiny_run.content(folder)


def test_data(tmp_path):
    small = ("num_test=2", "num_steps=3", "num_distractors=1", "image_size=20")
    settings = [part for text in small for part in ("--set", text)]
    done = call("data", "disc", *settings, "--preview", "a.png", "--export", "files")
    assert done.exit_code == 0, done.output
    assert "disc, test: 2 sequences of 3 steps" in done.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "files").rglob("*.png"))) >= 6


def test_demo(tmp_path, monkeypatch):
    folder, result, _ = tiny_run.finished()
    shutil.copytree(folder, tmp_path / "demo" / "learned")
    rows = [{"name": "learned noise", "distance": result["mean"]["distance"], "nll": 1.0}]

    def stand_in(out, watch, *, seed):
        watch.message(f"seed {seed}")
        return {"comparison": rows, "summary": "Better.", "runs": [out / "learned"]}

    monkeypatch.setattr("filtrax.lab.experiments.demo.run", stand_in)
    done = call("demo", "--out", "demo")
    assert done.exit_code == 0, done.output
    assert "Better.\nReport: demo/report.html\n" in done.stdout
    assert "<html" in (tmp_path / "demo" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("stages.0.num_epohcs=1", "num_epochs"),
        ("task.image_size=many", "whole number"),
        ("task.image_size=20", "too small for 2 convolutions"),
        ("stages.0.length=5", "at most the 4 steps"),
        ("stages.0.num_epochs=0", "at least 1, got 0"),
        ("stages.0.frames_per_batch=100", "at most 2 (length) times the 8 sub-sequences"),
        ('stages.0.train=["model.sensr"]', "sensor"),
        ("stages.0.train=[]", "at least one part"),
        ("start.run=none", "There is no run folder at none."),
        ("seed=5000000000", "at most 2147483647"),
    ],
)
def test_mistakes_leave_nothing_behind(change, part, tmp_path):
    assert_one_sentence(call("train", "tiny.toml", "--set", change), part)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.long
def test_a_full_disk_ends_with_one_sentence_and_the_run_goes_on(tmp_path, monkeypatch):
    sync, metrics = os.fsync, tmp_path / "runs" / "tiny" / "metrics.jsonl"

    def full(file):
        if metrics.is_file() and metrics.read_text().count("\n") == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    done = call("train", "tiny.toml")
    assert_one_sentence(done, "The disk is full")
    assert "filtrax train --resume runs/tiny" in done.stderr
    monkeypatch.setattr(os, "fsync", sync)
    done = call("train", "--resume", "runs/tiny")
    assert done.exit_code == 0, done.output
    mine = tmp_path / "runs" / "tiny"
    assert tiny_run.content(mine) == tiny_run.content(tiny_run.finished()[0])
