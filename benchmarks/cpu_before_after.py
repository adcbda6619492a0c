"""Times of an older version, of this one and of dynamax on a CPU, interleaved in one run.

    python benchmarks/cpu_before_after.py --out FILE.json
    python benchmarks/cpu_before_after.py --only 'gradient/ekf/*' --seconds 0.5

Each version runs in a process of its own. They compile at the same time and are timed in turns, one
at a time. Cells are value and gradient of the log likelihood, `run`, and one online step; the
older version must be one whose `run` takes controls before readings. It prints medians and the
ratios old/new and new/dynamax, with their geometric means.
"""

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
BEFORE = "1d5cc06"
CODES = ("old", "new", "dynamax")
FIELDS = ("state", "observation", "batch", "steps", "particles")
SECONDS_PER_TURN = 0.05

SMALL, LARGE = (4, 2), (10, 8)
CELLS = [
    *((*state, batch, 50, 100) for state in (SMALL, LARGE) for batch in (1, 32, 256)),
    *((*SMALL, batch, steps, 100) for batch in (1, 32) for steps in (200, 1000)),
    (*LARGE, 1, 1000, 100),
]
PARTICLE_CELLS = [(*SMALL, *size, 100) for size in ((1, 50), (32, 50), (256, 50), (1, 1000))]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A measurement: "gradient", "run", "online" or "exported", of a filter at some sizes."""

    kind: str
    filter: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name that patterns match."""
        state, observation, batch, steps, _ = self.sizes
        return f"{self.kind}/{self.filter}/x{state}_z{observation}_b{batch}_t{steps}"

    @property
    def codes(self) -> tuple[str, ...]:
        """The versions that have it."""
        if self.kind == "exported":
            return ("new",)
        has_peer = self.kind != "online" and self.filter != "pf"
        return CODES if has_peer else CODES[:2]


def all_cells() -> list[Cell]:
    """All cells, in the order in which they are measured."""
    online = (*SMALL, 1, 50, 100)
    cells = [Cell("online", name, online) for name in ("ekf", "ukf")]
    cells.append(Cell("exported", "ekf", online))
    for kind in ("gradient", "run"):
        cells += [Cell(kind, name, sizes) for name in ("ekf", "ukf") for sizes in CELLS]
        cells += [Cell(kind, "pf", sizes) for sizes in PARTICLE_CELLS]
    return cells


# The worker, which runs the code that its PYTHONPATH names.


def make_call(code: str, cell: Cell) -> Any:
    """The call of a cell by one version."""
    from filtrax.lab.bench import measurements, problems
    from filtrax.lab.bench.peers import load_peers

    sizes = problems.Sizes(**dict(zip(FIELDS, cell.sizes, strict=True)))
    problem = problems.make_problem(sizes)
    if code == "dynamax":
        peer = load_peers(ROOT / "benchmarks" / "peers")[0]["dynamax"]
        make = {"gradient": peer.make_call, "run": peer.make_run}[cell.kind]
        return make(cell.filter, problem)
    if cell.kind == "gradient":
        return measurements.ours(cell.filter, problem)
    if cell.kind == "run":
        return _run(code, cell.filter, problem)
    if cell.kind == "online":
        return measurements.online_step(cell.filter, problem)
    return _exported(cell.filter, problem)


def _run(code: str, name: str, problem: Any) -> Any:
    """The beliefs of a batch by `run` with its defaults."""
    import jax
    import jax.numpy as jnp

    import filtrax
    from filtrax.lab.bench import problems
    from filtrax.lab.bench.calls import compiled

    parameters, readings, keys = problems.arguments_of(problem)
    filt, model = problems.make_filter(name, problem.sizes), problems.make_model(parameters)
    size = problem.sizes.state
    prior = filtrax.Gaussian(jnp.zeros(size), jnp.eye(size))
    if code == "old":
        form: Callable = filtrax.run
        one = lambda z, key: form(filt, model, prior, None, z, key=key)  # noqa: E731
    elif name in problems.DRAWN_FILTERS:
        one = lambda z, key: filtrax.run(filt, model, prior, z, key=key)  # noqa: E731
    else:
        one = lambda z, _: filtrax.run(filt, model, prior, z)  # noqa: E731
    return compiled(jax.vmap(one), readings, keys)


