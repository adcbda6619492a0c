"""`filtrax reproduce`: what it runs, what it prints, and how it ends when something is wrong."""

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from reproduction.fake_records import fake_record
from reproduction.tiny_table import source_of
from typer.testing import CliRunner

from filtrax.cli import app, processes
from filtrax.lab.reproduction import executors
from filtrax.lab.reproduction.executors import train_here
from filtrax.lab.reproduction.group_run import GroupRun
from filtrax.lab.reproduction.tables import read_table, table_names


@pytest.fixture(autouse=True)
def here(own_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def trained(monkeypatch):
    """Nothing trains: records are written at once, and the runs are kept."""
    runs = []

    def train(run):
        runs.append(run)
        for cell in run.group.cells:
            mean = {"distance": 4.5, "nll": 7.25, "sensor_error": 2.5}
            done = {"done": run.group.num_epochs, "planned": cell.planned_epochs}
            seeds = list(range(cell.experiment.num_seeds))
            changes = {"scale": run.scale, "epochs": done, "seeds": seeds}
            run.results.write(cell, fake_record(cell.table, cell.labels, mean, **changes))

    monkeypatch.setattr(GroupRun, "train", train)
    return runs


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def assert_one_sentence(done, *parts):
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (error,) = done.stderr.splitlines()
    assert error.startswith("Error: ")
    for part in parts:
        assert part in error


def names(runs):
    return [run.group.cells[0].name for run in runs]


def test_help_says_what_there_is():
    text = call("--help").stdout
    for option in ("--list", "--scale", "--only", "--seeds", "--epochs", "--minutes", "--pack"):
        assert option in text
    assert "filtrax reproduce disc_benchmark --scale small --only dEKF" in " ".join(text.split())


def test_list_names_all_tables_and_what_is_done(trained, tmp_path):
    done = call("--list", "--scale", "smoke")
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.split()}
    assert set(table_names()) <= set(lines)
    assert lines["disc_sensor"][-2:] == ["10", "0"]
    assert lines["disc_benchmark"][1] == "Benchmark"
    call("disc_sensor", "--scale", "smoke", "--only", "30_*")
    done = call("--list", "--scale", "smoke")
    (line,) = (line for line in done.stdout.splitlines() if "disc_sensor" in line)
    assert line.split()[-2:] == ["10", "7"]
    assert len(trained) == 7


def test_a_table_is_run_and_printed(trained, tmp_path):
    done = call("disc_benchmark", "--scale", "smoke", "--only", "filtrax_dekf_*")
    assert done.exit_code == 0, done.output
    wanted = ["0.1", "0.1-het", "3", "9"]
    assert names(trained) == [f"filtrax_dekf_{data}" for data in wanted]
    record = json.loads((tmp_path / "results/smoke/disc_benchmark/filtrax_dekf_3.json").read_text())
    assert record["scale"] == "smoke"
    assert "Benchmark (Tables 3 and S7, section 6.6): 4 of 84 cells at scale smoke" in done.stdout
    assert "4.5" in done.stdout
    assert "6.31" in done.stdout  # the paper's
    assert done.stdout.endswith("Records: results/smoke\n")
    assert "0 of 4 cells done; now disc_benchmark filtrax_dekf_0.1" in done.stderr
    assert re.search(r"\n3 of 4 cells done, about \d+:\d+ left; now .*_9\n", done.stderr)
    assert call("disc_benchmark", "--scale", "smoke", "--only", "filtrax_dekf_*").exit_code == 0
    assert len(trained) == 4


def test_sizes_reach_the_experiments(trained, tmp_path):
    options = ("--scale", "small", "--only", "5_3", "--seeds", "3", "--epochs", "2")
    done = call("disc_sensor", *options, "--out", "elsewhere")
    assert done.exit_code == 0, done.output
    (run,) = trained
    experiment = run.group.cells[0].experiment
    assert (experiment.num_seeds, experiment.stages[-1].num_epochs) == (3, 2)
    assert experiment.task.image_size == 60
    assert str(run.results.path) == "elsewhere"
    record = json.loads((tmp_path / "elsewhere/disc_sensor/5_3.json").read_text())
    assert record["epochs"] == {"done": 2, "planned": 5}


