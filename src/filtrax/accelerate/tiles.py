"""Arrays in a kernel of a GPU.

Triton has arrays whose sizes are powers of two, and can neither cut nor join them. So a kernel
computes with tiles: the same array of some sequences, filled up with zeros. The first axis of a
tile is that of the sequences.

Threads share the last axes of an array. A sum over the first one is done by each thread alone, one
over others makes threads wait for each other. So products have the axis that is summed in front.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from filtrax.accelerate import limits


def widened(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def shape_of(variable: Any) -> tuple[int, ...]:
    """The shape of an operand or a result, for one sequence."""
    return variable.aval.shape


def dtype_of(variable: Any) -> Any:
    """Its type."""
    return variable.aval.dtype


def zero(dtype: Any) -> Array:
    """0 of a type."""
    return jnp.zeros((), dtype)


class Part(NamedTuple):
    """Entries of an array that are neighbours along an axis."""

    axis: int
    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class Operand:
    """An array in memory, which is loaded where it is needed, or the part of it that is.

    **Attributes:**

    - `load`: gives the tile of a part, or of all of it (None).
    """

    load: Callable[[Part | None], Array]

    @functools.cached_property
    def tile(self) -> Array:
        """All of it."""
        return self.load(None)


@dataclasses.dataclass(frozen=True)
class Joined:
    """Tiles in a row along an axis of an array. They are stored one by one, where it is a result.

    **Attributes:**

    - `tiles`: with the sizes that they have along the axis.
    - `shape`: of the array, for one sequence.
    """

    tiles: Sequence[Array]
    sizes: Sequence[int]
    axis: int
    shape: tuple[int, ...]

    @property
    def parts(self) -> list[tuple[Part, Array]]:
        """Where each tile is in the array."""
        starts = itertools.accumulate(self.sizes, initial=0)
        return [
            (Part(self.axis, start, size), tile)
            for start, size, tile in zip(starts, self.sizes, self.tiles, strict=False)
        ]

    @functools.cached_property
    def tile(self) -> Array:
        """The tile of the whole array."""
        moves = [
            moved(tile, 1 + part.axis, -part.start, part.size, self.shape[self.axis])
            for part, tile in self.parts
        ]
        either = jnp.logical_or if moves[0].dtype == bool else jnp.add
        return functools.reduce(either, moves)


Value = Array | Operand | Joined


def tile_of(value: Value) -> Array:
    """All of a value."""
    return value.tile if isinstance(value, Operand | Joined) else value


def pieces(value: Value) -> list[tuple[Part | None, Array]]:
    """The tiles of a result, and which parts of it they are."""
    return [*value.parts] if isinstance(value, Joined) else [(None, tile_of(value))]


def place(
    first: Array,
    tile: int,
    count: int,
    shape: Sequence[int],
    batched: bool,
    part: Part | None,
    step: tuple[Array, int] | None = None,
) -> tuple[Array, Array]:
    """Where the numbers of a tile are in an array that lies flat, and which of them exist.

    An array with an axis for steps has it in front of the `shape`; `step` says which one it is, of
    how many.
    """
    rank = 1 + len(shape)
    if batched:
        where = first + indices(tile, 0, rank)
        inside = where < count
    else:
        where = indices(1, 0, rank)
        inside = where < 1
    if step is not None:
        index, length = step
        where = where * length + index
    for axis, size in enumerate(shape):
        start, wanted = (part.start, part.size) if part and part.axis == axis else (0, size)
        index = indices(widened(wanted), 1 + axis, rank)
        where, inside = where * size + (start + index), inside & (index < wanted)
    return where, inside


def indices(size: int, axis: int, rank: int) -> Array:
    """0, 1, ... along an axis of a tile, the others of which have size 1."""
    axis %= rank
    return lax.broadcasted_iota(jnp.int32, [size if i == axis else 1 for i in range(rank)], axis)


def filled(tile: Array, shape: Sequence[int]) -> Array:
    """The tile with zeros where an array of that shape has no entries."""
    for axis, size in enumerate(shape, start=1):
        if tile.shape[axis] != size:
            tile = jnp.where(
                indices(tile.shape[axis], axis, tile.ndim) < size, tile, zero(tile.dtype)
            )
    return tile


def moved(tile: Array, axis: int, shift: int, old: int, new: int) -> Array:
    """yⱼ = xⱼ₊ₛ for j < `new` along an axis with `old` entries, zero where there is no xⱼ₊ₛ.

    No entry can be addressed, so that is a sum over a table in which places are compared, or a
    product with a matrix of zeros and ones. In the latter a number that is not finite spoils others
    of its sequence.
    """
    if tile.dtype == bool:
        return moved(tile.astype(jnp.int32), axis, shift, old, new) > 0
    size, wide = tile.shape[axis], widened(new)

    def here(source, target):
        return (source == target + shift) & (source < old) & (target < new)

    if tile.ndim == 3 and _is_product((*tile.shape, wide), tile.dtype):
        if axis == 1:
            ones = here(indices(size, 2, 3), indices(wide, 1, 3))
            return multiplied(ones.astype(tile.dtype), tile)
        ones = here(indices(size, 1, 3), indices(wide, 2, 3))
        return multiplied(tile, ones.astype(tile.dtype))
    table = lax.expand_dims(jnp.moveaxis(tile, axis, 0), [axis + 1])
    chosen = here(indices(size, 0, table.ndim), indices(wide, axis + 1, table.ndim))
    return jnp.where(chosen, table, zero(tile.dtype)).sum(0, dtype=tile.dtype)


def multiplied(left: Array, right: Array) -> Array:
    """A B for tiles of matrices, or of arrays of them."""
    sizes = (max(left.shape[0], right.shape[0]), *left.shape[1:], right.shape[-1])
    if left.ndim == 3 and _is_product(sizes, left.dtype):
        return lax.dot(left.squeeze(0), right.squeeze(0), precision=lax.Precision.HIGHEST)[None]
    left, right = jnp.moveaxis(left, -1, 0)[..., None], jnp.moveaxis(right, -2, 0)[..., None, :]
    return (left * right).sum(0, dtype=left.dtype)


def _is_product(sizes: Sequence[int], dtype: Any) -> bool:
    """True if Triton multiplies these matrices: count, rows, terms and columns of each product."""
    count, *sides = sizes
    few = math.prod(sides) < limits.FEWEST_TERMS or min(sides) < limits.SHORTEST_SIDE
    return count == 1 and dtype == np.float32 and not few