def _exported(name: str, problem: Any) -> Any:
    """The program of an online step as `jax.export` serializes it."""
    import jax
    import jax.numpy as jnp

    import filtrax
    from filtrax.filters import as_dicts
    from filtrax.lab.bench import problems
    from filtrax.lab.bench.calls import Call

    model = problems.make_model(problems.arguments_of(problem)[0])
    loop = filtrax.online(problems.make_filter(name, problem.sizes), model)
    size, readings = problem.sizes.state, problem.readings[0]
    first = loop.init(filtrax.Gaussian(jnp.zeros(size), jnp.eye(size)))
    step = jax.jit(loop.export(first, readings[0]).call)
    belief, observed, count = as_dicts(first), np.asarray(True), 0

    def run() -> Any:
        nonlocal belief, count
        belief, _ = step(belief, readings[count % len(readings)], None, observed, None)
        count += 1
        return jax.block_until_ready(belief["mean"])

    return Call(run)


def work(code: str) -> None:
    """Reads requests from the standard input, and answers each with one line."""
    import jax

    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    call: Any = None
    for line in sys.stdin:
        request, value = json.loads(line)
        if request == "make":
            jax.clear_caches()
            began = time.perf_counter()
            call = make_call(code, Cell(**value))
            leaves = jax.tree.leaves(call.run())
            first = time.perf_counter() - began
            numbers = [float(np.mean(leaf)) for leaf in leaves if np.asarray(leaf).dtype != bool]
            answer: Any = {"first_call_seconds": first, "values": numbers}
        else:
            answer, end = [], time.perf_counter() + value
            while not answer or time.perf_counter() < end:
                began = time.perf_counter()
                call.run()
                answer.append(time.perf_counter() - began)
        print(json.dumps(answer), file=answers, flush=True)


# The main process.


