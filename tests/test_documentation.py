"""What a reader reads is run: examples as scripts, Markdown block by block.

Each runs in a fresh process with JAX as a user has it, not with the strict settings of the other
tests. Pages alone share with these how little XLA optimizes: they compile much and run little, and
examples show that its defaults work.

Rejected are: a name or signature that changed in the code and not in the text, an example that grew
too long to read, a link to a file that moved, a public name that is explained nowhere, a setting,
key or option that the text does not explain or gives another default, a table or page that does not
follow from the records.
"""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer.core

import filtrax
from filtrax.cli import app
from filtrax.lab.config import as_dict, read
from filtrax.lab.config.filters import Ekf, Imm, Lstm, Mcukf, Particle, Ukf
from filtrax.lab.config.settings import Experiment, StageSettings, StartSettings
from filtrax.lab.reproduction import (
    Adjustment,
    Average,
    Axis,
    Claim,
    Rule,
    Start,
    Table,
    Value,
    table_names,
)
from filtrax.lab.reproduction.display.page import pages_are_current
from filtrax.lab.reproduction.rules import Lost
from filtrax.lab.tasks.disc import DiscModel, DiscTask
from filtrax.lab.tasks.kitti import Fold, Frames, KittiModel, KittiTask
from filtrax.lab.tasks.kitti.augment import Augmentation
from filtrax.lab.tasks.pushing import PushingModel, PushingTask

pytestmark = pytest.mark.documentation

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += sorted(ROOT.glob("docs/**/*.md"))

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_as_user(program: str, folder: Path, *, optimized: bool = True) -> str:
    """Runs a program in a process of its own and returns what it printed."""
    ours = ["XLA_FLAGS"] if optimized else []
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def blocks_as_program(page: Path) -> str:
    """All Python blocks of a page at their own line numbers, so that errors point into it."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    source = "\n".join(lines)
    return f"exec(compile({source!r}, {relative(page)!r}, 'exec'), {{'__name__': '__main__'}})"


def test_there_is_something_to_run():
    assert len(EXAMPLES) >= 5
    assert all(page.is_file() for page in PAGES)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative)
def test_example_is_short_runs_and_says_something(example, tmp_path):
    source = example.read_text()
    assert len(source.splitlines()) < 60
    assert source.startswith('"""')
    assert run_as_user(source, tmp_path).strip()


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=relative)
def test_blocks_run_in_order(page, tmp_path):
    run_as_user(blocks_as_program(page), tmp_path, optimized=False)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_lead_somewhere(page):
    prose = FENCED.sub("", page.read_text())
    targets = [link for link in LINK.findall(prose) if "://" not in link]
    missing = [link for link in targets if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


def test_links_of_the_readme_lead_to_the_repository_on_a_package_index():
    """Rejects a link that only works beside the files, and a picture that is a page of code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text()
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    links = LINK.findall(FENCED.sub("", text))
    assert [link for link in links if "://" not in link and not link.startswith("#")] == []
    own = project["project"]["urls"]["Repository"]
    pictures = [link for link in links if link.endswith(".png")]
    assert pictures
    assert all(link.startswith(f"{own}/raw/") for link in pictures)


@pytest.mark.parametrize(
    "module",
    [
        filtrax,
        filtrax.logs,
        filtrax.losses,
        filtrax.metrics,
        filtrax.models,
        filtrax.plot,
        filtrax.networks,
        filtrax.noise,
        filtrax.lab.reproduction,
        filtrax.resampling,
        filtrax.training,
    ],
    ids=lambda module: module.__name__,
)
def test_every_public_name_is_explained(module):
    """A name counts where it stands as code, so that `run` is not found in "they run"."""
    text = "\n".join(page.read_text() for page in PAGES)
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    names = public_names(module)
    assert names
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def public_names(module: ModuleType) -> list[str]:
    """What a module says is public, or else what it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    return getattr(module, "__all__", defined)


SECTIONS = {
    "Top level": Experiment,
    "`[task]`": DiscTask,
    "`[model]`": DiscModel,
    "`[task]` of kind `kitti`": KittiTask,
    "`[task.split]` of kind `fold`": Fold,
    "`[task.split]` of kind `frames`": Frames,
    "`[task.augmentation]`": Augmentation,
    "`[model]` of the KITTI task": KittiModel,
    "`[task]` of kind `pushing`": PushingTask,
    "`[model]` of the pushing task": PushingModel,
    "`[filter]` of kind `ekf`": Ekf,
    "`[filter]` of kind `ukf`": Ukf,
    "`[filter]` of kind `mcukf`": Mcukf,
    "`[filter]` of kind `imm`": Imm,
    "`[filter]` of kind `particle`": Particle,
    "`[filter]` of kind `lstm`": Lstm,
    "`[start]`": StartSettings,
    "`[[stages]]`": StageSettings,
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_setting_is_explained_with_its_default(heading):
    page = (ROOT / "docs/reference/configuration.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", section, re.MULTILINE)
    explained = {name: tomllib.loads(f"value = {text}")["value"] for name, text in rows}
    settings = as_dict(SECTIONS[heading]())
    assert explained == {name: value for name, value in settings.items() if not is_table(value)}


def is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(is_table, value)))


def section_of_tables(heading: str) -> str:
    page = (ROOT / "docs/reference/tables.md").read_text()
    return re.split(r"\n##+ ", page.partition(f" {heading}\n")[2])[0]


