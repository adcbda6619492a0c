"""Rules of the house that no other tool enforces."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import pytest

import filtrax

ROOT = Path(filtrax.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def all_modules():
    return [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(filtrax.__path__, "filtrax.")
    ]


def own_classes():
    """All Equinox modules of the package."""
    all_modules()
    found, waiting = set(), [eqx.Module]
    while waiting:
        for child in waiting.pop().__subclasses__():
            if child not in found:
                found.add(child)
                waiting.append(child)
    return [cls for cls in found if cls.__module__.split(".")[0] == "filtrax"]


def is_abstract(cls):
    return bool(cls.__abstractmethods__ or cls.__abstractvars__)


def overrides(cls, base):
    """The members of a base that a class has in another way."""
    own = {name for name in vars(cls) if not name.startswith("_")}
    return {name for name in own if hasattr(base, name)}


def test_every_module_is_abstract_or_final():
    """Rejects a class that inherits an implementation and overrides it; one may only add to it."""
    classes = own_classes()
    assert len(classes) > 30
    for cls in classes:
        name = cls.__name__
        assert is_abstract(cls) == name.startswith("Abstract"), f"{name} is named wrongly"
        for base in cls.__mro__[1:]:
            if base in classes:
                changed = overrides(cls, base)
                assert is_abstract(base) or not changed, f"{name} changes {changed} of {base}"


def test_no_final_class_overrides_what_its_abstract_class_implements():
    for cls in own_classes():
        for base in cls.__mro__[1:]:
            if base not in own_classes():
                continue
            done = {
                name
                for name, value in vars(base).items()
                if callable(value)
                and not name.startswith("__")
                and not getattr(value, "__isabstractmethod__", False)
            }
            assert not done & set(vars(cls)), f"{cls.__name__} overrides {base.__name__}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_printed_outside_of_the_command_line(path):
    if "cli" in path.relative_to(ROOT).parts:
        return
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.Name}
    assert "print" not in names


def test_all_public_names_exist_and_all_existing_ones_are_public():
    assert sorted(set(filtrax.__all__)) == sorted(filtrax.__all__)
    for name in filtrax.__all__:
        assert hasattr(filtrax, name)
    tree = ast.parse((ROOT / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(filtrax.__all__)


PROMISED = {
    *("Space", "Gaussian", "Particles", "Measurement", "StateSpaceModel", "DirectSensor"),
    *("Trajectory", "simulate", "constant_noise", "ExtendedKalmanFilter", "ParticleFilter"),
    *("UnscentedKalmanFilter", "MonteCarloUnscentedKalmanFilter", "RecurrentFilter", "run"),
    *("online", "fit", "save", "load", "losses", "metrics", "resampling"),
    *(
        "noise",
        "Euclidean",
        "Features",
        "IMMFilter",
        "given",
        "given_field",
        "acceleration",
        "fast",
    ),
}


def test_the_promised_names_are_there():
    assert set(filtrax.__all__) >= PROMISED


def test_packages_export_what_their_all_says():
    for module in all_modules():
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_importing_does_no_work():
    # Rejects arrays made at import (they claim a device) and settings changed behind one's back.
    program = """
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
import filtrax
assert dict(jax.config.values) == before, "importing changed the configuration of JAX"
assert not xla_bridge.backends_are_initialized(), "importing claimed a device"
import sys
assert "matplotlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@pytest.mark.xdist_group("a group")
def test_groups_of_tests_stay_together(request):
    # Rejects a pytest that hides groups from its workers: tests then compile everything twice.
    dealt_out_in_groups = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@a group") == dealt_out_in_groups


FILTERS = sorted((ROOT / "filters").glob("*.py"))
DEVICES = re.compile(
    r"\b(fused?|fusion|joined|gpus?|pallas|triton|custom_jvp|primitive|default_backend|"
    r"checkpoint_policies)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", FILTERS, ids=lambda path: path.name)
def test_filters_are_their_equations(path):
    """Rejects functions that take more than a look to check, and words of compilers and devices."""
    text = path.read_text(encoding="utf-8")
    assert not DEVICES.findall(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            lines = node.end_lineno - first.lineno + 1
            assert lines <= 30, f"{node.name} has {lines} lines"


MAY_NAME_KITTI = (
    "lab/tasks/kitti/",
    "lab/tasks/builtin.py",  # the list of tasks
    "cli/data/",  # reads and describes its recordings
    "lab/reproduction/display/",  # the order and the curves of tables, whose names they are
    "poses.py",  # its file format
    "metrics/odometry.py",  # who introduced a metric
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_task_is_known_to_itself_alone(path):
    """Rejects a branch on one task, which a task of a user's own could not have."""
    if not path.relative_to(ROOT).as_posix().startswith(MAY_NAME_KITTI):
        assert "kitti" not in path.read_text(encoding="utf-8").lower()