def test_all_are_all_tables(monkeypatch):
    calls, executors = [], []

    def reproduce(tables, results, plan, watch, executor):
        calls.append(([table.name for table in tables], plan.most_data_sets))
        executors.append((executor, plan.together))
        return True

    monkeypatch.setattr("filtrax.lab.reproduction.running.reproduce", reproduce)
    assert call("all", "disc_sensor", "--scale", "smoke").exit_code == 0
    assert sorted(calls[0][0]) == table_names()
    options = ("--scale", "smoke", "--data-sets", "2")
    assert call("disc_sensor", "disc_loss", "disc_sensor", *options).exit_code == 0
    assert calls[1] == (["disc_sensor", "disc_loss"], 2)
    assert executors == [(train_here, None)] * 2
    cluster = ("--executor", "ray", "--address", "auto", "--gpus", "0.5")
    assert call("disc_sensor", *cluster).exit_code == 0
    executor, together = executors[2]
    assert (executor.address, executor.gpus, together) == ("auto", 0.5, True)
    for lonely in (("--address", "auto"), ("--gpus", "1")):
        done = call("disc_sensor", *lonely)
        assert "--address and --gpus belong to --executor ray." in done.output
        assert done.exit_code == 2
    assert len(executors) == 3


def test_a_table_of_ones_own_by_its_path(trained, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\nsource = "me"\nasks = "Who?"\nmetrics = ["nll"]\nrows = ["filter"]\n'
        '[[axes]]\nname = "filter"\nvalues = [{ label = "EKF" }]\n'
    )
    done = call(path, "--scale", "smoke")
    assert done.exit_code == 0, done.output
    assert "Mine (me): 1 of 1 cells at scale smoke" in done.stdout
    assert (tmp_path / "results/smoke/mine/ekf.json").is_file()


def test_collected_cells_are_done(trained, tmp_path):
    # Rejects a study that is forgotten, and collecting into nowhere.
    done = call("disc_sensor", "--scale", "smoke", "--out", "a")
    assert done.exit_code == 0, done.output
    assert len(trained) == 10
    done = call("collect", "--scale", "smoke", "--out", "a")
    assert done.exit_code == 2
    assert "give --collected DIR" in done.output
    done = call("collect", "disc_sensor", "--out", "a", "--collected", "study")
    assert done.exit_code == 0, done.output
    assert done.stdout == "Collected into study: 10 new records\n"
    assert (tmp_path / "study/disc_sensor.jsonl").is_file()
    done = call("disc_sensor", "--scale", "smoke", "--out", "b", "--collected", "study")
    assert done.exit_code == 0, done.output
    assert len(trained) == 10
    assert "10 of 10 cells" in done.stdout
    assert call("disc_sensor", "--replace").exit_code == 2


def test_no_time_is_no_error_and_says_how_to_go_on(trained):
    done = call("disc_sensor", "--scale", "smoke", "--minutes", "0")
    assert done.exit_code == 0, done.output
    assert trained == []
    assert done.stdout.endswith("Not all cells are done; the same command goes on.\n")
    done = call("disc_sensor", "--scale", "smoke")
    assert "Not all cells" not in done.stdout


def test_a_packed_file_goes_on_in_another_folder(trained, tmp_path):
    file = tmp_path / "all.tar.gz"
    first = ("disc_sensor", "--scale", "smoke", "--only", "5_*", "--pack", file)
    done = call(*first, "--out", "a")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"Packed into {file}\n")
    assert names(trained) == ["5_0.1", "5_3", "5_9"]
    done = call("disc_sensor", "--scale", "smoke", "--pack", file, "--out", "b")
    assert done.exit_code == 0, done.output
    assert names(trained)[3:] == [name for name in smoke_names("disc_sensor") if name[0] == "3"]
    done = call("disc_sensor", "--scale", "smoke", "--pack", file, "--out", "c")
    assert len(trained) == 10
    assert "10 of 10 cells" in done.stdout


