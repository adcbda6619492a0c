"""Loops over the steps of a sequence, and what a backward pass keeps of them."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

ANCESTORS = "ancestors"
"""The name under which ancestors of particles are kept for a backward pass: one array of integers,
where drawing them again is several operations."""

_MOVES = {"transpose", "reshape", "squeeze", "broadcast_in_dim", "convert_element_type"}


def scan_steps(
    step: Callable[..., Any], first: Any, inputs: Any, *, recompute: bool | None
) -> tuple[Any, Any]:
    """`lax.scan(step, first, inputs)`, with a choice of what the backward pass keeps.

    With `recompute` the loop keeps what is carried, and ancestors; otherwise whatever is computed,
    but no copies of it in another shape. Each array that is kept is a copy in every step, which a
    GPU launches a kernel for.

    None recomputes unless the default device is a CPU. That is a guess at the faster way for a
    program whose device is not known while it is traced: results are the same, and whoever traces
    for another device than the default one says True or False. To decide while lowering would
    trace, differentiate and transpose each loop twice: half as long again until a gradient is
    lowered.
    """
    if recompute is None:
        recompute = jax.default_backend() != "cpu"
    keep_ancestors = jax.checkpoint_policies.save_only_these_names(ANCESTORS)
    policy = keep_ancestors if recompute else _is_computed
    step = jax.checkpoint(step, policy=policy, prevent_cse=False)  # a loop prevents it already
    return lax.scan(step, first, inputs)


def _is_computed(primitive: Any, *_: Any, **__: Any) -> bool:
    """True if an operation does more than move numbers."""
    return primitive.name not in _MOVES
