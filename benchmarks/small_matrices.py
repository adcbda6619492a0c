"""Library calls against unrolled code for small-matrix algebra, on the device at hand.

    python benchmarks/small_matrices.py [FILE.json]

Prints, for each size, the time of the first call (compilation included) and the median time of a
value-and-gradient of a batch of 128 sequences of 50 steps in float32, and how far the loss is from
that in float64 on the CPU. Loops are plain ones, without kernels of whole loops. The limits of
`filtrax.linalg._small` rest on its output. Orthogonalizations are unrolled in both cases.
"""

import json
import os
import platform
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
from filtrax.linalg import _small
from filtrax.training import filtering

BATCH, STEPS, REPEATS, SEED = 128, 50, 15, 0
SIZES = ((4, 2), (6, 4), (8, 4), (10, 8))
UNROLLED = (
    "LARGEST_UNROLLED",
    "LARGEST_UNROLLED_ON_CPU",
    "LARGEST_TINY_ON_CPU",
    "LARGEST_VECTORIZED_ON_CPU",
)
"""Limits of what is unrolled."""

SUMMED = ("LARGEST_SUMMED", "FEW_ON_CPU")
"""Limits of what is a fused sum."""

FILTERS = {"ekf": filtrax.ExtendedKalmanFilter(), "ukf": filtrax.UnscentedKalmanFilter()}


def linear_problem(sizes, dtype):
    """A random stable linear model and data for it."""
    size, observed = sizes
    rng = np.random.default_rng(SEED)
    dynamics = rng.normal(size=(size, size))
    dynamics = jnp.asarray(0.95 * dynamics / np.abs(np.linalg.eigvals(dynamics)).max(), dtype)
    matrix = jnp.asarray(rng.normal(size=(observed, size)), dtype)
    readings = jnp.asarray(rng.normal(size=(BATCH, STEPS, observed)), dtype)
    model = filtrax.StateSpaceModel(
        state_space=filtrax.Space([f"x{i}" for i in range(size)]),
        observation_space=filtrax.Space([f"z{i}" for i in range(observed)]),
        process=lambda state, inputs: dynamics @ state,
        process_noise=filtrax.constant_noise(jnp.eye(size, dtype=dtype)),
        observe=lambda state, inputs: matrix @ state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise(jnp.eye(observed, dtype=dtype))),
    )
    data = filtrax.Trajectory(
        jnp.zeros((BATCH, size), dtype),
        jnp.tile(jnp.eye(size, dtype=dtype), (BATCH, 1, 1)),
        readings,
        states=jnp.zeros((BATCH, STEPS, size), dtype),
    )
    return model, data


def value_and_gradient(filt, model, data):
    """The compiled function and its arguments."""
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    objective = filtering(filtrax.losses.nll)

    @jax.jit
    @jax.value_and_grad
    def loss(parameters, data, keys):
        model = eqx.combine(parameters, rest)
        one = lambda t, k: objective(filt, model, t, jnp.zeros((), t.initial.dtype), k)  # noqa: E731
        return jax.vmap(one)(data, keys).mean()

    return loss, (parameters, data, jr.split(jr.key(SEED), BATCH))


def measure(name, sizes, unrolled):
    """One row of the table."""
    for limit in UNROLLED:
        setattr(_small, limit, max(sizes) if unrolled else 0)
    for limit in SUMMED:
        setattr(_small, limit, 0)
    jax.clear_caches()
    function, arguments = value_and_gradient(FILTERS[name], *linear_problem(sizes, jnp.float32))
    begin = time.perf_counter()
    value, _ = jax.block_until_ready(function(*arguments))
    first, times = time.perf_counter() - begin, []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(1e3 * (time.perf_counter() - begin))
    return {
        "filter": name,
        "state": sizes[0],
        "observation": sizes[1],
        "unrolled": unrolled,
        "first_call_s": round(first, 2),
        "median_ms": round(float(np.median(times)), 2),
        "quartiles_ms": [round(float(q), 2) for q in np.quantile(times, (0.25, 0.75))],
        "relative_error": abs(float(value) / exact_loss(name, sizes) - 1),
    }


def exact_loss(name, sizes):
    """The same loss in float64 on the CPU."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        function, arguments = value_and_gradient(FILTERS[name], *linear_problem(sizes, jnp.float64))
        return float(function(*arguments)[0])


def main():
    """Measures, prints a table, and writes a record."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    # A machine without the repository is told the commit by the environment.
    commit = git.stdout.strip() or os.environ.get("FILTRAX_COMMIT", "unknown")
    rows = []
    for sizes in SIZES:
        for name in FILTERS:
            for unrolled in (False, True):
                with filtrax.acceleration(False):
                    rows.append(measure(name, sizes, unrolled))
                print(json.dumps(rows[-1]), flush=True)
    record = {
        "command": "python benchmarks/small_matrices.py",
        "commit": commit,
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "batch": BATCH,
        "steps": STEPS,
        "repeats": REPEATS,
        "seed": SEED,
        "rows": rows,
    }
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
