"""Plugins: loaded by the command line alone, recorded with runs, and handed on to other processes.

Each file of these tests leaves a trace where it is imported, so that no import stays unseen.
"""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

import tiny_run
from filtrax.cli import app
from filtrax.cli.reproduce import _command_of_helpers
from filtrax.lab import config, plugins, registry
from filtrax.lab.config.filters import AbstractFilterSettings
from filtrax.lab.experiments import ensembles
from filtrax.lab.plugins import PluginError, Shipped
from filtrax.lab.provenance import provenance
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results

pytestmark = pytest.mark.xdist_group("tiny_run")

MINE = '''"""A filter of one's own."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import filtrax
from filtrax.lab import register
from filtrax.lab.config.filters import AbstractFilterSettings

with Path("imported.txt").open("a") as trace:
    trace.write("x")


@register
@dataclasses.dataclass(frozen=True)
class Mine(AbstractFilterSettings):
    kind: ClassVar[str] = "mine"
    number: int = 3

    def build(self, task, model, example, *, key):
        return filtrax.ExtendedKalmanFilter()
'''


@pytest.fixture(autouse=True)
def here(own_folder, own_registry, monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
    config.write("tiny.toml", tiny_run.EXPERIMENT)
    Path("mine_plugin.py").write_text(MINE)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def forget():
    """As in a new process."""
    for module in plugins._LOADED:
        sys.modules.pop(module, None)
    plugins._LOADED.clear()
    registry._FAMILIES[AbstractFilterSettings].pop("mine", None)
    Path("imported.txt").unlink(missing_ok=True)


def assert_one_sentence(done, *parts):
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line, line


def finished_run():
    """A finished run whose record says that it was made with the plugin."""
    folder, _, _ = tiny_run.finished()
    shutil.copytree(folder, "run")
    facts = json.loads(Path("run/run.json").read_text())
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    facts["plugins"] = [{"name": "mine_plugin.py", "sha256": digest}]
    Path("run/run.json").write_text(json.dumps(facts))


VERBS = (("evaluate", "run"), ("report", "run"), ("train", "--resume", "run"))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_run_never_imports_its_plugin_and_names_the_command_that_does(verb):
    finished_run()
    command = f"`filtrax {' '.join(verb)} --plugin mine_plugin.py`"
    assert_one_sentence(call(*verb), "The run in run was made with the plugin", command)
    assert not Path("imported.txt").exists()


def test_a_record_has_the_name_and_the_hash_of_each_plugin():
    assert "plugins" not in provenance(seed=0)
    plugins.load("mine_plugin.py")
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert provenance(seed=0)["plugins"] == [{"name": "mine_plugin.py", "sha256": digest}]


@pytest.mark.long
def test_a_run_with_a_plugin_is_trained_evaluated_reported_and_resumed():
    options = ("--plugin", "mine_plugin.py", "--set", "filter.kind=mine", "--out", "run")
    done = call("train", "tiny.toml", *options)
    assert done.exit_code == 0, done.output
    recorded = json.loads(Path("run/run.json").read_text())["plugins"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert recorded == [{"name": "mine_plugin.py", "sha256": digest}]
    before = tiny_run.content(Path("run"))
    for verb in VERBS:
        forget()
        assert_one_sentence(call(*verb), "--plugin mine_plugin.py`")
        done = call(*verb, "--plugin", "mine_plugin.py")
        assert done.exit_code == 0, done.output
        assert "Warning" not in done.stderr
        assert Path("imported.txt").read_text() == "x"
    assert tiny_run.content(Path("run")) == before


def test_another_version_of_the_plugin_is_a_warning():
    finished_run()
    Path("mine_plugin.py").write_text(MINE + "# changed\n")
    done = call("report", "run", "--plugin", "mine_plugin.py", "--out", "page.html")
    assert done.exit_code == 0, done.output
    assert "Warning: The run in run was made with another version of the plugin" in done.stderr
    assert Path("page.html").is_file()


def test_a_run_that_starts_from_one_with_a_plugin_needs_it_too():
    finished_run()
    done = call("train", "tiny.toml", "--set", "start.run=run")
    assert_one_sentence(done, "start.run=run --plugin mine_plugin.py`")
    assert not Path("imported.txt").exists()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "text",
    ['plugin = "mine_plugin.py"\n', 'plugins = ["mine_plugin"]\n', '[filter]\nkind = "mine"\n'],
)
def test_no_configuration_loads_a_plugin(text):
    Path("strange.toml").write_text(text)
    assert_one_sentence(call("train", "strange.toml"))
    assert not Path("imported.txt").exists()


def test_records_of_another_form_are_no_plugins():
    for strange in (None, "mine", {"name": "x"}, [3, {}, "x", {"sha256": 3}]):
        assert plugins.check(strange, "It") == []


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("none.py", None, ("There is no plugin at none.py",)),
        ("none_such", None, ("There is no module 'none_such'",)),
        ("mine_plugin", None, ("no module 'mine_plugin'", "Did you mean mine_plugin.py?")),
        ("broken.py", "x = 1\ny = (\n", ("broken.py cannot be imported", "SyntaxError")),
        ("failing.py", "\n\n1 / 0\n", ("failing.py", "(line 3)", "ZeroDivisionError")),
        ("lacking.py", "import no_such_package\n", ("lacking.py", "no_such_package")),
        ("my-own.v2.py", "x = 1\n", ("must be named like a module", "rename the file")),
        ("json.py", "x = 1\n", ("imported as 'json'", "rename the file")),
        (
            "taken.py",
            MINE.replace('"mine"', '"ekf"'),
            ("'ekf' is taken by filtrax.lab.config.filters.Ekf, so that taken.Mine",),
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(name, content, parts):
    if content is not None:
        Path(name).write_text(content)
    assert_one_sentence(call("train", "tiny.toml", "--plugin", name), *parts)
    assert not plugins.loaded()
    assert Path(name).stem not in sys.modules or name == "json.py"
    assert not Path("runs").exists()


def test_a_plugin_is_imported_once_and_no_second_one_under_its_name():
    first = plugins.load("mine_plugin.py")
    assert plugins.load("mine_plugin.py") is first
    Path("copy").mkdir()
    Path("copy/mine_plugin.py").write_text(MINE)
    assert plugins.load("copy/mine_plugin.py") is first  # the same program
    Path("copy/mine_plugin.py").write_text(MINE + "# another\n")
    with pytest.raises(PluginError, match="another module has that name"):
        plugins.load("copy/mine_plugin.py")
    assert Path("imported.txt").read_text() == "x"
    absolute = plugins.Plugin(str(Path("mine_plugin.py").absolute()), "", None)
    assert absolute.record()["name"] == "mine_plugin.py"


def test_a_module_may_be_a_plugin(monkeypatch):
    monkeypatch.syspath_prepend(".")
    assert call("train", "tiny.toml", "--print-config", "--plugin", "mine_plugin").exit_code == 0
    (plugin,) = plugins.loaded()
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert plugin.record() == {"name": "mine_plugin", "sha256": digest}


def test_another_process_finds_the_classes_of_plugins_that_it_has_no_file_of(tmp_path):
    # Rejects a worker that is sent settings before the plugin that they are of.
    plugins.load("mine_plugin.py")
    mine = registry.registered(AbstractFilterSettings)["mine"]
    sent = tmp_path / "sent.pickle"
    sent.write_bytes(pickle.dumps((Shipped(), mine(number=5))))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = """
import pickle, sys
from filtrax.lab import plugins
_, settings = pickle.load(open(sys.argv[1], "rb"))
print(settings, plugins.loaded()[0].record()["name"], type(settings).build.__code__.co_filename)
"""
    command = [sys.executable, "-c", program, str(sent)]
    # A worker on the same machine finds another file of that name, which may have changed since.
    (elsewhere / "mine_plugin.py").write_text("1 / 0")
    done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Mine(number=5) mine_plugin.py ")


def test_helpers_get_the_plugins():
    results = Results(Path("out"))
    command = _command_of_helpers(["mine.toml"], results, Plan(), ["a.py", "b"])
    options = [command[i + 1] for i, part in enumerate(command) if part == "--plugin"]
    assert options == ["a.py", "b"]


def write_table():
    base = config.as_dict(tiny_run.EXPERIMENT) | {"filter": {"kind": "mine"}}
    table = {
        "title": "Mine",
        "source": "me",
        "asks": "Which?",
        "metrics": ["distance"],
        "rows": ["data"],
        "base": base,
        "axes": [{"name": "data", "values": [{"label": "3"}]}],
    }
    Path("mine.toml").write_text(tomli_w.dumps(table))


@pytest.mark.long
def test_a_table_of_a_plugin_is_trained_by_several_processes(monkeypatch):
    write_table()
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr("filtrax.lab.reproduction.executors._any_step", lambda schedule: False)
    options = ("--processes", 2, "--epochs", 1, "--plugin", "mine_plugin.py", "--out", "out")
    assert_one_sentence(call("reproduce", "mine.toml"), "Cell '3' of table 'mine'", "--plugin")
    done = call("reproduce", "mine.toml", *options)
    assert done.exit_code == 0, done.output
    record = json.loads(Path("out/mine/3.json").read_text())
    assert record["config"]["filter"] == {"kind": "mine", "number": 3}
    assert record["origin"]["plugins"][0]["name"] == "mine_plugin.py"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_real_cluster_get_the_plugin(monkeypatch):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    write_table()
    options = ("--executor", "ray", "--epochs", 1, "--plugin", "mine_plugin.py", "--out", "out")
    done = call("reproduce", "mine.toml", *options)
    assert done.exit_code == 0, done.output
    record = json.loads(Path("out/mine/3.json").read_text())
    assert record["config"]["filter"] == {"kind": "mine", "number": 3}
    assert record["origin"]["plugins"][0]["name"] == "mine_plugin.py"
