"""Which cells run, and which are left: to others, to later, or because they are done."""

import copy
import dataclasses

import pytest
from reproduction.tiny_table import DATA, NOISE, Recorder, tiny_table

from filtrax.lab.reproduction import tables
from filtrax.lab.reproduction.groups import group
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.tables import Axis, Value


def test_a_cell_with_a_record_is_not_run_again(fake, tmp_path):
    results, table = Results(tmp_path), tiny_table(NOISE, DATA)
    assert reproduce([table], results, Plan(only=("small",)))
    assert fake.names == [["small_0.1"], ["small_3"]]
    assert reproduce([table], results, Plan())
    assert fake.names[2:] == [["large_0.1"], ["large_3"]]


def test_records_of_other_settings_are_left_and_named(fake, tmp_path):
    # Rejects records of few epochs that silently pass for those of many.
    results, table = Results(tmp_path), tiny_table()
    assert reproduce([table], results, Plan())
    watch = Recorder()
    assert reproduce([table], results, Plan(), watch)
    assert watch.messages == []
    assert reproduce([table], results, Plan(num_epochs=7), watch)
    assert len(fake.names) == 1
    (message,) = watch.messages
    assert f"left as they are: {tmp_path / 'tiny' / 'small.json'}. Remove" in message


def test_settings_that_a_record_lacks_have_their_defaults(fake, tmp_path):
    # Rejects a new setting that makes all old records those of another experiment, or of any.
    results, table = Results(tmp_path), tiny_table()
    assert reproduce([table], results, Plan())
    (cell,) = Plan().cells(table)
    record = results.read(cell)
    assert record is not None
    assert cell.made(record)
    for part, name, other in (("model", "sensor_floor", 0.5), ("filter", "iterations", 3)):
        old = copy.deepcopy(record)
        del old["config"][part][name]
        assert cell.made(old)
        changed = dataclasses.replace(getattr(cell.experiment, part), **{name: other})
        another = dataclasses.replace(cell.experiment, **{part: changed})
        assert not dataclasses.replace(cell, experiment=another).made(old)
    del old["config"]["stages"][0]["clip_norm"]
    assert cell.made(old)
    old["config"]["stages"] = []
    assert not cell.made(old)


def test_the_state_of_a_training_that_is_done_is_removed(fake, tmp_path):
    # It is left by a kill after the last record, or comes from a packed file.
    results, table = Results(tmp_path), tiny_table()
    (only,) = group(Plan().cells(table))
    folder = results.unfinished(only.table, only.name)
    folder.create()
    assert reproduce([table], results, Plan())
    assert folder.path.exists()
    with results.claimed(only.table, only.name):
        assert reproduce([table], Results(tmp_path), Plan())
        assert folder.path.exists()
    assert reproduce([table], results, Plan())
    assert len(fake.names) == 1
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["small.json"]
    assert not folder.path.exists()


def test_what_others_train_is_left_to_them(fake, tmp_path):
    # Rejects two processes that write into the same folder.
    table = tiny_table(NOISE, DATA)
    cells = Plan().cells(table)
    first, second = group(cells)[:2]
    mine, other = Results(tmp_path), Results(tmp_path)
    with mine.claimed(first.table, first.name) as claimed:
        assert claimed
        with other.claimed(first.table, first.name) as again:
            assert not again
        with other.claimed(second.table, second.name) as another:
            assert another
        watch = Recorder()
        assert not reproduce([table], other, Plan(), watch)
        assert fake.names == [["small_3"], ["large_0.1"], ["large_3"]]
        assert watch.messages == ["Other processes train what is left, or what it starts from."]
    assert reproduce([table], other, Plan())
    assert fake.names[3:] == [["small_0.1"]]
    assert not list(tmp_path.rglob("*.lock"))


def test_what_starts_from_what_others_train_is_left_too(fake, started, tmp_path):
    results = Results(tmp_path / "out")
    (source,) = group(Plan(only=("3",)).cells(tables.read_table("tiny_source")))
    with results.claimed(source.table, source.name):
        assert not reproduce([started], Results(tmp_path / "out"), Plan())
    assert fake.names == []


def test_a_source_must_keep_its_models(started, tmp_path):
    # Rejects a source that trains for ever because what is wanted of it is never there.
    source = dataclasses.replace(tables.read_table("tiny_source"), models=False)
    with pytest.raises(ValueError, match="'tiny_source' must keep its models"):
        reproduce([started, source], Results(tmp_path / "out"), Plan())


def test_a_plan_changes_seeds_and_epochs_which_all_stages_share_as_before():
    stages = [{"num_epochs": 6}, {"num_epochs": 1}, {"num_epochs": 3}]
    table = dataclasses.replace(tiny_table(), base={"stages": stages})
    for wanted, shares in ((3, [1, 1, 1]), (5, [3, 1, 1]), (20, [12, 2, 6])):
        (cell,) = Plan(num_seeds=3, num_epochs=wanted).cells(table)
        assert cell.experiment.num_seeds == 3
        assert [stage.num_epochs for stage in cell.experiment.stages] == shares
        assert cell.planned_epochs == 10
    with pytest.raises(ValueError, match="at least 1 for each of the 3 stages"):
        Plan(num_epochs=2).cells(table)
    (cell,) = Plan(num_seeds=3, num_epochs=2).cells(dataclasses.replace(table, base={"stages": []}))
    assert (cell.experiment.num_seeds, cell.experiment.stages) == (1, ())


def test_a_plan_without_time_does_nothing(fake, tmp_path):
    assert not reproduce([tiny_table()], Results(tmp_path), Plan(seconds=0.0))
    assert fake.names == []
    assert reproduce([tiny_table()], Results(tmp_path), Plan())
    assert reproduce([tiny_table()], Results(tmp_path), Plan(seconds=0.0))


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (("large",), ["large_0.1", "large_3"]),
        (("*_3",), ["small_3", "large_3"]),
        (("small_*", "3"), ["small_0.1", "small_3", "large_3"]),
    ],
)
def test_patterns_choose_by_name_or_label(only, names):
    assert [cell.name for cell in Plan(only=only).cells(tiny_table(NOISE, DATA))] == names


def test_a_pattern_that_matches_nothing_is_a_mistake(fake, tmp_path):
    message = (
        r"`only` must match a label or the name of a cell: got 'lrge', but there are the labels "
        r"small, large, 0\.1, 3 and names like small_0\.1\. Did you mean 'large'\?"
    )
    with pytest.raises(ValueError, match=message):
        reproduce([tiny_table(NOISE, DATA)], Results(tmp_path), Plan(only=("small", "lrge")))
    many = Axis("number", tuple(Value(str(i)) for i in range(30)))
    with pytest.raises(ValueError, match=r"0, 1, .*, 17, … and names like small_0\.$"):
        reproduce([tiny_table(NOISE, many)], Results(tmp_path), Plan(only=("zzz",)))
    assert fake.names == []
