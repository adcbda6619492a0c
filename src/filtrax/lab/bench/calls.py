"""What is timed: a call that returns when its work is done, and what is known of its program."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Call:
    """Work that can be repeated.

    Attributes:
        run: Does the work, and returns what came out once it is there.
        program: The compiled program of JAX, which knows its operations and its memory; None
            for libraries that do not compile.
        compile_seconds: How long tracing and compiling took, where that is known.
    """

    run: Callable[[], Any]
    program: Any = None
    compile_seconds: float | None = None

    @property
    def memory_bytes(self) -> int | None:
        """What the program holds at once: arguments, results and all in between."""
        analysis = None if self.program is None else self.program.memory_analysis()
        if analysis is None:
            return None
        sizes = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return sum(int(getattr(analysis, size)) for size in sizes)


def compiled(function: Callable, *arguments: Any) -> Call:
    """A function of arrays as a compiled call."""
    program, seconds = compile_timed(lambda: jax.jit(function).lower(*arguments))
    return Call(lambda: jax.block_until_ready(program(*arguments)), program, seconds)


def compile_timed(lower: Callable[[], Any]) -> tuple[Any, float | None]:
    """A compiled program, and how long tracing and compiling took.

    That is not known where JAX keeps compiled programs: it may just have read a file.
    """
    began = time.perf_counter()
    program = lower().compile()
    seconds = time.perf_counter() - began
    return program, None if jax.config.values["jax_compilation_cache_dir"] else seconds


def value_and_gradient(loss: Callable, *arguments: Any) -> Call:
    """The loss with its gradient by the first argument."""
    return compiled(jax.value_and_grad(loss), *arguments)


class DisagreementError(Exception):
    """Two libraries were to do the same work, and did not."""


def check_agreement(
    name: str, ours: Any, theirs: Any, *, value: float = 1e-3, gradient: float = 2e-2
) -> None:
    """Raises unless value and gradient of another library are ours.

    `value` and `gradient` are the largest relative errors; that of a gradient counts for each
    array of parameters by itself. A library without gradients returns the value alone.
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
