"""Run folders: complete ones, unfinished ones, and those that are not what they should be."""

import json

import numpy as np
import pytest
from report.fake_run import Sizes, evaluation, write_run

from filtrax.lab import report
from filtrax.lab.report.reading import read_runs


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs" / "disc")


def change_evaluation(folder, **arrays):
    with np.load(folder / "evaluation.npz") as archive:
        stored = dict(archive)
    np.savez(folder / "evaluation.npz", **(stored | arrays))


def test_reads_what_was_written(run):
    (read,) = read_runs([run])
    expected = evaluation(Sizes())
    assert read.name == "disc"
    assert read.facts["commit"].startswith("0123456789abcdef")
    assert [(e["stage"], e["epoch"]) for e in read.epochs][4:6] == [
        ("pretrain sensor", 4),
        ("end to end", 0),
    ]
    assert read.result is not None
    for name, array in expected.items():
        np.testing.assert_array_equal(read.evaluation[name], array)


def test_an_unfinished_run_is_read_as_far_as_it_has_come(tmp_path):
    folder = write_run(tmp_path / "disc", finished=False)
    (folder / "metrics.jsonl").unlink()
    (read,) = read_runs([folder])
    assert (read.result, read.epochs, read.evaluation) == (None, [], {})


def test_half_a_last_line_is_left_out(run):
    whole = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(whole)[:-30])
    (read,) = read_runs([run])
    assert [dict(epoch) for epoch in read.epochs] == [json.loads(line) for line in whole[:-1]]


def test_an_epoch_that_was_run_again_counts_once_and_as_the_later_one(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    again = json.loads(lines[-1]) | {"seconds": 99.0}
    (run / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(again)]))
    (read,) = read_runs([run])
    assert len(read.epochs) == len(lines)
    assert read.epochs[-1]["seconds"] == 99.0


def test_names_tell_runs_apart_and_a_run_named_twice_is_read_once(tmp_path):
    folders = [write_run(tmp_path / place / "disc", finished=False) for place in ("a", "b")]
    assert [run.name for run in read_runs([*folders, folders[0]])] == ["a/disc", "b/disc"]


def test_no_run_and_no_folder_are_errors(tmp_path, run):
    with pytest.raises(ValueError, match="at least one run folder"):
        report.write([], tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match=r"existing folder, but there is none at .*nowhere"):
        report.write([tmp_path / "nowhere"], tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"no config\.toml and no run\.json"):
        report.write([tmp_path], tmp_path / "report.html")
    with pytest.raises(ValueError, match="must be a file, but"):
        report.write([run], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_broken_line_before_the_last_is_an_error(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[2] = lines[2][:40]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"Line 3 of .*metrics\.jsonl must hold JSON"):
        read_runs([run])
    lines[2] = '{"epoch": 3}'
    (run / "metrics.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"Line 3 of .* `stage`, `epoch` and a list of `members`"):
        read_runs([run])


@pytest.mark.parametrize(("name", "text"), [("run.json", "{"), ("result.json", "[1]")])
def test_a_broken_record_is_an_error(run, name, text):
    (run / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name} must hold"):
        read_runs([run])


def test_a_broken_evaluation_is_an_error(run):
    content = (run / "evaluation.npz").read_bytes()
    (run / "evaluation.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"must be a complete \.npz file"):
        read_runs([run])
    np.savez(run / "evaluation.npz", names=np.asarray(["x"]))
    with pytest.raises(ValueError, match=r"lacks \['states', 'means', 'covariances'\]"):
        read_runs([run])


def test_arrays_that_do_not_fit_together_are_an_error(run):
    change_evaluation(run, means=np.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match=r"`means` in .* axes \(n, t, x\).*got shape \(2, 5, 4\)"):
        read_runs([run])
    change_evaluation(run, means=np.zeros((2, 6, 4)), frames=np.zeros((2, 6, 8, 8, 3)))
    with pytest.raises(ValueError, match=r"`frames` in .* must be of type uint8, got float64"):
        read_runs([run])
