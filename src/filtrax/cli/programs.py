"""The persistent compilation cache of the command line.

Cached programs are code that later runs execute, so their folder is private to the user. Only the
command line enables the cache: `import filtrax` leaves JAX as the user has configured it.
"""

import atexit
import contextlib
import glob
import os
import re
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = "JAX_COMPILATION_CACHE_DIR"
SWITCH = "JAX_ENABLE_COMPILATION_CACHE"

SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}
"""Cache all programs: compiling many small ones takes as long in total as the large ones."""

LARGEST = 2 * 1024**3
"""Default limit on the size of the cache in bytes."""

FAULT = re.compile(r"Error (?:reading|writing) persistent compilation cache entry for '(.+?)'")


def keep() -> None:
    """Enables the cache for this process and its children, if a private folder can be made.

    The folder is `filtrax/programs` in the user's cache folder, trimmed to `LARGEST` bytes at
    exit; or `JAX_COMPILATION_CACHE_DIR`, if the user has set it, whose size is not limited.
    """
    if not os.environ.get(FOLDER):
        with contextlib.suppress(OSError, RuntimeError):
            _keep_in(default_folder())
    if folder := os.environ.get(FOLDER):
        warnings.showwarning = mending(Path(folder), warnings.showwarning)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def forget() -> None:
    """Disables the cache for this process and its children."""
    os.environ[SWITCH] = "false"


def default_folder() -> Path:
    """Returns the default folder of the cache, below `XDG_CACHE_HOME` or `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else Path("~/.cache").expanduser()
    return base / "filtrax" / "programs"


def _keep_in(folder: Path) -> None:
    if make_private(folder):
        os.environ[FOLDER] = str(folder)
        # JAX can limit the size itself, but lists all programs under a lock for each new one.
        atexit.register(trim_if_changed, folder, folder.stat().st_mtime_ns)


def make_private(folder: Path) -> bool:
    """Makes a folder with mode 700; False if it is no folder, not the user's, or not writable."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    if not (own and stat.S_ISDIR(status.st_mode)):
        return False
    folder.chmod(0o700)
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def mending(folder: Path, show: Any) -> Any:
    """Returns a `warnings.showwarning` that silently deletes corrupt cache entries.

    An entry is corrupt if a process was killed while it wrote it, or if the disk was full. JAX
    warns and recompiles, but does not replace the entry.
    """

    def showwarning(message: Any, *details: Any, **options: Any) -> None:
        fault = FAULT.match(str(message))
        if fault is None:
            return show(message, *details, **options)
        for path in folder.glob(f"{glob.escape(fault[1])}-*"):
            with contextlib.suppress(OSError):
                path.unlink()
        return None

    return showwarning


def trim_if_changed(folder: Path, time: int, largest: int = LARGEST) -> None:
    """Trims a folder if its modification time in nanoseconds is no longer `time`."""
    with contextlib.suppress(OSError):
        if folder.stat().st_mtime_ns != time:
            trim(folder, largest)


def trim(folder: Path, largest: int = LARGEST) -> None:
    """Deletes the least recently used programs until the rest fit into `largest` bytes."""
    total = 0
    for _, size, path in sorted(_files(folder), reverse=True):
        total += size
        if total > largest:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Yields time of last use (as far as recorded), size and path of each regular file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may have deleted it
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield max(status.st_atime, status.st_mtime), status.st_size, entry.path
