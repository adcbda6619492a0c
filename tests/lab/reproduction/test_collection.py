"""Collected records: one file for each table, the same bytes whoever collects, and nothing lost."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from reproduction.fake_records import fake_records

from filtrax.lab.experiments.run import averages
from filtrax.lab.files import RecordError
from filtrax.lab.reproduction import folding
from filtrax.lab.reproduction.cell_files import read_cell, write_cell
from filtrax.lab.reproduction.collection import as_text, collect, path_of, read_collection
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.tables import read_table

TABLE = read_table("disc_loss")


@pytest.fixture(scope="module")
def records():
    cells = {cell.name: cell.settings for cell in TABLE.cells("paper")}
    fakes = fake_records(TABLE, distance=5.0, nll=8.0)
    return {name: record | {"config": cells[name]} for name, record in fakes.items()}


def write(folder, records):
    """Writes a file for each record, as `filtrax reproduce` does."""
    (folder / TABLE.name).mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        (folder / TABLE.name / f"{name}.json").write_text(json.dumps(record))


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


def lost(record):
    """A record of members of which one has a number that is not finite."""
    first, *others = record["members"]
    members = [first | {"metrics": first["metrics"] | {"nll": None}}, *others]
    parts = {kind: record[kind] | {"nll": None} for kind in ("mean", "standard_error")}
    return record | parts | {"members": members}


def read_text(text):
    """The records in the text of a collection."""
    _, *lines = map(json.loads, text.splitlines())
    parts = {line["part"]: line["content"] for line in lines if "part" in line}
    cells = [line for line in lines if "cell" in line]
    return {line["cell"]: {"table": TABLE.name} | folding.unfold(line, parts) for line in cells}


def test_records_come_back_as_they_were_and_settings_are_stored_once(tmp_path, records):
    # Rejects references that are resolved to another record's settings, and a copy in every line.
    write(tmp_path / "out", records)
    assert collect(tmp_path / "out", tmp_path / "study", [TABLE.name]) == len(records)
    assert read_collection(tmp_path / "study", TABLE.name) == records
    text = path_of(tmp_path / "study", TABLE.name).read_text()
    assert text.count('"num_distractors"') == 1
    assert len(text) < 0.6 * sum(len(json.dumps(record)) for record in records.values())


def test_averages_are_stored_only_if_they_do_not_follow_from_members(records):
    # Rejects averages that are computed again although a run has said others, or has none.
    name, record = next(iter(records.items()))
    averaged = record | averages(record["members"])
    values = {"averaged": averaged, "own": record, "none": without(record, "mean")}
    values |= {"refused": without(record, "members", "mean", "standard_error")}
    values |= {"diverged": lost(averaged)}
    text = as_text(TABLE.name, values)
    assert read_text(text) == values
    assert '"mean"' not in as_text(TABLE.name, {name: averaged})


def test_single_precision_is_written_with_few_digits_and_read_exactly(records):
    # Rejects digits that are cut off, and numbers in double precision that become single ones.
    name, record = next(iter(records.items()))
    single, double = float(np.float32(4.2464571)), 4.2464571
    metrics = {"single": single, "double": double, "large": 1e300, "null": None, "count": 3}
    other = record | {"members": [{"seed": 0, "metrics": metrics}]}
    text = as_text(TABLE.name, {name: other})
    assert "4.246457," in text
    assert str(single) not in text
    assert read_text(text) == {name: other}


def test_members_that_differ_in_their_names_come_back_as_they_were(records):
    name, record = next(iter(records.items()))
    members = [{"seed": 0, "metrics": {"nll": 1.0}}, {"seed": 1, "metrics": {}}]
    other = record | {"members": members}
    assert read_text(as_text(TABLE.name, {name: other})) == {name: other}


def test_parts_whose_hashes_begin_alike_get_longer_keys(monkeypatch):
    # Rejects one part that takes the place of another.
    class Alike:
        def __init__(self, text):
            self.text = text.decode()

        def hexdigest(self):
            return "0123456789abcdef" + ("0" if "one" in self.text else "1")

    monkeypatch.setattr(folding.hashlib, "sha256", Alike)
    parts = folding.Parts()
    keys = [parts.keep(content) for content in ("one", "two", "one", "two")]
    assert keys == ["01234567", "012345678"] * 2


def test_a_cell_of_another_version_is_refused(tmp_path, records):
    name, record = next(iter(records.items()))
    path = tmp_path / f"{name}.json"
    write_cell(path, record)
    assert json.loads(path.read_text())["version"] == 1
    assert read_cell(path, TABLE.name) == record
    path.write_text(json.dumps(record | {"version": 2}))
    with pytest.raises(RecordError, match="must be a record of version 1, got 2"):
        read_cell(path, TABLE.name)
    path.write_text("[]")
    with pytest.raises(RecordError, match="is damaged"):
        read_cell(path, TABLE.name)


def test_the_same_records_are_the_same_bytes_in_any_order(tmp_path, records):
    # Rejects lines in the order in which cells were collected.
    names = list(records)
    for seed, target in enumerate(("a", "b")):
        random.Random(seed).shuffle(names)
        for part in (names[:3], names[3:]):
            write(tmp_path / f"{target}{part[0]}", {name: records[name] for name in part})
            collect(tmp_path / f"{target}{part[0]}", tmp_path / target, [TABLE.name])
    first, second = (path_of(tmp_path / target, TABLE.name).read_bytes() for target in ("a", "b"))
    assert first == second == as_text(TABLE.name, records).encode()


def test_processes_that_collect_at_once_lose_nothing(tmp_path, records):
    # Rejects a file that is read, and written again without what another process put there since.
    program = "import sys; from filtrax.lab.reproduction.collection import collect; "
    program += f"collect(sys.argv[1], sys.argv[2], [{TABLE.name!r}])"
    processes = []
    for index, (name, record) in enumerate(list(records.items())[:4]):
        write(tmp_path / str(index), {name: record})
        command = [sys.executable, "-c", program, str(tmp_path / str(index))]
        processes.append(subprocess.Popen([*command, str(tmp_path / "study")]))
    assert [process.wait() for process in processes] == [0] * 4
    assert set(read_collection(tmp_path / "study", TABLE.name)) == set(list(records)[:4])


def test_another_record_of_a_cell_is_an_error_unless_it_is_asked_for(tmp_path, records):
    # Rejects a collection that forgets a record because a cell was run again.
    name, record = next(iter(records.items()))
    write(tmp_path / "out", records)
    collect(tmp_path / "out", tmp_path / "study", [TABLE.name])
    assert collect(tmp_path / "out", tmp_path / "study", [TABLE.name]) == 0
    again = record | {"mean": {"distance": 1.0}}
    write(tmp_path / "again", {name: again})
    with pytest.raises(RecordError, match=f"other records of {name}, which stay .* `--replace`"):
        collect(tmp_path / "again", tmp_path / "study", [TABLE.name])
    assert read_collection(tmp_path / "study", TABLE.name) == records
    assert collect(tmp_path / "again", tmp_path / "study", [TABLE.name], replace=True) == 1
    assert read_collection(tmp_path / "study", TABLE.name) == records | {name: again}


def test_collected_cells_are_done_and_a_file_of_its_own_counts_before(tmp_path, records):
    # Rejects cells that are run again, and results that are read once and never again.
    write(tmp_path / "out", records)
    collect(tmp_path / "out", tmp_path / "study", [TABLE.name])
    results = Results(tmp_path / "new", collected=tmp_path / "study")
    cell = TABLE.cells("paper")[0]
    assert results.has(cell)
    assert results.read(cell) == records[cell.name]
    assert results.records(TABLE.name) == records
    results.write(cell, records[cell.name] | {"seconds": 1.0})
    assert results.records(TABLE.name)[cell.name]["seconds"] == 1.0
    path = path_of(tmp_path / "study", TABLE.name)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    os.utime(path, ns=(0, 0))
    assert len(results.records(TABLE.name)) == len(records) - 1


DAMAGED = {
    "cut": (lambda lines: [*lines[:-1], lines[-1][:20]], "is damaged"),
    "no head": (lambda lines: lines[1:], "must begin with a line of the format"),
    "names without an end": (
        lambda lines: [line.replace('["seeds"]', "[]") for line in lines],
        "is damaged",
    ),
    "nested without an end": (lambda lines: [*lines, '{"part":' + 10**5 * "["], "is damaged"),
    "a lost part": (lambda lines: [lines[0], *lines[2:]], "is damaged"),
    "a later version": (
        lambda lines: [lines[0].replace('"version":2', '"version":3'), *lines[1:]],
        "must have version 2 of the format 'filtrax records', got 3\\.$",
    ),
    "an older version": (
        lambda lines: [lines[0].replace('"version":2', '"version":1'), *lines[1:]],
        "got 1; commit [0-9a-f]{12} reads it",
    ),
    "of another table": (
        lambda lines: [lines[0].replace("disc_loss", "disc_length"), *lines[1:]],
        "must be of table 'disc_loss', got 'disc_length'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_sentence(tmp_path, records, name):
    # Rejects records that silently miss cells.
    damage, message = DAMAGED[name]
    lines = as_text(TABLE.name, records).splitlines()
    path_of(tmp_path, TABLE.name).write_text("\n".join(damage(lines)) + "\n")
    with pytest.raises(RecordError, match=message):
        read_collection(tmp_path, TABLE.name)
