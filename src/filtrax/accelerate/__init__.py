"""Kernels of whole loops: an optional part, which may be deleted.

Where a step of a filter is a few operations on tiny arrays, a GPU launches kernels for longer than
they run. `run` asks here whether its loop can be one kernel, models included; this package finds
out by tracing a step. `filtrax.acceleration(False)` and `FILTRAX_ACCELERATE=0` switch it off.
"""

from collections.abc import Callable
from typing import Any

from jax import lax

from filtrax._hooks import register_scan
from filtrax.accelerate import _triton


def scan(
    step: Callable[..., Any],
    first: Any,
    inputs: Any,
    otherwise: Callable[..., tuple[Any, Any]],
    *,
    keep: bool,
) -> tuple[Any, Any] | None:
    """`lax.scan(step, first, inputs)` as one kernel where the program is lowered for a GPU.

    Programs for other devices run `otherwise`. None where this process has no GPU, or where a step
    is no small kernel (`filtrax.accelerate.limits`).
    """
    if not _triton.has_gpu():
        return None
    reason = _triton.missing()
    if reason is not None:
        _triton.warn(reason)
        return None
    # Imported late: what it uses of JAX beyond the public interface may be gone in a later version.
    from filtrax.accelerate.loops import as_loop

    loop = as_loop(step, first, inputs, keep=keep)
    if loop is None:
        return None
    return lax.platform_dependent(first, inputs, default=otherwise, **{_triton.PLATFORM: loop})


register_scan(scan)
