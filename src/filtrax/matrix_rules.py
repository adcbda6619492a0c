"""Rules of the operations on small matrices: what they do in a kernel, where matrices are tiles.

`filtrax.tile_rules` says what a rule is. Rows and columns cannot be addressed there: what is
wanted of a tile is what is left of a sum over the rest, with zeros in its place.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Array

from filtrax.tiles import filled, indices, multiplied, shape_of


def product(equation: JaxprEqn, left: Array, right: Array) -> Array:
    """A B."""
    return filled(multiplied(left, right), shape_of(equation.outvars[0]))


def cholesky(equation: JaxprEqn, matrices: Array) -> Array:
    """Lᵀ, row by row; what a row u explains is then taken from what is left of A: A - uᵀ u."""
    shape, (rows, columns) = shape_of(equation.outvars[0]), _places(matrices)

    def step(j, state):
        rest, upper = state
        row = _selected(rest, rows == j)
        pivot = jnp.where(columns == j, row, jnp.zeros_like(row)).sum(-1, keepdims=True)
        inverse = 1 / pivot
        rest = rest - _swap(row) * (row * inverse)
        row = jnp.where(columns < j, jnp.zeros_like(row), row * (jnp.sqrt(pivot) * inverse))
        return rest, jnp.where(rows == j, row, upper)

    _, upper = _loop(shape[-1], step, (matrices, jnp.zeros_like(matrices)))
    return filled(_swap(upper), shape)


def square_root(equation: JaxprEqn, matrices: Array) -> Array:
    """L of a singular A, too, as `small_matrices.any_square_root`.

    The factor of A with roundings is computed only where a sequence of the program has no other.
    """
    size, (rows, columns) = shape_of(equation.outvars[0])[-1], _places(matrices)
    on_diagonal = rows == columns
    fixed = on_diagonal & (matrices == 0)
    regular = jnp.where(fixed, jnp.ones_like(matrices), matrices)
    plain = cholesky(equation, regular)
    # A pivot that fails spoils all that come after it, so the last one tells.
    at_last = (rows == size - 1) & (columns == size - 1)
    last = jnp.where(at_last, plain, jnp.zeros_like(plain)).sum((-2, -1), keepdims=True)
    failed = ~(jnp.abs(last) < jnp.inf)

    def restored():
        roundings = 1 + size * (size + 1) * jnp.finfo(matrices.dtype).eps
        return cholesky(equation, jnp.where(on_diagonal, regular * roundings, regular))

    some = failed.astype(jnp.int32).sum() > 0
    factor = jnp.where(failed, jax.lax.cond(some, restored, lambda: plain), plain)
    return jnp.where(fixed, jnp.zeros_like(factor), factor)


def inverse_lower(equation: JaxprEqn, factors: Array) -> Array:
    """L⁻¹ = D⁻¹ M⁻¹ with the diagonal D of L, and ones on that of M.

    Rows of the identity are taken Mᵢⱼ times from those below, which leaves M⁻¹.
    """
    shape, (rows, columns) = shape_of(equation.outvars[0]), _places(factors)
    scales = _swap(1 / _selected(factors, rows == columns))
    upper = _swap(factors) * scales

    def step(j, inverses):
        row = _selected(inverses, rows == j)
        below = inverses - _swap(_selected(upper, rows == j)) * row
        return jnp.where(rows > j, below, inverses)

    start = jnp.broadcast_to((rows == columns).astype(factors.dtype), factors.shape)
    return filled(_loop(shape[-1], step, start) * scales, shape)


def diagonal(equation: JaxprEqn, matrices: Array) -> Array:
    """Aᵢᵢ."""
    del equation
    rows, columns = _places(matrices)
    return _selected(matrices, rows == columns).squeeze(-2)


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


def _selected(tiles: Array, here: Array) -> Array:
    """The only entry of each column that is here. Of each row it would take a sum over threads."""
    return jnp.where(here, tiles, jnp.zeros_like(tiles)).sum(-2, keepdims=True)


def _swap(tiles: Array) -> Array:
    return jnp.swapaxes(tiles, -1, -2)


def _loop(size: int, step: Callable, start: Any) -> Any:
    return jax.lax.fori_loop(np.int32(0), np.int32(size), step, start)
