"""The verbs: what they call, what they print, and how they end when something is wrong."""

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

import filtrax
from filtrax.cli import app
from filtrax.lab.config import read, write
from filtrax.lab.config.filters import Particle, Ukf
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments import run
from filtrax.lab.experiments.events import EventLog
from filtrax.lab.tasks.disc import DiscTask, export

RESULT = {
    "name": "disc",
    "split": "test",
    "num_sequences": 303,
    "members": [
        {"seed": 0, "metrics": {"distance": 6.0, "nll": 8.0, "noise_correlation": None}},
        {"seed": 1, "metrics": {"distance": 7.0, "nll": 9.0, "noise_correlation": None}},
    ],
    "mean": {"distance": 6.5, "nll": 8.5, "noise_correlation": None},
    "standard_error": {"distance": 0.5, "nll": 0.25, "noise_correlation": None},
}


@pytest.fixture(autouse=True)
def narrow_output(monkeypatch):
    """80 columns, whatever the tests run in."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Everything that is slow is replaced; each call is written down."""
    calls = []

    def train(experiment, folder, watch, *, resume, devices):
        watch.message(f"it trains on {devices}")
        calls.append(("train", experiment, folder, resume))
        return RESULT

    def evaluate(folder, split):
        calls.append(("evaluate", folder, split))
        return RESULT | {"split": split}

    def report(runs, path):
        calls.append(("report", runs, path))
        return path

    def demo(folder, watch, *, seed):
        watch.message("it trains")
        calls.append(("demo", folder, seed))
        rows = [
            {"name": "learned noise", "distance": 5.0, "nll": 8.0},
            {"name": "constant noise", "distance": 10.0, "nll": 11.5},
        ]
        return {
            "comparison": rows,
            "summary": "It is better.",
            "runs": [folder / "a", folder / "b"],
        }

    monkeypatch.setattr(run, "train", train)
    monkeypatch.setattr(run, "evaluate", evaluate)
    monkeypatch.setattr("filtrax.lab.report.write", report)
    stand_in = types.SimpleNamespace(run=demo)
    monkeypatch.setattr("filtrax.lab.experiments.demo", stand_in, raising=False)
    monkeypatch.chdir(tmp_path)
    return calls


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def finished_run(path):
    path.mkdir(parents=True)
    write(path / "config.toml", Experiment("finished", filter=Ukf(kappa=2.0)))
    (path / "model.npz").write_bytes(b"")
    return path