def test_a_packed_file_holds_what_a_table_starts_from(trained, tmp_path):
    table = next(table for table in map(read_table, table_names()) if table.start)
    source = tmp_path / "a" / table.start[0].table / "models" / "x" / "model.npz"
    source.parent.mkdir(parents=True)
    np.savez(source, nothing=np.zeros(1))
    options = (table.name, "--scale", "smoke", "--minutes", "0", "--pack", "file")
    assert call(*options, "--out", "a").exit_code == 0
    assert call(*options, "--out", "b").exit_code == 0
    assert (tmp_path / "b" / table.start[0].table / "models" / "x" / "model.npz").is_file()


def smoke_names(name):
    return [cell.name for cell in read_table(name).cells("smoke")]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("Name a table, or `all`", "filtrax reproduce --list")),
        (("disc_benchmrk",), ("There is no table of that name", "Did you mean 'disc_benchmark'?")),
        (("none.toml",), ("none.toml",)),
        (("disc_sensor", "--scale", "huge"), ("--scale must be one of smoke, small, paper",)),
        (
            ("disc_benchmark", "--only", "dEFK"),
            ("got 'dEFK'", "the labels filtrax, paper, ", "Did you mean 'dEKF'?"),
        ),
        (("disc_sensor", "--seeds", "0"), ("--seeds",)),
        (("disc_sensor", "--minutes", "-1"), ("--minutes",)),
        (("disc_sensor", "--pack", "damaged"), ("damaged must be a file that --pack has written",)),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(arguments, parts, trained, tmp_path):
    (tmp_path / "damaged").write_text("What is this?")
    assert_one_sentence(call(*arguments), *parts)
    assert trained == []
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_an_interrupt_says_that_everything_is_kept(monkeypatch):
    def interrupt(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(GroupRun, "train", interrupt)
    done = call("disc_sensor", "--scale", "smoke", "--pack", "all.tar.gz")
    assert done.exit_code == 130
    assert Path("all.tar.gz").is_file()
    assert done.stderr.endswith(
        "Interrupted. Everything up to the last checkpoint is kept: the same command goes on.\n"
    )


def test_processes_do_their_share_and_are_waited_for(tmp_path, monkeypatch):
    # This process trains nothing, so that all records are of the other one.
    monkeypatch.setattr(executors, "_any_step", lambda schedule: False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    source_of(tmp_path, "tiny")
    out = tmp_path / "records"
    done = call(tmp_path / "tiny.toml", "--epochs", 1, "--processes", 2, "--out", out, "--only", 9)
    assert done.exit_code == 0, done.output
    (record,) = [json.loads(path.read_text()) for path in (out / "tiny").glob("*.json")]
    assert record["cell"] == {"data": "9"}
    assert record["epochs"]["done"] == 1
    assert record["origin"]["command"].endswith("--wait")
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"


def test_settings_of_the_user_stay_where_processes_share_a_device(monkeypatch):
    own = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2", "JAX_COMPILATION_CACHE_DIR": "mine"}
    monkeypatch.setattr(os, "environ", dict(own))
    processes.share_device(4)
    assert os.environ == own | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def test_what_a_further_process_failed_with_is_said():
    with processes.helpers(2, ["reproduce", "nonsense"], None) as failures:
        assert not failures
    assert len(failures) == 2
    assert "There is no table of that name" in failures[0]


def test_a_further_process_that_was_killed_is_said_to_be(tmp_path, monkeypatch):
    program = tmp_path / "dies"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(program))
    with processes.helpers(1, [], None) as failures:
        pass
    (said,) = failures
    assert "ended by SIGKILL" in said
    assert "fewer --processes" in said


def test_a_further_process_that_hangs_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "sleeps"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(program))
    monkeypatch.setattr(processes, "GRACE", 0.1)
    began = time.monotonic()
    with processes.helpers(1, [], 0.1) as failures:
        pass
    assert failures == ["A further process did not end in time, and was ended."]
    with pytest.raises(KeyboardInterrupt), processes.helpers(1, [], None):
        raise KeyboardInterrupt
    assert time.monotonic() < began + 30
