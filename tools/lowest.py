"""Prints the lowest versions that pyproject.toml allows, as requirements for pip.

`make lowest` tests them: a lower bound that nobody has tried is a guess.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("tensorboard", "mit", "export")
"""Optional dependencies that are tested, too; the others are large, or for a GPU."""

TOOLS = ("beartype", "hypothesis", "pytest", "pytest-xdist")
"""The packages that tests need, in any version that is allowed."""


def lowest(requirement: str) -> str:
    """Turns a requirement like "numpy>=2.0" into "numpy==2.0"."""
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", requirement.strip())
    if match is None:
        raise ValueError(f"A dependency must have a lower bound and no other, got {requirement!r}.")
    return f"{match[1]}=={match[2]}"


def requirements(project: dict) -> list[str]:
    """Lists the pins of all dependencies to test, and the tools of the tests as they are."""
    extras = project["optional-dependencies"]
    pinned = [*project["dependencies"], *(entry for name in EXTRAS for entry in extras[name])]
    tools = [entry for entry in extras["dev"] if re.split(r"[<>=\[]", entry)[0] in TOOLS]
    return [*map(lowest, pinned), *tools]


if __name__ == "__main__":
    content = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    sys.stdout.write("".join(f"{line}\n" for line in requirements(content["project"])))
