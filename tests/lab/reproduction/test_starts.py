"""What cells begin with or take over from other tables, and settings for all of them.

Rejected are: a source of a source that is not trained, or not before what needs it; models that are
missing although their records are there; a start that is taken by the wrong cells; records that are
taken over although their settings differ; settings that do not reach what cells start from.
"""

import dataclasses
import json

import pytest
from reproduction.tiny_table import DATA, NOISE, source_of, tiny_table

from filtrax.lab.config import ConfigurationError
from filtrax.lab.reproduction import tables
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.tables import Axis, Start, Value, read_table, source_tables

ANY = Axis("noise", (Value("any"),))
CHAIN = """
[[start]]
table = "tiny_source"
axes = ["data"]
"""


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """A table that starts from a table that starts from a third one, but for one of its cells."""
    for name in ("tiny_source", "tiny_middle"):
        source_of(tmp_path, name)
    middle = tmp_path / "tiny_middle.toml"
    middle.write_text(middle.read_text() + CHAIN)
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    tables._packaged.cache_clear()
    yield tiny_table(
        NOISE,
        start=(
            Start("tiny_middle", when={"noise": "small"}, labels={"data": "3"}),
            Start("tiny_source", labels={"data": "9"}, parts=("model.sensor",)),
        ),
    )
    tables._packaged.cache_clear()


def test_the_first_start_that_speaks_of_a_cell_counts(chain):
    starts = {cell.name: cell.start for cell in chain.cells("paper")}
    assert starts == {
        "small": ("tiny_middle", "3", ("model",)),
        "large": ("tiny_source", "9", ("model.sensor",)),
    }
    only = dataclasses.replace(chain, start=chain.start[:1])
    assert [cell.start is None for cell in only.cells("paper")] == [False, True]
    assert source_tables([chain]) == {"tiny_middle", "tiny_source"}
    assert source_tables([only]) == {"tiny_middle", "tiny_source"}
    assert source_tables([tiny_table()]) == set()


def test_sources_of_sources_train_first_and_again_if_their_models_are_missing(
    chain, fake, tmp_path
):
    results = Results(tmp_path / "out")
    assert reproduce([chain], results, Plan(only=("small",), settings=("seed=5",)))
    assert fake.names == [["3"], ["3"], ["small"]]
    for name in ("tiny_source/3", "tiny_middle/3", "tiny/small"):
        record = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert record["config"]["seed"] == 5
    results.model("tiny_source", "3").model.unlink()
    assert reproduce([chain], results, Plan(only=("small",), settings=("seed=5",)))
    assert len(fake.names) == 3  # nothing that is left to train needs the model
    results.model("tiny_middle", "3").model.unlink()
    results.record(chain.cells("paper")[0]).unlink()
    assert reproduce([chain], results, Plan(only=("small",), settings=("seed=5",)))
    assert fake.names[3:] == [["3"], ["3"], ["small"]]


def test_settings_are_for_all_cells_and_come_last():
    table = tiny_table(NOISE, DATA)
    plan = Plan(settings=("task.position_std=7.0", "filter.kind=ukf"))
    for cell in plan.cells(table):
        assert cell.experiment.task.position_std == 7.0
        assert cell.experiment.filter.kind == "ukf"
        assert cell.settings["task"]["position_std"] == 7.0
    assert {cell.experiment.model.process_std for cell in plan.cells(table)} == {3.0, 9.0}
    with pytest.raises(ConfigurationError, match=r"Cell 'small_0\.1' of table 'tiny'.*poses"):
        Plan(settings=("task.poses=somewhere",)).cells(table)


def test_settings_need_not_suit_cells_that_are_not_wanted():
    # Rejects a refusal because of a row that does not train, when another one is asked for.
    table = tiny_table(NOISE, DATA).with_value("noise", "untrained", ["stages=[]"])
    settings = ("stages.0.learning_rates=[2e-4]",)
    with pytest.raises(ConfigurationError, match="untrained"):
        Plan(settings=settings).cells(table)
    plan = Plan(only=("small",), settings=settings)
    plan.check([table])
    assert [cell.experiment.stages[0].learning_rates for cell in plan.cells(table)] == [(2e-4,)] * 2


@pytest.fixture
def sharing(tmp_path, monkeypatch):
    """A table of the package, and one that has some of its cells too."""
    source_of(tmp_path, "tiny_source")
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    tables._packaged.cache_clear()
    yield read_table("tiny_source"), tiny_table(ANY, DATA, shares=("tiny_source",))
    tables._packaged.cache_clear()


def test_what_has_the_settings_of_another_cell_takes_its_record(sharing, fake, tmp_path):
    source, table = sharing
    results = Results(tmp_path / "out")
    assert reproduce([table, source], results, Plan(only=("0.1",)))
    assert fake.names == [["any_0.1"]]
    # The tables train one after the other, but the second one has what the first one needs.
    assert reproduce([source, table], results, Plan())
    assert fake.names[1:] == [["3"], ["9"]]
    cell = next(cell for cell in table.cells("paper") if cell.name == "any_3")
    taken, given = results.read(cell), json.loads((tmp_path / "out/tiny_source/3.json").read_text())
    assert taken is not None
    assert taken["shared"] == "tiny_source/3"
    assert (taken["table"], taken["cell"]) == ("tiny", {"noise": "any", "data": "3"})
    assert taken["config"] == cell.settings
    assert {key: taken[key] for key in ("scale", "epochs", "origin")} == {
        key: given[key] for key in ("scale", "epochs", "origin")
    }


def test_records_of_other_settings_are_not_taken(sharing, fake, tmp_path):
    source, table = sharing
    results = Results(tmp_path / "out")
    assert reproduce([source], results, Plan(only=("3",), num_epochs=1))
    assert reproduce([table], results, Plan(only=("3",)))
    assert fake.names == [["3"], ["any_3"]]
