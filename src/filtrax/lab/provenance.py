"""The provenance of a run: versions, commit, device, seed and command."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

import filtrax
from filtrax.lab import plugins

GOLDEN = 1
"""The version of the golden numbers (`tests/golden`), raised whenever the results of a seed change.
Only records of one version are comparable. Records without one have version 1."""

_PACKAGE = Path(filtrax.__file__)
_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def provenance(*, seed: int, command: str | None = None) -> dict[str, Any]:
    """Returns all that is needed to repeat a run, besides its configuration.

    **Arguments:**

    - `seed`: the seed of the run.
    - `command`: the command that started the run; if None, that of this process.
    """
    commit, dirty = _commit()
    devices = jax.devices()
    used = [plugin.record() for plugin in plugins.loaded()]
    return {
        "filtrax": filtrax.__version__,
        "golden": GOLDEN,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "commit": commit,
        "dirty": dirty,
        "device": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
        },
        **({"plugins": used} if used else {}),
        "seed": seed,
        "command": _command() if command is None else command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _command() -> str:
    program, *arguments = sys.argv
    path = Path(program)
    start = ["python", "-m", path.parent.name] if path.name == "__main__.py" else [path.name]
    return shlex.join([*start, *without_folders(arguments)])


def without_folders(value: Any) -> Any:
    """Replaces absolute paths in arguments or settings by their last part, also in KEY=PATH.

    Absolute paths mean nothing on another machine, and may reveal the user's name.
    """
    if isinstance(value, dict):
        return {name: without_folders(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    if not isinstance(value, str):
        return value
    *key, last = value.split("=", 1)
    path = Path(last)
    return "=".join([*key, path.name]) if path.is_absolute() else value


def _commit() -> tuple[str | None, bool | None]:
    """Returns the commit of this package, and True if tracked files have changed since.

    Both are None if git does not track the files of this package, as when it is installed into
    another project's work tree.
    """
    named = os.environ.get("FILTRAX_COMMIT")
    if named:  # set by the user, as for a copy without git on another machine
        return named, None
    if _git("ls-files", "--error-unmatch", _PACKAGE.name) is None:
        return None, None
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    return commit, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    """Runs git in the folder of this package; returns its output, or None if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=_PACKAGE.parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
