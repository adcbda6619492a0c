"""Rules of the operations on small matrices: what they do in a kernel, where matrices are tiles.

`filtrax.small_kernels` says what a rule is. Rows and columns cannot be addressed there: what is
wanted of a tile is what is left of a sum over the rest, with zeros in its place.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Array

from filtrax.small_kernels import filled, indices, multiplied, shape_of


def product(equation: JaxprEqn, left: Array, right: Array) -> Array:
    """A B."""
    return filled(multiplied(left, right), shape_of(equation.outvars[0]))


def cholesky(equation: JaxprEqn, matrices: Array) -> Array:
    """L, column by column, each of which is then taken from what is left of A: A - l lᵀ."""
    shape, (rows, columns) = shape_of(equation.outvars[0]), _places(matrices)

    def step(j, state):
        # Threads wait for each other at each sum: these three do not wait for one another.
        rest, diagonal, factors = state
        column = _selected(rest, columns == j, -1)
        row = _selected(rest, rows == j, -2)  # the same numbers, as A is symmetric
        pivot = _selected(diagonal, columns == j, -1)
        ratio = row / pivot
        rest, diagonal = rest - column * ratio, diagonal - row * ratio
        root = jnp.sqrt(pivot)
        column = jnp.where(rows == j, root, column * (1 / root))
        column = jnp.where(rows < j, jnp.zeros_like(column), column)
        return rest, diagonal, jnp.where(columns == j, column, factors)

    diagonal = _selected(matrices, rows == columns, -2)
    *_, factors = _loop(shape[-1], step, (matrices, diagonal, jnp.zeros_like(matrices)))
    return filled(factors, shape)


def inverse_lower(equation: JaxprEqn, factors: Array) -> Array:
    """L⁻¹: a row of the identity is divided by Lⱼⱼ, and then taken Lᵢⱼ times from those below."""
    shape, (rows, columns) = shape_of(equation.outvars[0]), _places(factors)
    diagonals = _selected(factors, rows == columns, -2)

    def step(j, inverses):
        column = _selected(factors, columns == j, -1)
        row = _selected(inverses, rows == j, -2) / _selected(diagonals, columns == j, -1)
        below = jnp.where(rows > j, inverses - column * row, inverses)
        return jnp.where(rows == j, row, below)

    start = jnp.broadcast_to((rows == columns).astype(factors.dtype), factors.shape)
    return filled(_loop(shape[-1], step, start), shape)


def diagonal(equation: JaxprEqn, matrices: Array) -> Array:
    """Aᵢᵢ."""
    del equation
    rows, columns = _places(matrices)
    return _selected(matrices, rows == columns, -1).squeeze(-1)


def diagonal_matrix(equation: JaxprEqn, vectors: Array) -> Array:
    """diag(a)."""
    del equation
    wide = jnp.broadcast_to(vectors[..., None], (*vectors.shape, vectors.shape[-1]))
    rows, columns = _places(wide)
    return jnp.where(rows == columns, wide, jnp.zeros_like(wide))


def _places(matrices: Array) -> tuple[Array, Array]:
    """In which row and in which column entries are."""
    rows, columns = matrices.shape[-2:]
    return indices(rows, -2, matrices.ndim), indices(columns, -1, matrices.ndim)


def _selected(tile: Array, here: Array, axis: int) -> Array:
    """The only entry along an axis that is here."""
    return jnp.where(here, tile, jnp.zeros_like(tile)).sum(axis, keepdims=True)


def _loop(size: int, step: Callable, start: Any) -> Any:
    return jax.lax.fori_loop(np.int32(0), np.int32(size), step, start)
