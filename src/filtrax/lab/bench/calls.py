"""Timed calls, which block until their work is done, and their compiled programs."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Call:
    """A repeatable unit of work.

    Attributes:
        run: Does the work, and returns its result once it is ready.
        program: The compiled JAX program, for its operations and memory; None for other
            libraries.
        compile_seconds: Time of tracing and compiling; None if unknown.
    """

    run: Callable[[], Any]
    program: Any = None
    compile_seconds: float | None = None

    @property
    def memory_bytes(self) -> int | None:
        """Memory of arguments, results and temporaries together; None without a program."""
        analysis = None if self.program is None else self.program.memory_analysis()
        if analysis is None:
            return None
        sizes = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return sum(int(getattr(analysis, size)) for size in sizes)


def compiled(function: Callable, *arguments: Any) -> Call:
    """Compiles a function for the given arguments."""
    program, seconds = compile_timed(lambda: jax.jit(function).lower(*arguments))
    return Call(lambda: jax.block_until_ready(program(*arguments)), program, seconds)


def compile_timed(lower: Callable[[], Any]) -> tuple[Any, float | None]:
    """Compiles a lowered program, and times tracing and compiling in seconds.

    The time is None with a persistent compilation cache, from which the program may have come.
    """
    began = time.perf_counter()
    program = lower().compile()
    seconds = time.perf_counter() - began
    return program, None if jax.config.values["jax_compilation_cache_dir"] else seconds


def value_and_gradient(loss: Callable, *arguments: Any) -> Call:
    """Compiles the loss and its gradient with respect to the first argument."""
    return compiled(jax.value_and_grad(loss), *arguments)


class DisagreementError(Exception):
    """Two libraries gave different results for the same problem."""


def check_agreement(
    name: str, ours: Any, theirs: Any, *, value: float = 1e-3, gradient: float = 2e-2
) -> None:
    """Raises `DisagreementError` unless value and gradient of another library agree with ours.

    `value` and `gradient` are the largest relative errors; gradients are compared for each array
    of parameters separately. A library without gradients returns only the value.
    """
    if not isinstance(theirs, tuple):
        ours, theirs = (ours[0], {}), (theirs, {})
    error = _error(ours[0], theirs[0])
    if not error <= value:
        raise DisagreementError(
            f"The value of {name} must be ours to {value:g} of it, but is off by {error:.2g}: "
            f"{float(theirs[0]):.7g} in the place of {float(ours[0]):.7g}."
        )
    assert isinstance(theirs[1], Mapping)
    for key, expected in theirs[1].items():
        error = _error(ours[1][key], expected)
        if not error <= gradient:
            raise DisagreementError(
                f"The gradient of {name} by `{key}` must be ours to {gradient:g} of it, but is "
                f"off by {error:.2g}."
            )


def _error(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))
