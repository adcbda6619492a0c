"""Helper processes of a command, which share its folder and its device."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

GRACE = 60.0
"""Seconds that helpers may overrun their time limit, to finish an epoch, before they are killed."""

MEMORY = 0.9
"""The fraction of a device's memory that all processes share."""


def share_device(count: int) -> None:
    """Sets environment variables for `count` processes on one device, this one included.

    Must be called before JAX is first imported. Memory is divided evenly instead of preallocated,
    and the processes share a compilation cache. Variables that the user has set are kept.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY / count:.3f}")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        programs = tempfile.mkdtemp(prefix="filtrax-programs-")
        atexit.register(shutil.rmtree, programs, ignore_errors=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = programs


@contextlib.contextmanager
def helpers(count: int, arguments: Sequence[str], seconds: float | None) -> Iterator[list[str]]:
    """Runs `count` processes of `filtrax ARGUMENTS` beside the block, and waits for them.

    Processes that run longer than `seconds` (None: no limit) plus `GRACE` are killed. Yields a
    list that is filled, on exit, with one sentence for each process that failed. An exception or
    an interrupt in the block kills all processes.
    """
    failures: list[str] = []
    end = None if seconds is None else time.monotonic() + seconds + GRACE
    command = [sys.executable, "-m", "filtrax", *arguments]
    with tempfile.TemporaryDirectory(prefix="filtrax-helpers-") as folder:
        logs = [Path(folder, f"{number}.txt") for number in range(count)]
        processes = [_begun(command, log) for log in logs]
        try:
            yield failures
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(None if end is None else max(end - time.monotonic(), 0.0))
        finally:
            hanging = [process for process in processes if process.poll() is None]
            for process in hanging:
                process.kill()  # it can resume from its last checkpoint
                process.wait()
        for process, log in zip(processes, logs, strict=True):
            if process in hanging:
                failures.append("A further process did not end in time, and was ended.")
            elif process.returncode < 0:  # killed by a signal, so there is no message
                failures.append(
                    f"A further process was ended by {signal.Signals(-process.returncode).name}: "
                    "if nobody did so, memory was short, and fewer --processes need less of it."
                )
            elif process.returncode:
                said = log.read_text(errors="replace").strip().splitlines()
                failures.append(f"A further process failed: {said[-1] if said else 'in silence'}")


def _begun(command: Sequence[str], log: Path) -> subprocess.Popen:
    with log.open("w") as file:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
