"""Packing: a file takes records and unfinished states to another machine, and harms nothing."""

import errno
import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from reproduction.tiny_table import Recorder, StoppedClock, Ticking, timeless, tiny_table

import tiny_run
from filtrax.lab.experiments import ensembles
from filtrax.lab.files import RecordError
from filtrax.lab.reproduction import scheduling, unpacking
from filtrax.lab.reproduction.packing import pack
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.unpacking import unpack


def files(results):
    """The content of all files of a folder."""
    paths = (path for path in results.path.rglob("*") if path.is_file())
    return {str(path.relative_to(results.path)): path.read_bytes() for path in paths}


def written(folder, content):
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Results(folder)


def record(says, table="t"):
    return json.dumps({"table": table, "config": {"name": says}, "origin": {}}).encode()


def arrays(value, size=3):
    file = io.BytesIO()
    np.savez(file, a=np.full(size, value, np.float32))
    return file.getvalue()


def training(last, says="packed", name="t/unfinished/a-1", size=3):
    """The files of an unfinished training that has come so far."""
    line = json.dumps({"says": says}) + "\n"
    toml = f'name = "{says}"\n'
    files = {f"{name}/metrics.jsonl": line.encode() * last, f"{name}/config.toml": toml.encode()}
    checkpoint = arrays(len(says), size)
    return files | {f"{name}/checkpoints/checkpoint-{last:06d}.npz": checkpoint}


def test_everything_but_old_checkpoints_and_claims_arrives(tmp_path):
    wanted = {"t/a.json": record("a"), "u/b.json": record("b", "u")} | training(3)
    wanted |= {"t/models/a/model.npz": arrays(1), "t/unfinished/a-1/events/e": b"events"}
    unwanted = {
        "t/unfinished/a-1/checkpoints/checkpoint-000002.npz": b"old",
        "t/unfinished/a-1.lock": b"",
        "t/.a.json.123": b"half",
        "v/c.json": b"of a table that is not asked for",
    }
    results = written(tmp_path / "here", wanted | unwanted)
    pack(results, ["t", "u", "none"], tmp_path / "new" / "file.tar.gz")
    there = Results(tmp_path / "there" / "deep")
    unpack(tmp_path / "new" / "file.tar.gz", there)
    assert files(there) == wanted


RECORDS = {"t/a.json": record("packed"), "t/b.json": record("packed")}


@pytest.fixture
def packed(tmp_path):
    content = RECORDS | training(3)
    pack(written(tmp_path / "packed", content), ["t"], tmp_path / "file")
    return tmp_path / "file"


def test_records_that_are_there_stay(packed, tmp_path):
    results = written(tmp_path / "here", {"t/a.json": record("mine")})
    unpack(packed, results)
    assert files(results) == RECORDS | {"t/a.json": record("mine")} | training(3)


@pytest.mark.parametrize(("last", "kept"), [(1, "packed"), (3, "mine"), (4, "mine")])
def test_of_two_states_of_a_training_the_further_one_is_kept_whole(last, kept, packed, tmp_path):
    # Rejects a checkpoint beside the metrics of another one.
    results = written(tmp_path / "here", training(last, "mine"))
    unpack(packed, results)
    expected = training(3) if kept == "packed" else training(last, "mine")
    assert files(results) == RECORDS | expected


def test_a_training_that_was_not_unpacked_to_the_end_is_replaced(packed, tmp_path):
    half = {"t/unfinished/a-1/config.toml": b"half", "t/unfinished/a-1/metrics.jsonl": b""}
    results = written(tmp_path / "here", half)
    unpack(packed, results)
    assert files(results) == RECORDS | training(3)


def damaged(file):
    content = file.read_bytes()
    middle = bytearray(content)
    middle[len(content) // 2] ^= 255
    return {
        "cut": content[:-20],
        "changed": bytes(middle),
        "empty": b"",
        "no archive": b"What is this?",
        "another archive": gzip.compress(b"What is this?" * 100),
    }


@pytest.mark.parametrize("kind", ["cut", "changed", "empty", "no archive", "another archive"])
def test_a_damaged_file_is_one_sentence_and_changes_nothing(kind, packed, tmp_path):
    packed.write_bytes(damaged(packed)[kind])
    refuses(packed, tmp_path)


def refuses(packed, folder):
    """Checks that a packed file is refused in one sentence, and that no file is touched."""
    written(folder / "here", {"t/a.json": record("mine")} | training(1, "mine"))
    written(folder, training(1, "mine", "unfinished/x"))  # beside the target
    before = files(Results(folder))
    with pytest.raises(RecordError) as caught:
        unpack(packed, Results(folder / "here"))
    message = str(caught.value)
    start = f"{packed} must be a file that --pack has written, but it could not be read: "
    assert message.startswith(start)
    assert message.endswith(".")
    assert message[len(start) :].strip(".")
    assert files(Results(folder)) == before
    assert not [path for path in folder.rglob("*") if path.is_symlink() or "unpack" in path.name]


def archive(file, content, **changes):
    """Writes any files into an archive; `changes` are attributes of the first entry."""
    with tarfile.open(file, "w:gz") as target:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for attribute, value in changes.items():
                setattr(entry, attribute, value)
            changes = {}
            target.addfile(entry, io.BytesIO(data))
    return file


EVIL = [
    "/tmp/filtrax-evil.pth",
    "../elsewhere",
    "../../t/a.json",
    "t/../../a.json",
    "t/./a.json",
    "t//a.json",
    "./t/a.json",
    "t/a.json/",
    "t/.a.json",
    "t/a.txt",
    "a.json",
    "t/b/a.json",
    "t\\..\\a.json",
    "t/a\n.json",
    "t/unfinished",
    "t/unfinished/a-1",
    "t/unfinished/../checkpoints/checkpoint-000009.npz",
    "../unfinished/x/checkpoints/checkpoint-000009.npz",
    "t/unfinished/a-1/checkpoints/../../../../evil.json",
    "t/unfinished/a-1/checkpoints/checkpoint-x.npz",
    "t/unfinished/a-1/checkpoints/checkpoint--00009.npz",
    "t/unfinished/a-1/checkpoints/checkpoint-" + "9" * 400 + ".npz",
    "t/unfinished/../models/a/model.npz",
    "t/models/a/evil.py",
    "t/models/a/b/model.npz",
    "t/unfinished/a-1/sitecustomize.py",
    "t/unfinished/a-1/events/../../evil",
    f"t/{'a' * 300}.json",
]


@pytest.mark.parametrize("name", EVIL)
def test_names_that_are_never_packed_are_refused_before_anything_moves(name, tmp_path):
    good = {"t/b.json": record("packed")} | training(9)
    refuses(archive(tmp_path / "file", good | {name: record("evil")}), tmp_path)
    assert not Path("/tmp/filtrax-evil.pth").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "t/b.json"},
        {"type": tarfile.DIRTYPE},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.CHRTYPE},
        {"type": tarfile.CONTTYPE},
    ],
    ids=lambda changes: changes["type"].decode(),
)
def test_nothing_but_plain_files_is_unpacked(changes, tmp_path):
    content = {"t/c.json": b"", "t/b.json": record("packed")} | training(9)
    refuses(archive(tmp_path / "file", content, **changes), tmp_path)


