"""Compiled programs that are kept between runs of the command line.

Programs on a disk are code that later runs execute, so their folder is private to the user. Only
the command line switches this on: `import filtrax` leaves JAX as the user has configured it.
"""

import contextlib
import os
import stat
from pathlib import Path

FOLDER = "JAX_COMPILATION_CACHE_DIR"
LARGEST = 2 * 1024**3
"""Bytes of all programs together; those used longest ago go first."""

SETTINGS = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(LARGEST),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}
"""A run compiles some hundred small programs, which add up to as long as the large ones."""


def keep() -> None:
    """Lets this process and its children keep their programs, where a private folder can be made.

    The folder is `$JAX_COMPILATION_CACHE_DIR`, which then has JAX's own limits unless the user sets
    others, or `filtrax/programs` in the user's cache folder.
    """
    if os.environ.get(FOLDER):
        return
    folder = default_folder()
    if is_private(folder):
        os.environ[FOLDER] = str(folder)
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)


def forget() -> None:
    """Makes this process and its children compile all that they run."""
    os.environ.pop(FOLDER, None)
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"


def default_folder() -> Path:
    """The folder for programs where the user names none."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "filtrax" / "programs"


def is_private(folder: Path) -> bool:
    """True if there is, or can be made, such a folder that the user alone can write to and read."""
    with contextlib.suppress(OSError, RuntimeError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if own and stat.S_ISDIR(status.st_mode):
            folder.chmod(0o700)
            return os.access(folder, os.W_OK | os.X_OK)
    return False
