"""Time until a command has its first result: with nothing compiled yet, and with kept programs.

    python benchmarks/first_result.py train
    python benchmarks/first_result.py --out FILE.json train --set stages.0.num_epochs=1

The command runs twice, in a process and a folder of its own: first with no programs kept, then with
those that the first run has kept. JAX says what it compiles, and how long that takes; a program
that was kept counts with the time that it takes to load.
"""

import argparse
import collections
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FIRST_EPOCH = re.compile(r": epoch 1 of ")
WORK = re.compile(r"Finished (tracing|jaxpr|XLA compilation).* (\S+?)(?: for jit)? in (\S+)")
KEPT = "Persistent compilation cache hit"
LONGEST = 10


def environment(cache: Path) -> dict[str, str]:
    """Variables of a process that keeps its programs in that folder, and says what it compiles."""
    own = {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}
    return own | {"XDG_CACHE_HOME": str(cache), "JAX_LOG_COMPILES": "1", "PYTHONUNBUFFERED": "1"}


def measure(arguments: list[str], folder: Path, cache: Path) -> dict[str, Any]:
    """Times and programs of one run of `filtrax ARGUMENTS --out FOLDER`."""
    command = [sys.executable, "-m", "filtrax", *arguments, "--out", str(folder)]
    before, began = _processor_seconds(), time.perf_counter()
    log, first = [], None
    options: dict[str, Any] = {"env": environment(cache), "text": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **options) as process:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if first is None and FIRST_EPOCH.search(line):
                first = time.perf_counter() - began
    if process.returncode:
        sys.exit("".join(log))
    times = {
        "first_epoch_seconds": first,
        "seconds": time.perf_counter() - began,
        "processor_seconds": _processor_seconds() - before,
    }
    return {name: value and round(value, 2) for name, value in times.items()} | programs(log)


def programs(log: list[str]) -> dict[str, Any]:
    """Number and seconds of programs in what a process has logged, and the longest of them."""
    seconds = collections.defaultdict(list)
    for kind, name, each in (found.groups() for line in log if (found := WORK.match(line))):
        seconds[kind].append((float(each), name))
    compiled = sorted(seconds["XLA compilation"], reverse=True)
    traced = [*seconds["tracing"], *seconds["jaxpr"]]
    return {
        "programs": len(compiled),
        "kept_programs": sum(KEPT in line for line in log),
        "compilation_seconds": round(sum(each for each, _ in compiled), 2),
        "tracing_seconds": round(sum(each for each, _ in traced), 2),
        "longest": [[name, round(each, 3)] for each, name in compiled[:LONGEST]],
    }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Runs the command twice, prints what was measured, and writes it into a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="file of the record")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of filtrax, like train")
    options = parser.parse_args()
    runs = {}
    with tempfile.TemporaryDirectory(prefix="filtrax-") as folder:
        for name in ("cold", "kept"):
            runs[name] = measure(options.arguments, Path(folder, name), Path(folder, "cache"))
            print(f"{name}:", *(f"  {key}: {value}" for key, value in runs[name].items()), sep="\n")
    if options.out is not None:
        # Imported now, because JAX takes the memory of a GPU that the command needs.
        from filtrax.lab.files import as_json, write_text
        from filtrax.lab.provenance import provenance

        record = {"origin": provenance(seed=0), "cores": os.cpu_count(), "runs": runs}
        write_text(options.out, as_json(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