@contextlib.contextmanager
def workers(before: str) -> Iterator[dict[str, subprocess.Popen]]:
    """A process for each version."""
    with tempfile.TemporaryDirectory(prefix="filtrax-before-") as folder:
        tree = subprocess.Popen(["git", "archive", before], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], stdin=tree.stdout, check=True)
        if tree.wait():
            raise SystemExit(f"There is no version {before}.")
        processes = {}
        for code in CODES:
            source = Path(folder if code == "old" else ROOT, "src")
            processes[code] = subprocess.Popen(
                [sys.executable, __file__, "work", code],
                env=os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            yield processes
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


def send(process: subprocess.Popen, *request: Any) -> None:
    """Asks a worker for something."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()


def receive(process: subprocess.Popen) -> Any:
    """The answer of a worker."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("A worker ended; what it wrote is above.")
    return json.loads(line)


def measure(cell: Cell, processes: Mapping[str, subprocess.Popen], seconds: float) -> dict:
    """Medians of all versions, and how long they took until the first result."""
    from filtrax.lab.bench.clocks import summary

    for code in cell.codes:
        send(processes[code], "make", dataclasses.asdict(cell))
    made = {code: receive(processes[code]) for code in cell.codes}
    check(cell, {code: answer["values"] for code, answer in made.items()})
    rounds: dict[str, list] = {code: [] for code in cell.codes}
    end, number = time.monotonic() + seconds * len(cell.codes), 0
    while number < 5 or time.monotonic() < end:
        first = number % len(cell.codes)
        for code in cell.codes[first:] + cell.codes[:first]:
            send(processes[code], "time", SECONDS_PER_TURN)
            rounds[code].append(receive(processes[code]))
        number += 1
    return {
        "first_call_seconds": {c: round(a["first_call_seconds"], 2) for c, a in made.items()},
        "seconds": {code: summary(times) for code, times in rounds.items()},
    }


def check(cell: Cell, values: Mapping[str, list[float]]) -> None:
    """Raises unless all versions say the same of the first result, a loss or the mean belief."""
    new = values["new"][0]
    tolerance = 5e-2 if cell.filter == "pf" else 1e-3
    for code, numbers in values.items():
        if abs(numbers[0] - new) > tolerance * max(abs(new), 0.1):
            raise SystemExit(f"{cell.name}: {code} says {numbers[0]}, and new says {new}.")


def ratios(record: Mapping[str, Any], over: str, under: str) -> dict[str, float]:
    """Ratios of medians of all cells that have both."""
    found = {}
    for name, row in record["measurements"].items():
        medians = {code: times["median"] for code, times in row["seconds"].items()}
        if over in medians and under in medians:
            found[name] = medians[over] / medians[under]
    return found


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def show(record: Mapping[str, Any]) -> None:
    """Prints geometric means, for each kind and filter and for all."""
    pairs = (("old", "new"), ("old", "dynamax"), ("new", "dynamax"))
    columns = {f"{over}/{under}": ratios(record, over, under) for over, under in pairs}
    names = record["measurements"]
    groups = dict.fromkeys("/".join(name.split("/")[:2]) + "/" for name in names) | {"": None}
    print(f"\n{'geometric means':16}" + "".join(f"{name:>14}" for name in columns))
    for group in groups:
        cells = [[v for n, v in c.items() if n.startswith(group)] for c in columns.values()]
        numbers = [f"{mean(values):14.3f}" if values else f"{'':14}" for values in cells]
        print(f"{group or 'all':16}" + "".join(numbers))
    slower = {name: 1 / ratio for name, ratio in columns["old/new"].items()}
    if slower:
        worst = max(slower, key=lambda name: slower[name])
        print(f"The largest new/old is {slower[worst]:.3f}, of {worst}.")


def main() -> None:
    """Measures all cells, or some; prints a table and writes a record."""
    from filtrax.lab.bench.running import duration
    from filtrax.lab.files import as_json, write_text
    from filtrax.lab.provenance import provenance

    parser = argparse.ArgumentParser(description="Times before and after, and those of dynamax.")
    parser.add_argument("--out", type=Path, help="the record that is written")
    parser.add_argument("--only", action="append", default=[], help="patterns of cells")
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls of each version")
    parser.add_argument("--before", default=BEFORE, help="the commit of the older version")
    options = parser.parse_args()
    cells = [
        cell
        for cell in all_cells()
        if not options.only or any(fnmatch.fnmatchcase(cell.name, p) for p in options.only)
    ]
    record: dict[str, Any] = {"origin": provenance(seed=0), "before": options.before}
    record["measurements"] = {}
    heads = ("old", "new", "dynamax", "old/new", "new/dynamax", "first call, s")
    print(f"{'':34}" + "".join(f"{head:>14}" for head in heads))
    with workers(options.before) as processes:
        for cell in cells:
            row = record["measurements"][cell.name] = measure(cell, processes, options.seconds)
            medians = {code: times["median"] for code, times in row["seconds"].items()}
            columns = [duration(medians[c]) if c in medians else "" for c in CODES]
            for over, under in (("old", "new"), ("new", "dynamax")):
                both = over in medians and under in medians
                columns.append(f"{medians[over] / medians[under]:.3f}" if both else "")
            columns.append(" ".join(f"{s:.1f}" for s in row["first_call_seconds"].values()))
            print(f"{cell.name:34}" + "".join(f"{text:>14}" for text in columns), flush=True)
            if options.out is not None:
                write_text(options.out, as_json(record, indent=1) + "\n")
    show(record)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        main()
