"""Compiled programs that are kept between runs of the command line.

Programs on a disk are code that later runs execute, so their folder is private to the user. Only
the command line switches this on: `import filtrax` leaves JAX as the user has configured it.
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
"""All programs are kept: a run has many small ones, which add up to as long as the large ones."""

LARGEST = 2 * 1024**3
"""Bytes of all programs together."""

FAULT = re.compile(r"Error (?:reading|writing) persistent compilation cache entry for '(.+?)'")


def keep() -> None:
    """Lets this process and its children keep their programs, where a private folder can be made.

    The folder is `filtrax/programs` in the user's cache folder, or the one that the user has named
    for JAX, which is not bounded then.
    """
    if not os.environ.get(FOLDER):
        with contextlib.suppress(OSError, RuntimeError):
            _keep_in(default_folder())
    if folder := os.environ.get(FOLDER):
        warnings.showwarning = mending(Path(folder), warnings.showwarning)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def forget() -> None:
    """Makes this process and its children compile all that they run, and keep nothing."""
    os.environ[SWITCH] = "false"


def default_folder() -> Path:
    """The folder for programs where the user names none."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else Path("~/.cache").expanduser()
    return base / "filtrax" / "programs"


def _keep_in(folder: Path) -> None:
    if make_private(folder):
        os.environ[FOLDER] = str(folder)
        # Not by JAX, which looks at all programs whenever it adds one, and needs a lock for that.
        atexit.register(trim_if_changed, folder, folder.stat().st_mtime_ns)


def make_private(folder: Path) -> bool:
    """True if there is, or could be made, such a folder that the user alone can read and change."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    if not (own and stat.S_ISDIR(status.st_mode)):
        return False
    folder.chmod(0o700)
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def mending(folder: Path, show: Any) -> Any:
    """A `warnings.showwarning` that deletes a damaged program, and says nothing of it.

    A program is damaged if a process was ended while it wrote it, or if the disk was full. JAX
    compiles it anew, but does not replace what is there.
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
    """Trims a folder unless nothing was added to it, or taken away, since that time."""
    with contextlib.suppress(OSError):
        if folder.stat().st_mtime_ns != time:
            trim(folder, largest)


def trim(folder: Path, largest: int = LARGEST) -> None:
    """Deletes programs until the others have so many bytes; those used longest ago go first."""
    total = 0
    for _, size, path in sorted(_files(folder), reverse=True):
        total += size
        if total > largest:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """When each file was last used, as far as the file system notes it, its size and its path."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may have deleted it
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield max(status.st_atime, status.st_mtime), status.st_size, entry.path
