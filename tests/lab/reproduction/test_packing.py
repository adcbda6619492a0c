"""Packing: a file takes records and unfinished states to another machine, and harms nothing."""

import gzip
import io
import tarfile

import pytest
from reproduction.tiny_table import Recorder, StoppedClock, Ticking, timeless, tiny_table

import tiny_run
from filtrax.lab.experiments import ensembles
from filtrax.lab.files import RecordError
from filtrax.lab.reproduction import scheduling
from filtrax.lab.reproduction.packing import pack, unpack
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.running import reproduce


def files(results):
    """The content of all files of a folder."""
    paths = (path for path in results.path.rglob("*") if path.is_file())
    return {str(path.relative_to(results.path)): path.read_text() for path in paths}


def written(folder, content):
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Results(folder)


def training(last, says="packed", name="t/unfinished/a-1"):
    """The files of an unfinished training that has come so far."""
    lines = {f"{name}/metrics.jsonl": f"{says}\n" * last, f"{name}/config.toml": says}
    return lines | {f"{name}/checkpoints/checkpoint-{last:06d}.npz": f"{says} {last}"}


def test_everything_but_old_checkpoints_and_claims_arrives(tmp_path):
    wanted = {"t/a.json": "{}", "t/models/a/model.npz": "m", "u/b.json": "[]"} | training(3)
    unwanted = {
        "t/unfinished/a-1/checkpoints/checkpoint-000002.npz": "old",
        "t/unfinished/a-1.lock": "",
        "t/.a.json.123": "half",
        "v/c.json": "of a table that is not asked for",
    }
    results = written(tmp_path / "here", wanted | unwanted)
    pack(results, ["t", "u", "none"], tmp_path / "new" / "file.tar.gz")
    there = Results(tmp_path / "there" / "deep")
    unpack(tmp_path / "new" / "file.tar.gz", there)
    assert files(there) == wanted


@pytest.fixture
def packed(tmp_path):
    content = {"t/a.json": "packed", "t/b.json": "packed"} | training(3)
    pack(written(tmp_path / "packed", content), ["t"], tmp_path / "file")
    return tmp_path / "file"


def test_records_that_are_there_stay(packed, tmp_path):
    results = written(tmp_path / "here", {"t/a.json": "mine"})
    unpack(packed, results)
    assert files(results) == {"t/a.json": "mine", "t/b.json": "packed"} | training(3)


@pytest.mark.parametrize(("last", "kept"), [(1, "packed"), (3, "mine"), (4, "mine")])
def test_of_two_states_of_a_training_the_further_one_is_kept_whole(last, kept, packed, tmp_path):
    # Rejects a checkpoint beside the metrics of another one.
    results = written(tmp_path / "here", training(last, "mine"))
    unpack(packed, results)
    records = {"t/a.json": "packed", "t/b.json": "packed"}
    expected = training(3) if kept == "packed" else training(last, "mine")
    assert files(results) == records | expected


def test_a_training_that_was_not_unpacked_to_the_end_is_replaced(packed, tmp_path):
    half = {"t/unfinished/a-1/config.toml": "half", "t/unfinished/a-1/metrics.jsonl": ""}
    results = written(tmp_path / "here", half)
    unpack(packed, results)
    assert files(results) == {"t/a.json": "packed", "t/b.json": "packed"} | training(3)


def damaged(file):
    content = file.read_bytes()
    middle = bytearray(content)
    middle[len(content) // 2] ^= 255
    outside = io.BytesIO()
    with tarfile.open(fileobj=outside, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../elsewhere"), io.BytesIO())
    return {
        "cut": content[:-20],
        "changed": bytes(middle),
        "empty": b"",
        "no archive": b"What is this?",
        "another archive": gzip.compress(b"What is this?" * 100),
        "outside": outside.getvalue(),
    }


@pytest.mark.parametrize(
    "kind", ["cut", "changed", "empty", "no archive", "another archive", "outside"]
)
def test_a_damaged_file_is_one_sentence_and_changes_nothing(kind, packed, tmp_path):
    packed.write_bytes(damaged(packed)[kind])
    results = written(tmp_path / "here", {"t/a.json": "mine"} | training(1, "mine"))
    before = files(results)
    with pytest.raises(RecordError) as caught:
        unpack(packed, results)
    message = str(caught.value)
    start = f"{packed} must be a file that --pack has written, but it could not be read: "
    assert message.startswith(start)
    assert message.endswith(".")
    assert message[len(start) :].strip(".")
    assert files(results) == before
    assert not (tmp_path / "elsewhere").exists()


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