def test_two_files_of_one_name_are_refused(tmp_path):
    # The second would be unpacked after only the first was looked at.
    with tarfile.open(tmp_path / "file", "w:gz") as target:
        for says in ("good", "evil"):
            entry = tarfile.TarInfo("t/b.json")
            entry.size = len(record(says))
            target.addfile(entry, io.BytesIO(record(says)))
    refuses(tmp_path / "file", tmp_path)


@pytest.mark.parametrize("where", ["t", "t/models"])
def test_a_link_in_the_target_leads_nowhere(where, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "there" / where
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="leads out of"):
        unpack(
            archive(tmp_path / "file", {"t/models/a/model.npz": arrays(1)}),
            Results(tmp_path / "there"),
        )
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "MOST_BYTES", 10_000)
    zeros = {"t/models/a/model.npz": bytes(2_000_000)}
    refuses(archive(tmp_path / "file", zeros), tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"t/b.json": b"{}"},
        {"t/b.json": b"[" * 100_000},
        {"t/b.json": record("b", "another table")},
        {"t/models/a/model.npz": arrays(1)[:-9]},
        {"t/models/a/config.toml": b"= 3"},
        training(9) | {"t/unfinished/a-1/run.json": b"{"},
        training(9) | {"t/unfinished/a-1/metrics.jsonl": b"{\n" * 9},
        training(9) | {"t/unfinished/a-1/checkpoints/checkpoint-000009.npz": arrays(1)[:-9]},
        training(9) | {"t/unfinished/a-1/metrics.jsonl": b"{}\n" * 8},
        training(9, size=4),
    ],
    ids=range(10),
)
def test_damaged_content_replaces_nothing(content, tmp_path):
    # Rejects a newer but damaged checkpoint, or one of another training, in place of a good one.
    refuses(archive(tmp_path / "file", content), tmp_path)


def test_a_damaged_checkpoint_that_is_there_gives_way(packed, tmp_path):
    name = "t/unfinished/a-1/checkpoints/checkpoint-000001.npz"
    results = written(tmp_path / "here", training(1, "mine") | {name: b"damaged"})
    unpack(packed, results)
    assert files(results) == RECORDS | training(3)


def test_a_training_that_cannot_be_replaced_stays(packed, tmp_path, monkeypatch):
    results = written(tmp_path / "here", training(1, "mine"))
    replace = os.replace

    def failing(source, target):
        if "new" in str(source) and "unfinished" in str(source):
            raise OSError(errno.ENOSPC, "full")
        replace(source, target)

    monkeypatch.setattr(unpacking.os, "replace", failing)
    with pytest.raises(RecordError, match="The disk is full"):
        unpack(packed, results)
    assert files(results) == training(1, "mine")


@pytest.mark.xdist_group("tiny_run")
def test_an_unfinished_training_goes_on_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
    tiny_run.finished()
    table, plan = tiny_table(), Plan()
    whole, here, there = (Results(tmp_path / name) for name in ("whole", "here", "there"))
    assert reproduce([table], whole, plan)
    clock = StoppedClock()
    with monkeypatch.context() as patch:
        patch.setattr(scheduling, "time", clock)
        assert not reproduce([table], here, Plan(seconds=1.0), Ticking(clock))
    pack(here, ["tiny"], tmp_path / "file")
    unpack(tmp_path / "file", there)
    watch = Recorder()
    assert reproduce([table], there, plan, watch)
    assert [record["epoch"] for record in watch.records] == [2]
    (cell,) = plan.cells(table)
    ours, theirs = there.read(cell), whole.read(cell)
    assert ours is not None
    assert theirs is not None
    assert timeless(ours) == timeless(theirs)
