"""How many steps of training a GPU does for several processes, with and without NVIDIA's MPS.

    python benchmarks/gpu_sharing.py FILE TABLE CELL [--processes N ...] [--set KEY=VALUE ...]

Writes a record. All processes train the same cell, named as in `filtrax reproduce --only`, and are
timed at once, after all of them have compiled. Without MPS they take turns at a GPU; with it, small
kernels of one run beside large ones of another. A smaller data set has the same steps, and begins
sooner. On a CPU it is for trying the script out.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 5.0


def train(folder: Path, table: str, cell: str, settings: list[str]) -> None:
    """One process: compiles, waits until all have, and writes down how long its steps take."""
    import jax
    import jax.numpy as jnp
    from training_kernels import training_of

    from filtrax.cli import compiler
    from filtrax.training.steps import train_steps

    compiler.set_flags()
    training = training_of(table, cell, tuple(settings))
    ensemble = training.template()
    finite = jnp.ones(ensemble.rate.shape, bool)
    arguments = training._arguments(ensemble, ensemble.learner, finite, 0, training.steps_per_call)
    jax.block_until_ready(train_steps(*arguments))
    (folder / f"ready_{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        jax.block_until_ready(train_steps(*arguments))
        calls += 1
    seconds = (time.perf_counter() - began) / (calls * training.steps_per_call)
    (folder / f"seconds_{os.getpid()}").write_text(str(seconds))


def seconds_of_steps(count: int, arguments: list[str]) -> list[float]:
    """The time of a step in each of so many processes at once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, __file__, "train", name, *arguments]
        processes = [subprocess.Popen(command) for _ in range(count)]
        while len(list(folder.glob("ready_*"))) < count:
            if any(process.poll() is not None for process in processes):
                raise SystemExit("A process ended before it could be timed.")
            time.sleep(0.1)
        (folder / "go").touch()
        for process in processes:
            process.wait()
        return [float(path.read_text()) for path in folder.glob("seconds_*")]


@contextlib.contextmanager
def multi_process_service(wanted: bool) -> Iterator[None]:
    """NVIDIA's service by which processes share a GPU, for the processes that are begun inside."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        places = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        os.environ.update(dict.fromkeys(places, folder))
        subprocess.run([CONTROL, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, check=False)
            for place in places:
                del os.environ[place]


def main() -> None:
    """Measures, prints, writes a record."""
    parser = argparse.ArgumentParser(description="Steps of training in several processes at once.")
    parser.add_argument("file", type=Path, help="the record that is written")
    parser.add_argument("table")
    parser.add_argument("cell")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 6, 8])
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    from filtrax.lab.provenance import provenance

    services = [False, True] if shutil.which(CONTROL) else [False]
    arguments = [options.table, options.cell, *options.settings]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache  # the first one compiles for all
        for service in services:
            with multi_process_service(service):
                for count in options.processes:
                    times = seconds_of_steps(count, arguments)
                    steps = sum(1 / each for each in times)
                    rows.append({"mps": service, "processes": count, "steps_per_second": steps})
                    print(f"MPS {service}, {count} processes: {steps:.1f} steps a second")
    cell = {"table": options.table, "cell": options.cell, "settings": options.settings}
    record = {"origin": provenance(seed=0)} | cell | {"rows": rows}
    options.file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        main()
