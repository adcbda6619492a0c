"""Adapters of other libraries, one file each; those that are installed are compared with ours.

A file defines `NAME` and `make_call(filter, problem)`, which returns a `Call` of value and
gradient, a `Call` of the value for libraries without gradients, or None for missing filters.
It may define `make_online(filter, problem)`, which returns a `Call` of one online step, or None.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

FOLDER = Path("benchmarks", "peers")
"""The folder of adapters in a checkout."""


def load_peers(folder: Path) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """Imports the adapters of a folder.

    Returns modules by `NAME`, and missing packages by the name of the file that needs them.
    """
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
    """Returns the version of each peer's package, or "unknown"."""
    found = {}
    for name in peers:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
