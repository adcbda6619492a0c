"""Cells that others train, processes or a Ray cluster, end with the records of those trained here.

Rejected are: a cell that is lost with its worker, one that begins anew although its state is known,
a worker that writes where others cannot read, a record that names the worker's command.
"""

import contextlib
import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from reproduction.tiny_table import NOISE, Recorder, timeless, tiny_table

from filtrax.lab.plugins import Shipped
from filtrax.lab.reproduction import clusters, executors
from filtrax.lab.reproduction.executors import (
    LEFT_TO_OTHERS,
    LostError,
    RayExecutor,
    Turn,
    _packed,
    train_and_wait,
    train_turn,
)
from filtrax.lab.reproduction.groups import group
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results, read_records
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.unpacking import unpack_files


class FakeRay:
    """In the place of the module `ray`: tasks run when they are waited for, and may be lost."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def __init__(self, lost=()):
        self.lost, self.turns = list(lost), []

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 1.0}

    def remote(self, **options):
        assert options["max_retries"] == 0
        fake = self

        def decorate(function):
            class Remote:
                @staticmethod
                def remote(turn):
                    fake.turns.append(turn)
                    fake.function = function
                    return len(fake.turns) - 1

            return Remote

        return decorate

    def wait(self, references, num_returns):
        return references[:num_returns], references[num_returns:]

    def get(self, reference):
        if reference in self.lost:
            raise self.exceptions.RayError
        return self.function(self.turns[reference])


@pytest.fixture
def fake_ray(monkeypatch):
    def install(lost=()):
        ray = FakeRay(lost)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return install


def names(turns):
    return [turn.group.cells[0].name for turn in turns]


def test_a_lost_group_is_dealt_again_and_nothing_twice(fake, fake_ray, tmp_path):
    ray, watch = fake_ray(lost=(0,)), Recorder()
    results, table = Results(tmp_path), tiny_table(NOISE)
    assert reproduce([table], results, Plan(), watch, RayExecutor())
    assert names(ray.turns) == ["small", "large", "small"]
    assert sorted(read_records(tmp_path, table)) == ["large", "small"]
    assert ["A worker was lost" in message for message in watch.messages] == [True]
    assert not list(tmp_path.rglob("*.lock"))
    assert reproduce([table], results, Plan(), watch, RayExecutor())
    assert len(ray.turns) == 3


def test_workers_that_are_lost_again_and_again_are_an_error(fake, fake_ray, tmp_path):
    fake_ray(lost=range(100))
    with pytest.raises(LostError, match="5 workers were lost with tiny small-1-"):
        reproduce([tiny_table()], Results(tmp_path), Plan(), Recorder(), RayExecutor())


def test_what_starts_from_others_is_dealt_after_them_with_their_models(
    fake, fake_ray, started, tmp_path
):
    ray, results = fake_ray(), Results(tmp_path / "out")
    assert reproduce([started], results, Plan(), Recorder(), RayExecutor())
    assert names(ray.turns) == ["3", "large_0.1", "large_3"]
    assert results.model("tiny_source", "3").model.is_file()
    copy = Results(tmp_path / "copy")
    unpack_files(io.BytesIO(ray.turns[1].files), copy, "it")
    assert copy.model("tiny_source", "3").model.is_file()


def test_what_other_processes_train_is_left_to_them(fake, fake_ray, tmp_path):
    ray, watch, table = fake_ray(), Recorder(), tiny_table(NOISE)
    first, _ = group(Plan().cells(table))
    with Results(tmp_path).claimed(first.table, first.name):
        assert not reproduce([table], Results(tmp_path), Plan(), watch, RayExecutor())
    assert names(ray.turns) == ["large"]
    assert watch.messages == [LEFT_TO_OTHERS]


@pytest.mark.parametrize("ends_it", [True, False])
def test_what_others_train_is_waited_for_and_trained_here_if_they_do_not_end_it(
    ends_it, fake, monkeypatch, tmp_path
):
    table, results = tiny_table(NOISE), Results(tmp_path)
    first, _ = group(Plan().cells(table))
    others = contextlib.ExitStack()
    assert others.enter_context(results.claimed(first.table, first.name))
    looks = []

    def others_end(seconds):
        looks.append(seconds)
        assert len(looks) < 5, "nothing is left to wait for"
        if len(looks) == 3:
            if ends_it:
                results.write(first.cells[0], {"of": "another process"})
            others.close()

    monkeypatch.setattr(executors.time, "sleep", others_end)
    watch = Recorder()
    assert reproduce([table], results, Plan(), watch, train_and_wait)
    assert watch.messages == [LEFT_TO_OTHERS]
    assert fake.names == [["large"]] + [["small"]] * (not ends_it)
    assert len(looks) == 3


def test_with_little_time_no_more_is_dealt_than_there_are_workers(fake, fake_ray, tmp_path):
    ray = fake_ray()
    assert reproduce(
        [tiny_table(NOISE)], Results(tmp_path), Plan(seconds=60.0), Recorder(), RayExecutor()
    )
    assert all(turn.seconds <= 60 for turn in ray.turns)
    assert not reproduce(
        [tiny_table(name="other")], Results(tmp_path), Plan(seconds=0.0), Recorder(), RayExecutor()
    )
    assert len(ray.turns) == 2


@pytest.mark.long
@pytest.mark.xdist_group("tiny_run")
def test_turns_without_time_end_with_the_record_of_one_run(tmp_path):
    # A turn of no time trains one epoch; its state comes back and goes on.
    table = tiny_table()
    (cells,) = group(Plan().cells(table))
    here, away = Results(tmp_path / "here"), Results(tmp_path / "away")
    assert reproduce([table], here, Plan())
    turns = 0
    while not away.record(cells.cells[0]).is_file():
        turn = Turn(
            Shipped(), cells, table, "paper", _packed(cells, away), 0.0, True, ("filtrax", "x")
        )
        files, _ = train_turn(turn)
        unpack_files(io.BytesIO(files), away, "it")
        turns += 1
    assert turns > 1
    expected, found = here.read(cells.cells[0]), away.read(cells.cells[0])
    assert found["origin"]["command"] == "filtrax x"
    found["origin"]["command"] = expected["origin"]["command"]
    assert timeless(found) == timeless(expected)


def kill_one_worker(stopped):
    """Kills the first process of this cluster that is seen to train for a second."""
    seen = {}
    while not stopped.is_set():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                name = path.read_bytes()
            except OSError:
                continue
            if name.startswith(b"ray::train_turn"):
                began = seen.setdefault(path, time.monotonic())
                if time.monotonic() > began + 1:
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    return
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_real_cluster_with_a_killed_worker_ends_with_the_same_records(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setattr(sys, "argv", ["filtrax", "reproduce"])
    table, watch = tiny_table(NOISE), Recorder()
    assert reproduce([table], Results(tmp_path / "here"), Plan())
    cache = {name: value for name, value in os.environ.items() if name.startswith("JAX_")}
    settings = {"JAX_NUMPY_DTYPE_PROMOTION": "strict", "PYTHONPATH": os.pathsep.join(sys.path)}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=10**8,
        log_to_driver=False,
        runtime_env={"env_vars": cache | settings},
    )
    stopped = threading.Event()
    killer = threading.Thread(target=kill_one_worker, args=(stopped,))
    killer.start()
    try:
        assert reproduce([table], Results(tmp_path / "away"), Plan(), watch, RayExecutor())
    finally:
        stopped.set()
        killer.join()
        ray.shutdown()
    assert ["A worker was lost" in message for message in watch.messages] == [True]
    here, away = (read_records(tmp_path / name, table) for name in ("here", "away"))
    assert {name: timeless(one) for name, one in away.items()} == {
        name: timeless(one) for name, one in here.items()
    }


class FakeCluster:
    """In the place of the module `ray`, with a cluster that may ask for a token or not."""

    class exceptions:  # noqa: N801
        class AuthenticationError(Exception):
            pass

    def __init__(self, mode, version="2.60.1"):
        self.mode, self.__version__, self.joined = mode, version, False

    def init(self, **arguments):
        if self.mode == "another token":
            raise self.exceptions.AuthenticationError
        self.joined = True

    def shutdown(self):
        self.joined = False

    def remote(self, **options):
        return lambda function: SimpleNamespace(remote=lambda: function)

    def get(self, function):
        with mock.patch.dict(os.environ, {clusters.MODE: self.mode}):
            return function()


@pytest.mark.parametrize(
    ("mode", "version", "message"),
    [
        ("", "2.60.0", "must ask for a token"),
        ("disabled", "2.60.0", "must ask for a token"),
        ("another token", "2.60.0", "have the token of this machine"),
        ("token", "2.49.2", "must be of version 2.60 or later"),
    ],
)
def test_a_cluster_that_lets_anybody_in_is_left(mode, version, message, monkeypatch):
    monkeypatch.setenv(clusters.MODE, "")
    monkeypatch.delenv(clusters.MODE)
    cluster = FakeCluster(mode, version)
    with pytest.raises(clusters.InsecureClusterError, match=message):
        clusters.connect(cluster, "auto")
    assert not cluster.joined


@pytest.mark.parametrize(("wish", "mode"), [("", "token"), ("disabled", "disabled")])
def test_a_cluster_with_tokens_is_joined_and_any_if_the_user_insists(wish, mode, monkeypatch):
    monkeypatch.setenv(clusters.MODE, wish)
    cluster = FakeCluster(mode)
    clusters.connect(cluster, None)
    assert cluster.joined


@pytest.mark.parametrize("wish", [None, "disabled"])
def test_ray_is_told_to_ask_for_a_token_before_it_is_imported(wish, monkeypatch):
    monkeypatch.setenv(clusters.MODE, wish or "")
    if wish is None:
        monkeypatch.delenv(clusters.MODE)
    monkeypatch.setitem(sys.modules, "ray", "the module")
    assert clusters.import_ray() == "the module"
    assert os.environ[clusters.MODE] == (wish or "token")
