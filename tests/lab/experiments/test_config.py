"""Configurations: what is read is what was written, and every mistake is named."""

import dataclasses
import math
import tomllib
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filtrax.lab import config
from filtrax.lab.config import (
    ConfigurationError,
    as_dict,
    build,
    override,
    parse,
    read,
    write,
)
from filtrax.lab.config.parsing import PYTHON_ONLY


@dataclasses.dataclass(frozen=True)
class Kalman:
    kind: ClassVar[str] = "kalman"
    iterations: int = 1
    scale: float = 0.5


@dataclasses.dataclass(frozen=True)
class Particle:
    kind: ClassVar[str] = "particle"
    num_particles: int = 100
    belief: Literal["mixture", "gaussian"] = "mixture"


@dataclasses.dataclass(frozen=True)
class Stage:
    num_epochs: int = 30
    train: tuple[str, ...] = ("model",)
    rate: float | tuple[float, ...] = 0.1
    decay: float | None = 0.9

    def __post_init__(self):
        if self.num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1, got {self.num_epochs}.")


@dataclasses.dataclass(frozen=True)
class Task:
    kind: ClassVar[str] = "disc"
    size: int = 120
    box: tuple[int, int] = (1, 2)
    loud: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    seed: int = 0
    task: Task = Task(size=60)  # another default than the class's own
    filter: Kalman | Particle = Kalman()
    stages: tuple[Stage, ...] = (Stage(),)

    def __post_init__(self):
        if self.stages and self.stages[0].num_epochs > self.task.size:
            raise ValueError("Too many epochs for the task.")


FULL = Experiment(
    name='quotes " and\nlines',
    seed=3,
    task=Task(size=100, box=(3, 4), loud=True),
    filter=Particle(7, "gaussian"),
    stages=(Stage(1, ("model.sensor", "filter"), (1e-3, 2.0), None), Stage(2, (), 1e-300, 1.0)),
)


def refusal(mapping, cls=Experiment):
    with pytest.raises(ConfigurationError) as caught:
        parse(cls, mapping)
    return str(caught.value)


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "config.toml"
    for experiment in (FULL, Experiment("plain")):
        write(path, experiment)
        assert read(Experiment, path) == experiment
        assert parse(Experiment, as_dict(experiment)) == experiment


@given(
    st.builds(
        Stage,
        num_epochs=st.integers(1, 60),
        train=st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
        rate=st.floats(allow_nan=False) | st.lists(st.floats(allow_nan=False)).map(tuple),
        decay=st.none() | st.floats(allow_nan=False),
    )
)
def test_every_value_survives_the_text(stage):
    # Rejects numbers that are rounded, and texts that are not escaped.
    text = config.as_toml(stage)
    assert parse(Stage, tomllib.loads(text)) == stage


def test_what_is_not_said_stays_as_it_is_by_default():
    # Rejects tables that start from their class when the experiment has another default.
    read_back = parse(Experiment, {"name": "a", "task": {"loud": True}})
    assert read_back.task == Task(size=60, loud=True)
    assert parse(Experiment, {"name": "a", "filter": {"iterations": 4}}).filter == Kalman(4)
    assert parse(Experiment, {"name": "a", "filter": {"kind": "particle"}}).filter == Particle()
    assert parse(Experiment, {"name": "a", "stages": []}).stages == ()


