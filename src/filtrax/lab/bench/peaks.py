"""Peak rates of a device, and the lower bounds on run times that follow from them."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from filtrax.lab.bench.calls import compiled
from filtrax.lab.bench.clocks import rounded
from filtrax.lab.bench.costs import Costs, program_costs

REPEATS = 7
LOOP_STEPS = 200
LAUNCHES_PER_STEP = 20
"""About as many as in a step of a filter; with fewer, the overhead of the loop dominates."""


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The best rates measured on a device, in float32.

    Attributes:
        operations_per_second: Floating-point rate of the product of two large matrices.
        bytes_per_second: Memory traffic (reads and writes) of an addition to a large array.
        seconds_per_launch: Time of a trivial instruction in a compiled loop.
        seconds_per_call: Time of a trivial compiled program, called from Python.
    """

    operations_per_second: float
    bytes_per_second: float
    seconds_per_launch: float
    seconds_per_call: float

    def floor(self, costs: Costs) -> dict[str, float]:
        """Lower bounds on the run time in seconds: one per cost, and "floor", their maximum."""
        parts = {
            "operations": costs.operations / self.operations_per_second,
            "bytes": costs.bytes / self.bytes_per_second,
            "launches": costs.launches * self.seconds_per_launch,
        }
        found = {name: rounded(value) for name, value in parts.items()}
        return found | {"floor": max(found.values())}


def measure_peaks(size: int | None = None) -> Peaks:
    """Measures the rates of the default device.

    `size` is the number of rows and columns of matrices; the default is 1024 on CPUs and 8192
    elsewhere.
    """
    if size is None:
        size = 1024 if jax.default_backend() == "cpu" else 8192
    matrix = jnp.ones((size, size), jnp.float32)
    product = lambda a: jnp.matmul(a, a, precision="highest")  # noqa: E731
    long = jnp.ones(size * size * 16, jnp.float32)
    number = jnp.zeros((), jnp.float32)
    # XLA would compile a loop over a few bytes into a single launch.
    loop = compiled(_loop, jnp.ones(1024, jnp.float32))
    launches = program_costs(loop.program).launches
    return Peaks(
        operations_per_second=rounded(2 * size**3 / _best(compiled(product, matrix).run)),
        bytes_per_second=rounded(2 * long.nbytes / _best(compiled(lambda a: a + 1, long).run)),
        seconds_per_launch=rounded(_best(loop.run) / launches),
        seconds_per_call=rounded(_best(compiled(lambda a: a + 1, number).run)),
    )


def _loop(array: Any) -> Any:
    """Runs trivial instructions that the compiler cannot fuse."""

    def step(_: Any, x: Any) -> Any:
        for _ in range(LAUNCHES_PER_STEP):
            x = jax.lax.optimization_barrier(0.5 * jnp.roll(x, 1))
        return x

    return jax.lax.fori_loop(0, LOOP_STEPS, step, array)


def _best(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)
