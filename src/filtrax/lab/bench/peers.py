"""Other libraries, each in a file of a folder: those that are installed are compared with ours.

A file defines `NAME` and `make_call(filter, problem)`, which returns a `Call` of value and
gradient, one of the value alone for a library without gradients, or None for a filter that it does
not have.
`make_online(filter, problem)`, if it is there, returns one step of a loop.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

FOLDER = Path("benchmarks", "peers")
"""Where they are in a checkout."""


def load_peers(folder: Path) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """The peers of a folder by name, and for each file that cannot be used what it lacks."""
    found, missing = {}, {}
    for path in sorted(folder.glob("*.py")):
        specification = importlib.util.spec_from_file_location(f"peers.{path.stem}", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        try:
            specification.loader.exec_module(module)
        except ModuleNotFoundError as error:
            missing[path.stem] = error.name or str(error)
        else:
            found[module.NAME] = module
    return found, missing


def versions(peers: Mapping[str, ModuleType]) -> dict[str, str]:
    """The versions of the peers' packages."""
    found = {}
    for name in peers:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
