"""Which kernels a step of training spends its time in.

    python benchmarks/training_kernels.py TABLE CELL [--set KEY=VALUE ...]

Prints time and number of launches of each kernel in a step, the costliest first, with the place in
the program that it comes from. A cell of a table is named as in `filtrax reproduce --only`. A
smaller data set (`--set task.num_train=320`) has the same steps, and takes less time. On a CPU it
shows the operations of a step.
"""

import collections
import gzip
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from filtrax.cli import compiler
from filtrax.lab.experiments.building import build_ensemble, build_stages
from filtrax.lab.reproduction import Plan, read_table
from filtrax.training import Training
from filtrax.training.steps import train_steps

SHOWN = 60


def training_of(table: str, cell: str, settings: tuple[str, ...]) -> Training:
    """The first stage of a cell."""
    plan = Plan(only=(cell,), settings=settings)
    experiment = plan.cells(read_table(table))[0].experiment
    task = experiment.task
    data = task.data("train")
    filt, model = build_ensemble(experiment, data)
    seeds = [seed for seed, _ in experiment.members]
    sets = [data], [task.data("validation")]
    return Training(build_stages([experiment], 0), filt, model, *sets, task.perturbations(), seeds)


def kernels(folder: str) -> dict[str, list[float]]:
    """The times of all launches in microseconds, by the name of the kernel."""
    (path,) = Path(folder).rglob("perfetto_trace.json.gz")
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    found = collections.defaultdict(list)
    for event in trace["traceEvents"] if isinstance(trace, dict) else trace:
        if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
            found[event["name"]].append(event["dur"])
    return found


def main() -> None:
    """Compiles, runs and prints."""
    names = [text for text in sys.argv[1:] if text != "--set"]
    compiler.set_flags()
    training = training_of(names[0], names[1], tuple(names[2:]))
    program = training.lower().compile().as_text()
    ensemble = training.template()
    finite = jnp.ones(ensemble.rate.shape, bool)
    arguments = training._arguments(ensemble, ensemble.learner, finite, 0, training.steps_per_call)
    steps = training.steps_per_call
    jax.block_until_ready(train_steps(*arguments))
    began = time.perf_counter()
    jax.block_until_ready(train_steps(*arguments))
    print(f"{1e3 * (time.perf_counter() - began) / steps:.2f} ms a step")
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            jax.block_until_ready(train_steps(*arguments))
        found = kernels(folder)
    places = dict(re.findall(r'%?([\w.\-]+) = [^\n]*?op_name="([^"]*)"', program))
    for name in sorted(found, key=lambda name: -sum(found[name]))[:SHOWN]:
        times = found[name]
        operation = re.sub(r"_(\d+)$", r".\1", name)
        place = places.get(operation, places.get(name, ""))[-80:]
        print(f"{sum(times) / steps:9.1f} us {len(times) / steps:7.1f} x  {name[:60]:60s} {place}")


if __name__ == "__main__":
    main()
