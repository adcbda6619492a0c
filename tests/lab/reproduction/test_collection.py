"""Collected records: one file for each table, the same bytes whoever collects, and nothing lost."""

import json
import os
import random
import subprocess
import sys

import pytest
from reproduction.fake_records import fake_records

from filtrax.lab.files import RecordError
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


def test_records_come_back_as_they_were_and_settings_are_stored_once(tmp_path, records):
    # Rejects references that are resolved to another record's settings, and a copy in every line.
    write(tmp_path / "out", records)
    assert collect(tmp_path / "out", tmp_path / "study", [TABLE.name]) == len(records)
    assert read_collection(tmp_path / "study", TABLE.name) == records
    text = path_of(tmp_path / "study", TABLE.name).read_text()
    assert text.count('"num_distractors"') == 1
    assert len(text) < 0.6 * sum(len(json.dumps(record)) for record in records.values())


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
    "a lost part": (lambda lines: [lines[0], *lines[2:]], "is damaged"),
    "a later version": (
        lambda lines: [lines[0].replace('"version":1', '"version":2'), *lines[1:]],
        "has version 2 of its format, and this filtrax reads version 1",
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
