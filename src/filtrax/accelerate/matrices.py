"""Rules of the operations on small matrices, in a kernel where matrices are tiles.

`filtrax.accelerate.rules` says what a rule is. Rows and columns cannot be addressed there: a row is
a sum over all rows, with zeros in the place of the others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from filtrax.accelerate._jax import JaxprEqn
from filtrax.accelerate.tiles import (
    Joined,
    Value,
    filled,
    indices,
    multiplied,
    shape_of,
    tile_of,
    widened,
)


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
    """L of a singular A, too, as `linalg.derivatives.square_root`.

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


def inverse(equation: JaxprEqn, factors: Array) -> Array:
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


def log_determinant(equation: JaxprEqn, factors: Array, inverses: Array) -> Array:
    """ln |L Lᵀ|, with ones in the place of entries that tiles have beyond the matrix."""
    del inverses
    size, (rows, columns) = shape_of(equation.invars[0])[-1], _places(factors)
    inside = (rows == columns) & (rows < size)
    ones = jnp.where(inside, factors, jnp.ones_like(factors))
    return filled(2 * jnp.log(ones).sum((-2, -1)), shape_of(equation.outvars[0]))


def canonical(equation: JaxprEqn, factors: Array) -> Array:
    """The same root."""
    del equation
    return factors


BY_COLUMNS = ("filtrax_root_sum", "filtrax_array_update")
"""Operations whose rules take tiles in a row as they are, if these are columns of a matrix."""


def root_sum(equation: JaxprEqn, *parts: Value) -> list[Value]:
    """L and the rows of Q, row by row (`linalg._small.orthogonalize`)."""
    size = shape_of(equation.outvars[0])[-1]
    columns = [tile for part in parts for tile in _columns(part)]
    first = jnp.zeros((*_batch(columns), widened(size), widened(size)), columns[0].dtype)
    _, (lower,), basis = _eliminate(size, [columns], [first], 0)
    rest, (shape, *shapes) = iter(basis), map(shape_of, equation.outvars)
    pairs = zip(parts, shapes, strict=True)
    rows = [_like(part, [next(rest) for _ in _columns(part)], s) for part, s in pairs]
    return [filled(lower, shape), *rows]


def array_update(equation: JaxprEqn, noise: Value, image: Value, prior: Value) -> list[Value]:
    """X, Y and L, and the rows of Q: first those of the noise, then those of the prior."""
    (rows, columns), (size, _) = (
        shape_of(v)[-2:] for v in (equation.invars[0], equation.invars[2])
    )
    if _sizes(image) != _sizes(prior):
        image, prior = tile_of(image), tile_of(prior)
    noise = tile_of(noise)
    top, bottom = [noise, *_columns(image)], _columns(prior)
    batch, dtype = _batch([*top, *bottom]), noise.dtype
    zero = lambda *shape: jnp.zeros((*batch, *map(widened, shape)), dtype)  # noqa: E731
    bottom, triangles = [zero(size, columns), *bottom], [zero(rows, rows), zero(size, rows)]
    (_, bottom), (corner, below), first = _eliminate(rows, [top, bottom], triangles, 0)
    _, (factor,), second = _eliminate(size, [bottom], [zero(size, size)], 0)
    shapes = list(map(shape_of, equation.outvars))
    triangle = [filled(t, s) for t, s in zip((corner, below, factor), shapes[:3], strict=True)]
    (noise_1, *image_1), (noise_2, *image_2) = first, second
    basis = [noise_1, _like(prior, image_1, shapes[4]), noise_2, _like(prior, image_2, shapes[6])]
    return [*triangle, *basis]


def _columns(value: Value) -> Sequence[Array]:
    """Tiles of the columns of a matrix."""
    return value.tiles if _sizes(value) is not None else [tile_of(value)]  # pyright: ignore


def _sizes(value: Value) -> list[int] | None:
    """The numbers of columns in the tiles of a matrix; None if it is one tile."""
    return list(value.sizes) if isinstance(value, Joined) and value.axis == 1 else None


def _like(value: Value, tiles: Sequence[Array], shape: tuple[int, ...]) -> Value:
    """A matrix of that shape whose tiles have the columns that those of another matrix have."""
    sizes = _sizes(value)
    return tiles[0] if sizes is None else Joined(tiles, sizes, 1, shape)


def _eliminate(
    count: int, blocks: Sequence[Sequence[Array]], triangles: Sequence[Array], which: int
) -> tuple[list[list[Array]], list[Array], list[Array]]:
    """Takes what the rows of a block explain from all rows, one row after the other.

    `blocks` are blocks of rows, each in parts of columns. Returns what is left of them, the
    products of all rows with the orthonormal ones, and these in parts.
    """
    batch = _batch([*blocks[which], *triangles])
    wide = [[jnp.broadcast_to(p, (*batch, *p.shape[-2:])) for p in block] for block in blocks]
    basis = [jnp.zeros_like(part) for part in wide[which]]

    def step(number, state):
        rest, lower, basis = state
        own = [_places(part)[0] == number for part in rest[which]]
        row = [_selected(p, here) for p, here in zip(rest[which], own, strict=True)]
        # One sum over threads for all rows, which gives the length of the row as well.
        products = [
            _total([(p * r).sum(-1, keepdims=True) for p, r in zip(block, row, strict=True)])
            for block in rest
        ]
        square = _selected(products[which], _places(products[which])[0] == number)
        positive, nothing = square > 0, jnp.zeros_like(square)
        regular = jnp.where(positive, square, jnp.ones_like(square))
        scale = jnp.where(positive, 1 / jnp.sqrt(regular), nothing)
        inverse = jnp.where(positive, 1 / regular, nothing)
        new_rest, new_lower = [], []
        for index, (block, triangle) in enumerate(zip(rest, lower, strict=True)):
            column = products[index]
            if index == which:
                below = indices(column.shape[-2], -2, column.ndim) >= number
                column = jnp.where(below, column, jnp.zeros_like(column))
            share, column = column * inverse, column * scale
            new_rest.append([p - share * r for p, r in zip(block, row, strict=True)])
            here = _places(triangle)[1] == number
            new_lower.append(jnp.where(here, column, triangle))
        pairs = zip(own, row, basis, strict=True)
        return new_rest, new_lower, [jnp.where(here, r * scale, q) for here, r, q in pairs]

    start = (wide, [jnp.broadcast_to(t, (*batch, *t.shape[-2:])) for t in triangles], basis)
    return _loop(count, step, start)


def _total(terms: Sequence[Array]) -> Array:
    return sum(terms[1:], terms[0])


def _batch(tiles: Sequence[Array]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(tile.shape[:-2] for tile in tiles))


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