def test_every_key_of_a_table_is_explained_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", section_of_tables("The file"), re.MULTILINE)
    explained = dict(rows)
    keys = {field.name: field for field in dataclasses.fields(Table) if field.name != "name"}
    assert {*explained} == {*keys}
    for name, field in keys.items():
        assert explained[name] == default_in_toml(field)


def default_in_toml(field: dataclasses.Field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "`{}`"
    words = {
        dataclasses.MISSING: "required",
        None: "none",
        (): "`[]`",
        "": '`""`',
        False: "`false`",
    }
    return words[field.default]


@pytest.mark.parametrize(
    ("heading", "parts"),
    {
        "`[[axes]]`": (Axis, Value),
        "`[[adjust]]`": (Adjustment,),
        "`[[start]]`": (Start,),
        "`[average]`": (Average,),
        "`[[claims]]`": (Claim, Rule),
        "`[lost]`": (Lost,),
    }.items(),
)
def test_every_key_of_the_parts_of_a_table_is_explained(heading, parts):
    fields = [field for part in parts for field in dataclasses.fields(part)]
    keys = {field.name for field in fields if not field.metadata.get("python_only")}
    code = " ".join(re.findall(r"`[^`\n]+`", section_of_tables(heading)))
    assert {key for key in keys if not re.search(rf"\b{key}\b", code)} == set()


def test_every_table_is_named_once():
    named = re.findall(
        r"^\| `((?:disc|kitti|pushing)_\w+)` \|", section_of_tables("Tables"), re.MULTILINE
    )
    assert sorted(named) == table_names()


def all_verbs() -> dict[str, list[str]]:
    """The long options of each verb, by its name."""
    found, waiting = {}, {"": typer.main.get_command(app)}
    while waiting:
        name, command = waiting.popitem()
        if isinstance(command, typer.core.TyperGroup):
            waiting |= {f"{name} {inner}".strip(): one for inner, one in command.commands.items()}
            continue
        options = [option for entry in command.params for option in entry.opts]
        found[name] = [option for option in options if option[:2] == "--" and option != "--help"]
    return found


@pytest.mark.parametrize("verb", sorted(all_verbs()))
def test_every_option_of_every_verb_is_explained(verb):
    page = (ROOT / "docs/reference/command_line.md").read_text()
    section = page.partition(f"\n## `filtrax {verb}`\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^\| `(--[\w-]+)` \|", section, re.MULTILINE)
    assert sorted(explained) == sorted(all_verbs()[verb])


def test_the_page_of_modules_names_all_where_they_are():
    root = Path(filtrax.__file__).parent
    page = (ROOT / "docs/reference/modules.md").read_text()
    layers, packages = page.partition("## Layers")[2].split("## Packages")
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", packages, re.MULTILINE)
    named = {package: set(re.findall(r"`(\w+)`", text)) for package, text in rows}
    there: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        package = path.parent.relative_to(root).as_posix()
        if package != "." and path.stem != "__init__":
            there.setdefault(package, set()).add(path.stem)
    assert named == there
    of_the_root = {path.name for path in root.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(re.findall(r"\w+\.py", layers)) == of_the_root
    folders = {path.parent.name for path in root.glob("*/__init__.py")}
    assert set(re.findall(r"(?:^  |\| )(\w+)/", layers, re.MULTILINE)) == folders


@pytest.mark.parametrize("config", sorted(ROOT.glob("configs/*.toml")), ids=relative)
def test_configurations_can_be_read(config):
    assert read(Experiment, config).name == config.stem


def test_the_tables_are_those_of_the_records():
    """Figures that were typed, or that were left behind by a new record, are rejected."""
    path = ROOT / "benchmarks" / "records.py"
    specification = importlib.util.spec_from_file_location("records", path)
    assert specification is not None
    assert specification.loader is not None
    records = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(records)
    for page in records.PAGES:
        assert page.read_text() == records.with_tables(page)


def test_what_is_said_of_real_images_follows_from_the_records():
    """Sentences have no markers: figures in them that a new record left behind are rejected."""

    def scores(name):
        record = json.loads((ROOT / "studies" / "kloss2021" / "real" / f"{name}.json").read_text())
        return record["scores"]["test"]

    filtered, recurrent = scores("flow_ekf"), scores("flow_lstm")
    errors = [filtered["mean"][f"{kind}_error"] for kind in ("translation", "rotation")]
    share = f"{100 * filtered['mean']['coverage_90']:.0f} %"
    readme = (ROOT / "README.md").read_text()
    assert "[{:.3f} m and {:.3f}° for each metre]".format(*errors) in readme
    assert f"hold the truth {share} of the time" in readme
    page = " ".join((ROOT / "docs" / "how_to" / "real_kitti.md").read_text().split())
    assert f"90 % regions of the Kalman filters, {share} hold the truth" in page
    each = [member["metrics"]["translation_error"] for member in recurrent["members"]]
    assert f"from {min(each):.3f} to {max(each):.3f} m/m" in page
    back = sum(member["rollbacks"] for member in recurrent["members"])
    assert f"they were set back {back} times in training" in page
    for name in ("flow_ekf", "flow_ukf", "flow_pf_m_lrn"):
        assert not any(member["rollbacks"] for member in scores(name)["members"])


def test_the_page_of_results_is_that_of_the_records():
    assert pages_are_current(ROOT / "studies/kloss2021", ROOT / "studies/kloss2021")
