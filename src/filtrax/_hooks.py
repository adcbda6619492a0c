"""Where an optional part of the library offers a faster program for a loop.

`run` and all else that loops over steps ask here, and know nothing of what answers.
"""

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

_enabled = jax.make_user_context(True)
_scans: list[Callable[..., Any]] = []


def acceleration(enabled: bool) -> AbstractContextManager[None]:
    """Switches kernels of whole loops on or off within a block.

    JAX compiles every program for one setting, one's own programs included, so that the switch
    works after a first call, too. `FILTRAX_ACCELERATE=0` switches kernels off for a process; it is
    read by each call of `run` and `fit`, and when a program of one's own is traced.
    """
    return _enabled(enabled)  # pyright: ignore[reportReturnType]


def accelerated() -> bool:
    """True if loops may be replaced by faster programs."""
    return _enabled.value and os.environ.get("FILTRAX_ACCELERATE", "1") != "0"


def register_scan(scan: Callable[..., Any]) -> None:
    """Offers `scan(step, first, inputs, otherwise, keep=...)` in the place of `lax.scan`.

    It returns None for a loop that it has no program for. `otherwise` is the plain loop, which
    devices run that the program is not for.
    """
    _scans.append(scan)


def scan(
    step: Callable[..., Any],
    first: Any,
    inputs: Any,
    otherwise: Callable[..., Any],
    *,
    keep: bool,
    accelerate: bool,
) -> tuple[Any, Any] | None:
    """Loops over steps by the first program that is offered; None if none is.

    **Arguments:**

    - `step`, `first`, `inputs`: as those of `lax.scan`.
    - `otherwise`: the plain loop, a function of `first` and `inputs`.
    - `keep`: whether a backward pass may read more than what was carried to each step.
    - `accelerate`: whether to look for a program at all.
    """
    if accelerate:
        _import_accelerate()
        for offer in _scans:
            result = offer(step, first, inputs, otherwise, keep=keep)
            if result is not None:
                return result
    return None


@functools.cache
def _import_accelerate() -> None:
    """Imports the package of kernels where it is installed; it registers what it offers."""
    if importlib.util.find_spec("filtrax.accelerate") is not None:
        importlib.import_module("filtrax.accelerate")
