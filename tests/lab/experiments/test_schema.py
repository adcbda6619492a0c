"""The JSON Schema of configurations says what the parser does, and is the one that ships."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import ClassVar, Literal

import jsonschema
import pytest

import filtrax
from filtrax.lab import register
from filtrax.lab.config import ConfigurationError, as_dict, find, packaged, parse, shipped
from filtrax.lab.config.filters import AbstractFilterSettings, Imm, Ukf
from filtrax.lab.config.schema import descriptions, schema
from filtrax.lab.config.settings import Experiment
from filtrax.lab.tasks.kitti import KittiTask
from filtrax.lab.tasks.kitti.windows import Frames

ROOT = Path(__file__).parents[3]
FILE = ROOT / "configs" / "filtrax.schema.json"


def validator():
    made = schema(Experiment, "A configuration of filtrax")
    jsonschema.Draft7Validator.check_schema(made)
    return jsonschema.Draft7Validator(made)


def test_the_schema_that_ships_is_that_of_the_code():
    made = schema(Experiment, "A configuration of filtrax")
    assert json.loads(FILE.read_text()) == made, "filtrax schema > configs/filtrax.schema.json"


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/*.toml")), ids=lambda path: path.stem)
def test_every_configuration_is_valid(path):
    assert not list(validator().iter_errors(tomllib.loads(path.read_text())))


def test_what_is_written_is_valid():
    # Rejects defaults that are left out of the schema, and another form of nested tables.
    for experiment in (
        Experiment(),
        Experiment(filter=Imm(Ukf())),
        Experiment(task=KittiTask(split=Frames())),
    ):
        assert not list(validator().iter_errors(as_dict(experiment)))


@pytest.mark.parametrize(
    "mapping",
    [
        {"sed": 1},
        {"seed": "x"},
        {"seed": True},
        {"name": 3},
        {"task": 3},
        {"task": {"kind": "kiti"}},
        {"task": {"kind": "kitti", "num_distractors": 3}},
        {"task": {"kind": "kitti", "image_size": [1]}},
        {"task": {"kind": "kitti", "split": {"kind": "fold", "sequence": "00"}}},
        {"model": {"dropout": 0.1}},
        {"model": {"sensor": "papr"}},
        {"task": {"kind": "kitti"}, "model": {"process_std": 1.0}},
        {"filter": {"kind": "ukf", "iterations": 1}},
        {"filter": {"num_particles": 3}},
        {"filter": {"kind": "imm", "inner": {"kind": "lstm"}}},
        {"stages": {}},
        {"stages": [{"num_epochs": "x"}]},
        {"stages": [{"decay": "linear"}]},
        {"stages": [{"terms": [{"weight": 1.0}]}]},
    ],
)
def test_what_the_parser_refuses_is_not_valid(mapping):
    with pytest.raises(ConfigurationError):
        parse(Experiment, mapping)
    assert not validator().is_valid(mapping)


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"filter": {"iterations": 2}},
        {"filter": {"kind": "imm", "inner": {"iterations": 2}}},
        {"task": {"num_steps": 30}, "model": {"process_std": 2}},
        {"task": {"kind": "kitti", "split": {"test": "07"}}, "model": {"dropout": 0.1}},
    ],
)
def test_what_the_parser_takes_is_valid(mapping):
    assert parse(Experiment, mapping)
    assert validator().is_valid(mapping)


def test_every_setting_is_described():
    made = schema(Experiment, "")
    tables = [made, *made["definitions"].values()]
    lacking = [
        name
        for table in tables
        for name, entry in table["properties"].items()
        if name != "kind" and not entry.get("description")
    ]
    assert not lacking
    assert made["properties"]["num_seeds"]["default"] == 1


def test_a_description_is_the_entry_of_a_docstring():
    class Described:
        """A summary.

        - `one`: what it is,
          on two lines.
        - `two`, `three`: both of them.

        And `four`: nothing.
        """

    assert descriptions(Described) == {
        "one": "What it is, on two lines.",
        "two": "Both of them.",
        "three": "Both of them.",
    }


def test_kinds_of_ones_own_are_in_the_schema(own_registry):
    @register
    @dataclasses.dataclass(frozen=True)
    class Mine(AbstractFilterSettings):
        """- `size`: how large it is."""

        kind: ClassVar[str] = "mine"
        size: Literal["small", "large"] = "small"

        def build(self, task, model, example, *, key):
            return None

    assert validator().is_valid({"filter": {"kind": "mine", "size": "large"}})
    assert not validator().is_valid({"filter": {"kind": "mine", "size": "huge"}})


def test_configurations_that_come_with_the_package_have_names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert shipped().keys() == {path.stem for path in ROOT.glob("configs/*.toml")}
    found = find(Path("disc_pf_m"))
    assert found.read_text() == (ROOT / "configs" / "disc_pf_m.toml").read_text()
    with pytest.raises(ConfigurationError, match=r"'disc_pfm'.* Did you mean 'disc_pf_m'"):
        find(Path("disc_pfm"))
    # Rejects a name that is looked for in spite of a path, or of a file here.
    for path in ("disc_pf_m.toml", "configs/disc_pf_m", "../disc_pf_m", "."):
        assert find(Path(path)) == Path(path)
    Path("disc_pf_m").write_text("")
    assert find(Path("disc_pf_m")) == Path("disc_pf_m")


def test_the_wheel_has_them_where_they_are_looked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    package, clone = packaged._FOLDERS
    assert package == Path(filtrax.__file__).parents[1] / forced["configs"]
    assert clone == ROOT / "configs"
    assert "configs" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
