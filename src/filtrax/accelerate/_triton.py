"""The backend that kernels are written for: Triton, by way of Pallas.

Everything that another backend would have to offer is here: whether it can be used, a launch, loads
and stores. JAX 0.11 deprecated this road; it still exists in 0.12.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax.accelerate import limits

PLATFORM = "cuda"
"""The platform of programs that have kernels."""

_warned: set[str] = set()


def has_gpu() -> bool:
    """True if this process has a GPU, so that some of its programs may be for one.

    Only then are both programs traced. Which one runs is decided when a program is lowered. From
    version 0.11 on JAX lowers kernels only where there is a GPU, so a program that a machine
    without one exports for another machine's GPU has plain loops.
    """
    try:
        return bool(jax.devices(PLATFORM))
    except RuntimeError:
        return False


def missing() -> str | None:
    """The reason why kernels cannot be written here, if there is one."""
    if jax.__version_info__[:2] > limits.NEWEST_JAX:
        newest = ".".join(map(str, limits.NEWEST_JAX))
        return f"kernels are tested up to JAX {newest}, and this is {jax.__version__}"
    try:
        from jax.experimental.pallas import triton  # noqa: F401
    except ImportError:
        return f"JAX {jax.__version__} has no road to Triton"
    return None


def warn(reason: str) -> None:
    """Says once why a program that was meant for a kernel does without."""
    if reason in _warned:
        return
    _warned.add(reason)
    warnings.warn(
        f"A loop that could be one kernel of the GPU runs step by step: {reason}. Results are the "
        "same; `filtrax.acceleration(False)` asks for that, without this warning.",
        stacklevel=2,
    )


@contextlib.contextmanager
def lowering() -> Iterator[None]:
    """Lowers kernels without JAX's warning that this road is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def launch(
    program: Callable[..., None],
    shapes: Sequence[jax.ShapeDtypeStruct],
    count: int,
    operands: Sequence[Array],
    *,
    warps: int,
    interpret: bool = False,
) -> Sequence[Array]:
    """Runs `program(index, *references)` for `count` indices.

    References are those of operands and of results.
    """
    # Imported here, because it takes a while, and may not be there.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        lambda *references: program(pl.program_id(0), *references),
        out_shape=list(shapes),
        grid=(count,),
        # Without stages: loads ahead of a loop's next step take more registers than they save time.
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="filtrax_loop",
    )(*operands)


def load(reference: Any, places: Array, mask: Array) -> Array:
    """Numbers at places of an array, and zero where the mask is false."""
    from jax.experimental.pallas import triton

    return triton.load(reference.at[places], mask=mask, other=jnp.zeros((), reference.dtype))


def store(reference: Any, places: Array, mask: Array, values: Array) -> None:
    """Writes numbers to places of an array where the mask is true."""
    from jax.experimental.pallas import triton

    triton.store(reference.at[places], values, mask=mask)