def test_whole_numbers_are_numbers_but_truth_values_are_not():
    scale = parse(Experiment, {"name": "a", "filter": {"scale": 2}}).filter.scale
    assert type(scale) is float
    assert scale == 2.0
    for value in (True, 1.0, "1", math.nan):
        assert "`seed` must be a whole number, got" in refusal({"name": "a", "seed": value})
    for value in (True, "1", math.nan, [1.0]):
        message = refusal({"name": "a", "filter": {"scale": value}})
        assert "`filter.scale` must be a number, got" in message
    for value in (1, "true"):
        message = refusal({"name": "a", "task": {"loud": value}})
        assert "`task.loud` must be true or false, got" in message


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({}, "`name` is missing: it must be a text in quotes."),
        ({"name": 3}, "`name` must be a text in quotes, got 3."),
        ({"name": "a", "sed": 1}, "There is no setting `sed`: .* Did you mean 'seed'"),
        ({"name": "a", "iterations": 1}, "no setting `iterations`. Did you mean `filter.iter"),
        ({"name": "a", "num_epochs": 1}, "Did you mean `stages.0.num_epochs`?"),
        ({"name": "a", "kind": "disc"}, "There is no setting `kind`"),
        ({"name": "a", "task": 3}, "`task` must be a table with a `kind`, got 3."),
        ({"name": "a", "task": {"kind": "disk"}}, "`task.kind` .* Did you mean 'disc'"),
        ({"name": "a", "filter": "kalman"}, "`filter` must be a table with a `kind`, got 'kal"),
        ({"name": "a", "filter": {"kind": "kalmann"}}, "`filter.kind` .* Did you mean 'kalman'"),
        ({"name": "a", "filter": {"kind": []}}, "`filter.kind` must be one of"),
        ({"name": "a", "filter": {"num_particles": 3}}, "`filter.num_particles` of kind 'kalman'"),
        (
            {"name": "a", "filter": {"kind": "particle", "belief": "mixtur"}},
            "`filter.belief` .*'gaussian'.* Did you mean 'mixture'",
        ),
        ({"name": "a", "stages": {}}, "`stages` must be a list, got {}."),
        ({"name": "a", "stages": [1]}, "`stages.0` must be a table, got 1."),
        ({"name": "a", "stages": [{}, {"epochs": 1}]}, "There is no setting `stages.1.epochs`"),
        ({"name": "a", "stages": [{}, {"num_epochs": 0}]}, "`stages.1`: num_epochs must be at l"),
        ({"name": "a", "stages": [{"train": ["a", 1]}]}, "`stages.0.train.1` must be a text"),
        ({"name": "a", "stages": [{"rate": "x"}]}, "must be a number or a list, got 'x'"),
        ({"name": "a", "stages": [{"decay": "x"}]}, "`stages.0.decay` must be a number, got 'x'"),
        ({"name": "a", "task": {"box": [1]}}, r"`task.box` must be a list of 2 entries, got \[1"),
        ({"name": "a", "stages": [{"num_epochs": 99}]}, "^Too many epochs for the task.$"),
    ],
)
def test_a_mistake_is_named_with_its_place(mapping, expected):
    with pytest.raises(ConfigurationError, match=expected):
        parse(Experiment, mapping)


def test_a_truth_value_is_no_choice_among_numbers():
    @dataclasses.dataclass(frozen=True)
    class Order:
        order: Literal[1, 2] = 2

    assert parse(Order, {"order": 1}) == Order(1)
    assert "`order` must be one of" in refusal({"order": True}, Order)


def test_a_choice_without_default_must_be_made():
    @dataclasses.dataclass(frozen=True)
    class Choice:
        filter: Kalman | Particle

    assert "`filter.kind` is missing" in refusal({"filter": {}}, Choice)
    assert parse(Choice, {"filter": {"kind": "kalman"}}).filter == Kalman()


def test_an_annotation_that_no_file_can_fill_is_a_mistake_of_the_program():
    @dataclasses.dataclass(frozen=True)
    class Wrong:
        value: complex = 1j

    with pytest.raises(TypeError, match="`value` has the annotation"):
        parse(Wrong, {"value": 1})


def test_overrides_change_one_setting_and_leave_the_mapping_alone():
    mapping = {"name": "a", "stages": [{"num_epochs": 1}, {"num_epochs": 2}]}
    changed = override(mapping, "stages.1.num_epochs = 5")
    assert changed == {"name": "a", "stages": [{"num_epochs": 1}, {"num_epochs": 5}]}
    assert override(mapping, "stages.0=3")["stages"] == [3, {"num_epochs": 2}]
    assert override({}, "a.b.c=1") == {"a": {"b": {"c": 1}}}
    assert mapping["stages"][1] == {"num_epochs": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("1e-3", 1e-3),
        (".5", 0.5),
        ("-2.", -2.0),
        ("true", True),
        ("True", "True"),
        ("ukf", "ukf"),
        ("end to end", "end to end"),
        ('"12"', "12"),
        ("[1, 2]", [1, 2]),
        ('["a"]', ["a"]),
        ("{a = 1}", {"a": 1}),
        ("1\nother = 2", "1\nother = 2"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_the_value_of_an_override_is_toml_or_a_word(text, value):
    found = override({}, f"key={text}")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("seed", "key=value, as in .*, got 'seed'"),
        ("=3", "key=value"),
        ("a..b=3", "key=value"),
        ("seed.x=3", "`seed` is the single value 0 and has no parts"),
        ("stages.2.num_epochs=3", "`stages` is a list whose 1 entries .*, got '2'"),
        ("stages.-1.num_epochs=3", "`stages` is a list"),
        ("stages.first.num_epochs=3", "`stages` is a list"),
        ("stages.1=3", "`stages` is a list"),
    ],
)
def test_an_override_that_goes_nowhere_is_refused(assignment, expected):
    with pytest.raises(ConfigurationError, match=expected):
        override(as_dict(Experiment("a")), assignment)


