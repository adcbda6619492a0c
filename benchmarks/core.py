"""Times of filters on a GPU, as a record to compare another version with.

    python benchmarks/core.py before.json --seconds 1.0

Value and gradient of filters with small models and with a learned process; time and memory of
`run`; what it takes until they are compiled. One file holds the measurements of one version.
"""

import argparse
import fnmatch
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
from filtrax.filters import filter_trajectory
from filtrax.lab.bench import problems
from filtrax.lab.bench.calls import Call, compiled, value_and_gradient
from filtrax.lab.bench.clocks import interleaved, summary
from filtrax.lab.bench.problems import Sizes
from filtrax.lab.files import as_json, write_text
from filtrax.lab.provenance import provenance
from filtrax.networks import Perceptron

PROCESS = (4, 32, 64, 64, 4)
"""The paper's process network."""


def small_models() -> dict[str, Any]:
    """Value and gradient where a step is a few operations on tiny matrices."""
    sizes = [Sizes(*state, batch, 50) for state in ((4, 2), (10, 8)) for batch in (32, 256, 1024)]
    found = {
        f"gradient/{name}/{s.name(False)}": (name, s) for name in ("ekf", "ukf") for s in sizes
    }
    long = [Sizes(4, 2, 1, steps) for steps in (1000, 10_000)]
    found |= {f"gradient/ekf/{s.name(False)}": ("ekf", s) for s in long}
    return {key: lambda name=name, s=s: _small(name, s) for key, (name, s) in found.items()}


def _small(name: str, sizes: Sizes) -> Call:
    problem = problems.make_problem(sizes)
    return value_and_gradient(problems.loss_of(name, sizes), *problems.arguments_of(problem))


def learned_processes() -> dict[str, Any]:
    """Value and gradient with the paper's process network, of 8,048 parameters."""
    cases = [(name, batch) for name in ("ekf", "ukf") for batch in (128, 1024)]
    return {f"learned/{n}/b{b}_t50": lambda n=n, b=b: _learned(n, b) for n, b in cases}


def _learned(name: str, batch: int) -> Call:
    space = filtrax.Space(("x", "y", "vx", "vy"))
    network = Perceptron(PROCESS, final_std=1e-3, key=jr.key(0))
    process = filtrax.ResidualProcess(network)
    noise = filtrax.constant_noise([0.1] * 4), filtrax.constant_noise([0.5] * 2)
    filt = problems.make_filter(name, Sizes())
    readings = jr.normal(jr.key(1), (batch, 50, 2))
    parameters, static = eqx.partition((process, noise), eqx.is_inexact_array)

    def loss(parameters, readings):
        process, (process_noise, sensor_noise) = eqx.combine(parameters, static)
        model = filtrax.StateSpaceModel(
            state_space=space,
            observation_space=filtrax.Space(("x", "y")),
            process=process,
            process_noise=process_noise,
            observe=lambda state, _: state[:2],
            sensor=filtrax.DirectSensor(sensor_noise),
        )

        def one(readings):
            trajectory = filtrax.Trajectory(jnp.zeros(4), jnp.eye(4), readings)
            result = filter_trajectory(filt, model, trajectory)
            assert result.log_likelihood is not None
            return -result.log_likelihood / len(readings)

        return jax.vmap(one)(readings).mean()

    return value_and_gradient(loss, parameters, readings)


def runs() -> dict[str, Any]:
    """`run` as users call it: beliefs alone, no gradient."""
    cases = {"run/ekf/b1024_t50": (1024, 50), "run/ekf/b1_t1000000": (1, 1_000_000)}
    return {name: lambda sizes=sizes: _run(*sizes) for name, sizes in cases.items()}


def _run(batch: int, steps: int) -> Call:
    problem = problems.make_problem(Sizes(4, 2, batch, 50))
    model = problems.make_model(jax.tree.map(jnp.asarray, problem.parameters))
    readings = jnp.asarray(np.tile(problem.readings, (1, steps // 50, 1)))
    prior = filtrax.Gaussian(jnp.zeros(4), jnp.eye(4))

    def one(readings):
        return filtrax.run(filtrax.ExtendedKalmanFilter(), model, prior, readings)

    return compiled(jax.vmap(one), readings)


def measure(make: Any, seconds: float) -> dict[str, Any]:
    """Time to compile, times of calls, and memory of one case."""
    jax.clear_caches()
    began = time.perf_counter()
    call = make()
    jax.block_until_ready(call.run())
    first = time.perf_counter() - began
    times = interleaved({"it": call.run}, seconds=seconds)["it"]
    value = jax.tree.leaves(call.run())[0]
    return {
        "first_call_seconds": round(first, 3),
        "seconds": summary(times),
        "memory_bytes": call.memory_bytes,
        "value": float(jnp.mean(value)),
    }


def main() -> None:
    """Measures all cases, or some, and writes them into a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls in each case")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names of cases")
    options = parser.parse_args()
    cases = small_models() | learned_processes() | runs()
    record = {"origin": provenance(seed=0), "measurements": {}}
    for name, make in cases.items():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.only):
            continue
        record["measurements"][name] = measure(make, options.seconds)
        write_text(options.out, as_json(record, indent=1) + "\n")
        result = record["measurements"][name]
        milliseconds = 1e3 * result["seconds"]["median"]
        print(f"{name}: {milliseconds:.3f} ms, first {result['first_call_seconds']} s", flush=True)


if __name__ == "__main__":
    main()
