"""Lists what the project offers: public names, options, configuration keys, tables and tests.

    python tools/inventory.py > after.txt
    diff before.txt after.txt

One line for each, sorted, so that a comparison of two versions shows what is gone.
"""

import ast
import dataclasses
import importlib
import pkgutil
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def public_names() -> Iterator[str]:
    """Names that packages export, and methods and fields of the classes among them."""
    import filtrax

    packages = [filtrax.__name__] + [
        info.name
        for info in pkgutil.walk_packages(filtrax.__path__, "filtrax.")
        if not any(part.startswith("_") for part in info.name.split("."))
    ]
    for package in packages:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            yield f"name {package}.{name}"
            value = getattr(module, name)
            if isinstance(value, type):
                yield from (f"member {package}.{name}.{member}" for member in _members(value))


def _members(cls: type) -> list[str]:
    fields = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    methods = [name for name in vars(cls) if callable(getattr(cls, name, None))]
    properties = [name for name, value in vars(cls).items() if isinstance(value, property)]
    return sorted(name for name in {*fields, *methods, *properties} if not name.startswith("_"))


def options() -> Iterator[str]:
    """Options and arguments of every verb of the command line."""
    import typer.main

    from filtrax.cli import app

    def walk(command: Any, path: str) -> Iterator[str]:
        for parameter in command.params:
            for option in parameter.opts:
                yield f"option {path} {option}"
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}")

    yield from walk(typer.main.get_command(app), "filtrax")


def keys(cls: Any, where: str = "") -> Iterator[str]:
    """Keys of a configuration file."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        yield f"key {where}{field.name}"
        for inner in _dataclasses(hints[field.name]):
            kind = getattr(inner, "kind", None)
            yield from keys(inner, f"{where}{field.name}{f'[{kind}]' if kind else ''}.")


def _dataclasses(hint: Any) -> list[type]:
    if dataclasses.is_dataclass(hint):
        return [typing.cast(type, hint)]
    return [inner for part in typing.get_args(hint) for inner in _dataclasses(part)]


def tests() -> Iterator[str]:
    """Functions and classes of tests, by file."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"test {path.relative_to(ROOT)}::{node.name}"


def main() -> None:
    """Prints the inventory."""
    from filtrax.lab.config.settings import Experiment
    from filtrax.lab.reproduction import table_names

    tables = (f"table {name}" for name in table_names())
    lines = {*public_names(), *options(), *keys(Experiment), *tables, *tests()}
    sys.stdout.write("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