def test_overrides_reach_what_the_file_leaves_out(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('name = "a"')
    overrides = ["stages.0.num_epochs=3", "task.loud=true", "stages.0.decay=none"]
    found = read(Experiment, path, overrides)
    assert found.stages == (Stage(num_epochs=3, decay=None),)
    assert found.task == Task(size=60, loud=True)
    assert read(Experiment, None, ["name=b"]) == Experiment("b")


def test_another_kind_starts_from_its_own_defaults_whatever_the_order(tmp_path):
    # Rejects settings of the old kind that are handed to the new one.
    path = tmp_path / "config.toml"
    path.write_text('name = "a"\n[filter]\nkind = "kalman"\niterations = 5\n')
    overrides = ["filter.num_particles=9", "filter.kind=particle"]
    for order in (overrides, overrides[::-1]):
        assert read(Experiment, path, order).filter == Particle(9)
    assert read(Experiment, path, ["filter.kind=kalman"]).filter == Kalman(5)


def test_an_override_may_repair_a_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('name = "a"\nseed = "x"')
    assert read(Experiment, path, ["seed=4"]) == Experiment("a", 4)
    with pytest.raises(ConfigurationError, match="`seed`"):
        read(Experiment, path, ["task.size=3"])


def test_files_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "config.toml"
    with pytest.raises(ConfigurationError, match=r"no configuration file at .*config\.toml"):
        read(Experiment, path)
    path.write_text("name = \nseed = 1")
    with pytest.raises(ConfigurationError, match=r"config\.toml is not a valid TOML .*line 1"):
        read(Experiment, path)
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigurationError, match=r"config\.toml is not a valid TOML"):
        read(Experiment, path)
    with pytest.raises(ConfigurationError, match=r"is a folder\. Did you mean .*config\.toml"):
        read(Experiment, tmp_path)
    with pytest.raises(ConfigurationError, match=r"is a folder\.$"):
        read(Experiment, tmp_path.parent)
    path.write_bytes(b'\xef\xbb\xbfname = "a"\r\n')
    assert read(Experiment, path) == Experiment("a")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text('name = "a"')

    def forbidden(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "read_bytes", forbidden)
    with pytest.raises(ConfigurationError, match=r"config\.toml could not be read: Permission"):
        read(Experiment, path)


@dataclasses.dataclass(frozen=True)
class Free:
    names: dict[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    anything: dict[str, Any] = dataclasses.field(default_factory=dict)
    code: Any = dataclasses.field(default=None, metadata=PYTHON_ONLY)


def test_a_table_may_have_free_keys():
    mapping = {"names": {"a": "b", "c": ["d", "e"]}, "anything": {"x": [1, {"y": 2}]}}
    found = parse(Free, mapping)
    assert found.names == {"a": "b", "c": ("d", "e")}
    assert found.anything == mapping["anything"]
    assert "`names.a` must be a text in quotes or a list, got 1" in refusal(
        {"names": {"a": 1}}, Free
    )
    assert "`anything` must be a table, got 3" in refusal({"anything": 3}, Free)
    assert "no setting `code`" in refusal({"code": "x"}, Free)


def test_what_is_built_from_a_mapping_leaves_it_as_it_was():
    mapping = {"name": "x", "filter": {"kind": "kalman", "scale": 2.0}}
    found = build(Experiment, mapping, ["filter.belief=gaussian", "filter.kind=particle"])
    assert found.filter == Particle(100, "gaussian")
    assert mapping == {"name": "x", "filter": {"kind": "kalman", "scale": 2.0}}
