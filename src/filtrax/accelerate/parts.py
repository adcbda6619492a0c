"""Rules for arrays that are tiles in a row: what operations do part by part.

A row of tiles that is made one takes a product with a matrix of zeros and ones, and a wider tile.
Most that is done to sigma points, which are such a row, can be done to its parts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax.accelerate._jax import JaxprEqn
from filtrax.accelerate.rules import ELEMENTWISE, parts_of
from filtrax.accelerate.tiles import Joined, Value, dtype_of, shape_of, tile_of


def by_parts(
    equation: JaxprEqn, values: Sequence[Value], rule: Callable[..., Any]
) -> Sequence[Value] | None:
    """The results of an operation, or None if it needs an operand as one tile."""
    rows = [value for value in values if isinstance(value, Joined)]
    if not rows:
        return None
    name, row = equation.primitive.name, rows[0]
    if name in ("split", "slice"):
        return _taken(equation, row)
    axis = _axis(equation, values)
    if axis is None or any(each.sizes != row.sizes for each in rows):
        return None

    def part(k):
        own = [value.tiles[k] if isinstance(value, Joined) else tile_of(value) for value in values]
        result = rule(_equation_of_part(equation, values, k), *own)
        return result[0] if equation.primitive.multiple_results else result

    tiles = [part(k) for k in range(len(row.tiles))]
    if axis == SUMMED:
        return [functools.reduce(jnp.add, tiles)]
    return [Joined(tiles, row.sizes, axis, shape_of(equation.outvars[0]))]


SUMMED = -1


def _axis(equation: JaxprEqn, values: Sequence[Value]) -> int | None:
    """Along which axis parts of the result lie; SUMMED if it is their sum."""
    axes = [value.axis if isinstance(value, Joined) else None for value in values]
    if equation.primitive.name in ELEMENTWISE:
        some = {axis for axis, v in zip(axes, equation.invars, strict=True) if shape_of(v)}
        return some.pop() if len(some) == 1 else None
    if equation.primitive.name == "transpose":
        return equation.params["permutation"].index(axes[0])
    if equation.primitive.name == "filtrax_product":
        return _axis_of_product(1, 0, *axes)
    if equation.primitive.name == "dot_general":
        terms, batch = equation.params["dimension_numbers"]
        matrices = all(len(shape_of(v)) == 2 for v in equation.invars)
        if matrices and not any(batch) and all(len(summed) == 1 for summed in terms):
            (of_left,), (of_right,) = terms
            return _axis_of_product(of_left, of_right, *axes)
    return None


def _axis_of_product(
    of_left: int, of_right: int, left: int | None, right: int | None
) -> int | None:
    """The axis of parts of a product that sums over two axes, if operands have parts along two."""
    if left == of_left and right == of_right:
        return SUMMED
    if right is None and left != of_left:
        return 0
    if left is None and right != of_right:
        return 1
    return None


def _equation_of_part(equation: JaxprEqn, values: Sequence[Value], k: int) -> JaxprEqn:
    """The same operation with the sizes that the k-th part has."""

    def like(var, value):
        shape = list(shape_of(var))
        if isinstance(value, Joined):
            shape[value.axis] = value.sizes[k]
        return jax.ShapeDtypeStruct(tuple(shape), dtype_of(var))

    bind = functools.partial(equation.primitive.bind, **equation.params)
    likes = map(like, equation.invars, values)
    return jax.make_jaxpr(bind)(*likes).jaxpr.eqns[0]


def _taken(equation: JaxprEqn, row: Joined) -> list[Array] | None:
    """Parts that are asked for as they are."""
    if equation.primitive.name == "split":
        same = [(part.axis, part.start, part.size) for part in parts_of(equation)]
        return [*row.tiles] if same == [tuple(part) for part, _ in row.parts] else None
    starts, shape = equation.params["start_indices"], shape_of(equation.outvars[0])
    whole = [size if i != row.axis else None for i, size in enumerate(row.shape)]
    if [size if i != row.axis else None for i, size in enumerate(shape)] != whole:
        return None
    wanted = starts[row.axis], shape[row.axis]
    return next(([tile] for part, tile in row.parts if (part.start, part.size) == wanted), None)