def assert_one_sentence(done, *parts):
    """The program ended with one line on the standard error, and with nothing else."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


def test_train_without_a_file_trains_the_default(calls):
    done = call("train")
    assert done.exit_code == 0, done.output
    assert calls == [("train", Experiment(), Path("runs/disc"), False)]
    assert "Run folder: runs/disc\n" in done.stdout
    assert "6.500 ± 0.500" in done.stdout
    assert "8.500 ± 0.250" in done.stdout
    assert "it trains on one" in done.stderr


def test_train_takes_a_file_overrides_and_a_folder(calls, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nseed = 4\n[filter]\nkind = "ukf"\nkappa = 2\n')
    assert call("train", path).exit_code == 0
    changes = ("--set", "filter.kappa=1.5", "--set", "stages.0.num_epochs=3", "--out", "here")
    assert call("train", path, *changes).exit_code == 0
    (_, plain, folder, _), (_, changed, chosen, resume) = calls
    assert (plain.name, plain.seed, plain.filter) == ("mine", 4, Ukf(kappa=2.0))
    assert folder == Path("runs/mine")
    assert changed.filter == Ukf(kappa=1.5)
    assert changed.stages[0].num_epochs == 3
    assert (chosen, resume) == (Path("here"), False)


def test_train_goes_on_with_a_run(calls, tmp_path):
    folder = finished_run(tmp_path / "run")
    assert call("train", "--resume", folder).exit_code == 0
    assert calls == [("train", read(Experiment, folder / "config.toml"), folder, True)]
    for extra in (("--set", "seed=1"), ("--out", "other"), (folder / "config.toml",)):
        done = call("train", "--resume", folder, *extra)
        assert_one_sentence(done, "A resumed run keeps its configuration and its folder")
    assert len(calls) == 1


def test_the_configuration_can_be_printed_and_used(calls, tmp_path):
    done = call("train", "--print-config", "--set", "filter.kind=particle")
    assert done.exit_code == 0
    assert calls == []
    (tmp_path / "printed.toml").write_text(done.stdout)
    assert read(Experiment, tmp_path / "printed.toml") == Experiment(filter=Particle())


def test_a_configuration_that_comes_with_filtrax_is_found_by_its_name(calls, tmp_path):
    assert call("train", "disc_ukf", "--set", "seed=4").exit_code == 0
    (_, experiment, folder, _) = calls.pop()
    assert (experiment.name, experiment.filter.kind, experiment.seed) == ("disc_ukf", "ukf", 4)
    assert folder == Path("runs/disc_ukf")
    assert_one_sentence(call("train", "disc_ufk"), "'disc_ufk'", "Did you mean 'disc_ukf'?")
    (tmp_path / "disc_ukf").write_text('name = "mine"\n')
    assert call("train", "disc_ukf").exit_code == 0
    assert calls[0][1].name == "mine"


def test_missing_tensorboard_is_said_once(calls, monkeypatch):
    assert "TensorBoard" not in call("train").output
    monkeypatch.setattr(EventLog, "available", staticmethod(lambda: False))
    assert call("train").output.count("No TensorBoard events") == 1


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ("train", "--set", "filter.kapa=1", "--set", "filter.kind=ukf"),
            ("`filter.kapa`", "'kap"),
        ),
        (("train", "--set", "num_epochs=1"), ("Did you mean `stages.0.num_epochs`?",)),
        (("train", "--set", "seed=many"), ("`seed` must be a whole number, got 'many'.",)),
        (("train", "--set", "seed"), ("key=value",)),
        (("train", "--set", "stages.0.num_epochs=0"), ("`stages.0`", "at least 1, got 0")),
        (("train", "--set", "stages.0.length=51"), ("at most the 50 steps", "got 51")),
        (("train", "--set", "name=../up"), ("`name` must be the name of a folder", "--out")),
        (("train", "none.toml"), ("There is no configuration file at none.toml.",)),
        (("train", "."), ("is a folder",)),
        (("train", "broken.toml"), ("broken.toml is not a valid TOML file", "line 1")),
        (("train", "--resume", "none"), ("There is no run folder at none.",)),
        (("train", "--resume", "empty"), ("it has no config.toml",)),
        (("train", "--nothing"), ("--nothing", "`filtrax train --help`")),
        (("trian",), ("Did you mean 'train'?",)),
        (("evaluate", "none"), ("There is no run folder at none.",)),
        (("evaluate", "begun"), ("no trained filter yet", "`filtrax train --resume begun`")),
        (("evaluate", "begun", "--split", "tests"), ("'tests'", "validation")),
        (("evaluate",), ("RUN", "`filtrax evaluate --help`")),
        (("report",), ("RUN", "`filtrax report --help`")),
        (("report", "begun", "none"), ("There is no run folder at none.",)),
        (("data", "disk"), ("Did you mean 'disc'?",)),
        (("data", "disc", "--set", "noise=lout"), ("`noise`", "'constant'")),
        (("data", "disc", "--preview", "a.jpg"), (".png or .gif", "a.jpg")),
        (("demo", "--seed", "-1"), ("--seed",)),
    ],
)
def test_mistakes_end_with_one_sentence_and_nothing_is_called(arguments, parts, calls, tmp_path):
    (tmp_path / "broken.toml").write_text("name = \nseed = 1")
    (tmp_path / "empty").mkdir()
    finished_run(tmp_path / "begun")
    (tmp_path / "begun" / "model.npz").unlink()
    done = CliRunner().invoke(app, list(arguments), prog_name="filtrax")
    assert_one_sentence(done, *parts)
    assert calls == []


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("two\nlines"), "Error: two lines\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), "No such file or directory: x."),
        (OSError("The disk is full."), "Error: The disk is full.\n"),
        (OSError(28, "No space left on device"), "Error: No space left on device.\n"),
        (ModuleNotFoundError("No module named 'PIL'", name="PIL"), "needs the package PIL"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "The memory of the device is full"),
    ],
)
def test_errors_of_users_have_no_traceback_unless_wanted(error, sentence, calls, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(run, "train", fail)
    assert_one_sentence(call("train"), sentence)
    for arguments in (("--debug", "train"), ("train", "--debug")):
        assert call(*arguments).exception is error
    monkeypatch.setenv("FILTRAX_DEBUG", "1")
    assert call("train").exception is error


def test_errors_of_the_program_keep_their_traceback(calls, monkeypatch):
    # Rejects a program that hides its own mistakes from those who could mend them.
    for error in (KeyError("x"), TypeError("x"), ModuleNotFoundError(name="filtrax.missing")):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(run, "train", fail)
        assert call("train").exception is error


def test_an_interrupted_run_says_how_to_go_on(calls, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "train", interrupt)
    done = call("train", "--out", "my runs/a")
    assert done.exit_code == 130
    assert done.stderr == ("Interrupted. Nothing was trained yet: the same command begins again.\n")
    finished_run(Path("my runs/a"))
    done = call("train", "--resume", "my runs/a")
    assert done.exit_code == 130
    assert done.stderr == "Interrupted. Go on with `filtrax train --resume 'my runs/a'`.\n"


def test_evaluate_prints_and_writes(calls, tmp_path):
    folder = finished_run(tmp_path / "run")
    done = call("evaluate", folder)
    assert done.exit_code == 0
    assert "seed 0" not in done.stdout
    done = call("evaluate", folder, "--split", "validation", "--members", "--out", "out.json")
    assert done.exit_code == 0
    assert calls == [("evaluate", folder, "test"), ("evaluate", folder, "validation")]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["metric", "mean", "±", "standard", "error", "seed", "0", "seed", "1"] in lines
    assert ["distance", "6.500", "±", "0.500", "6.000", "7.000"] in lines
    assert ["noise", "correlation", "–", "–", "–"] in lines
    assert json.loads(Path("out.json").read_text()) == RESULT | {"split": "validation"}
    assert_one_sentence_after_output(call("evaluate", folder, "--out", "none/out.json"))


def assert_one_sentence_after_output(done):
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: none/out.json could not be written")


def test_report_goes_into_a_single_run_or_where_it_is_sent(calls, tmp_path):
    first, second = finished_run(tmp_path / "a"), finished_run(tmp_path / "b")
    assert call("report", first).stdout == f"Report: {first / 'report.html'}\n"
    assert call("report", first, second).stdout == "Report: report.html\n"
    assert call("report", first, second, "--out", "both.html").stdout == "Report: both.html\n"
    assert calls[0] == ("report", [first], first / "report.html")
    assert calls[2] == ("report", [first, second], Path("both.html"))


def test_demo_prints_what_it_compared(calls):
    done = call("demo", "--seed", "3", "--out", "there")
    assert done.exit_code == 0, done.output
    there = Path("there")
    runs = [there / "a", there / "b"]
    assert calls == [("demo", there, 3), ("report", runs, there / "report.html")]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["learned", "noise", "5.000", "8.000"] in lines
    assert ["constant", "noise", "10.000", "11.500"] in lines
    assert done.stdout.endswith("It is better.\nReport: there/report.html\n")
    assert call("demo").exit_code == 0
    assert calls[2] == ("demo", Path("runs/demo"), 0)


def test_data_describes_draws_and_exports(calls, monkeypatch):
    made = []
    monkeypatch.setattr(export, "contact_sheet", lambda *a, **k: made.append(("sheet", a, k)))
    monkeypatch.setattr(export, "animation", lambda *a, **k: made.append(("animation", a, k)))
    monkeypatch.setattr(export, "export", lambda *a, **k: made.append(("export", a)))
    small = ("num_test=5", "num_steps=30", "task.num_distractors=0", "image_size=30")
    arguments = ["data", "disc", *(part for text in small for part in ("--set", text))]
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    task = DiscTask(num_test=5, num_steps=30, num_distractors=0, image_size=30)
    assert made == []
    assert "disc, test: 5 sequences of 30 steps\n" in done.stdout
    assert f"{5 * 30 * 30 * 30 * 3 / 1e3:.1f} kB of 30 x 30 images" in done.stdout
    assert ", 0.0% hidden by others" in done.stdout  # there are no others
    assert ", 0.0% out of the image" not in done.stdout
    call(*arguments, "--preview", "a.PNG", "--export", "files")
    call(*arguments, "--preview", "a.gif")
    assert made == [
        ("sheet", (task, Path("a.PNG"), "test"), {"num_sequences": 5}),
        ("export", (task, "test", Path("files"))),
        ("animation", (task, Path("a.gif"), "test"), {"num_sequences": 4}),
    ]


def test_help_has_an_example_in_every_verb():
    for verb in (["demo"], ["train"], ["evaluate"], ["report"], ["data", "disc"]):
        done = call(*verb, "--help")
        assert done.exit_code == 0
        assert f"Example: filtrax {' '.join(verb)}" in done.stdout
    for arguments in ((), ("--help",), ("-h",)):
        done = call(*arguments)
        assert done.exit_code == 0
        for verb in ("demo", "train", "evaluate", "report", "data"):
            assert verb in done.stdout
    assert call("--version").stdout == f"filtrax {filtrax.__version__}\n"


def test_help_needs_nothing_heavy():
    # Rejects an import of JAX or NumPy outside of a verb: it makes help slow.
    program = f"""
import sys, types
package = types.ModuleType("filtrax")
package.__path__ = [{str(Path(filtrax.__file__).parent)!r}]
sys.modules["filtrax"] = package
from filtrax.cli import app
try:
    app(["train", "--help"])
except SystemExit:
    heavy = {{"jax", "numpy", "equinox", "filtrax.lab", "tensorboardX"}} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_is_a_program(tmp_path):
    command = [sys.executable, "-m", "filtrax", "train", "none.toml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "Error: There is no configuration file at none.toml.\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_real_interrupt_ends_with_130(tmp_path):
    # Rejects handlers that work for the exception but not for the signal.
    program = """
import signal, sys, time
import filtrax.lab.experiments.run as run
from filtrax.cli import main

# What runs in the background of a script inherits that it ignores this signal.
signal.signal(signal.SIGINT, signal.default_int_handler)

def train(*_, **__):
    print("ready", flush=True)
    time.sleep(60)

run.train = train
sys.argv = ["filtrax", "train"]
main()
"""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.endswith("Interrupted. Nothing was trained yet: the same command begins again.\n")
    assert "Traceback" not in error
