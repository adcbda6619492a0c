"""Rules: what operations of JAX do in a kernel, from tiles with zeros to tiles with zeros."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from filtrax.accelerate import matrices
from filtrax.accelerate._jax import JaxprEqn
from filtrax.accelerate.tiles import (
    Joined,
    Part,
    filled,
    indices,
    moved,
    multiplied,
    shape_of,
    widened,
    zero,
)


class NoKernelError(Exception):
    """A function that cannot be a kernel."""


def _shape(equation: JaxprEqn) -> tuple[int, ...]:
    return shape_of(equation.outvars[0])


KEEP_ZEROS = {"abs", "add", "add_any", "convert_element_type", "copy", "mul", "neg", "sub"}
KEEP_ZEROS |= {"and", "or", "select_n", "sign", "sqrt", "square"}
"""Operations on numbers that are zero if all of their operands are."""

ELEMENTWISE = KEEP_ZEROS | {"ceil", "div", "eq", "exp", "floor", "ge", "gt", "integer_pow", "le"}
ELEMENTWISE |= {"exp2", "expm1", "log", "log1p", "logistic", "lt", "max", "min", "ne", "not"}
ELEMENTWISE |= {"one_minus_square", "pow", "rsqrt"}
ELEMENTWISE |= {"acos", "asin", "atan", "atan2", "cos", "cosh", "sin", "sinh", "tan", "tanh"}


def _elementwise(equation: JaxprEqn, *tiles: Array) -> Array:
    return _on_numbers(functools.partial(equation.primitive.bind, **equation.params))(
        equation, *tiles
    )


def _on_numbers(function: Callable[..., Array]) -> Callable[..., Array]:
    """The rule of a function of numbers."""

    def rule(equation, *tiles):
        # Numbers may stand for arrays of them, and shared arrays have an axis of size 1 in front.
        rank = 1 + len(_shape(equation))
        ranked = [lax.expand_dims(tile, range(tile.ndim, rank)) for tile in tiles]
        wide = np.broadcast_shapes(*(tile.shape for tile in ranked))
        found = function(*(jnp.broadcast_to(tile, wide) for tile in ranked))
        alike = all(shape_of(atom) == _shape(equation) for atom in equation.invars)
        kept = alike and equation.primitive.name in KEEP_ZEROS
        return found if kept else filled(found, _shape(equation))

    return rule


QUARTER = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
"""A quarter of a turn in parts. Products of the first one with whole numbers below 65536 are exact,
because it has so few digits, and those of the second one with numbers below 8192."""

SINE = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COSINE = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
"""Coefficients of polynomials up to an eighth of a turn, in rising powers of the squared angle, and
from the third or the fourth power of the angle on."""


def _sine_after(quarters: int) -> Callable[[Array], Array]:
    """sin(x + quarters · π/2), as exact as x is: what is right for x to its last digit.

    With k the nearest whole number of quarters in x, it is the sine or the cosine of x - k π/2, by
    the sign that k says (Cody and Waite 1980; coefficients by Moshier, Cephes, 1989). Triton's own
    has another program for large x, which is written out for each number of a tile: a large part of
    all instructions of an unscented filter.
    """

    def sine(angle):
        count = jnp.floor(angle * np.float32(2 / np.pi) + 0.5)
        rest = functools.reduce(lambda left, part: left - count * part, QUARTER, angle)
        # Only of an angle so large that its neighbours are radians away from it.
        rest = jnp.where(jnp.abs(rest) > 2, zero(rest.dtype), rest)
        square = rest * rest
        odd = rest + rest * square * _polynomial(SINE, square)
        even = 1 - 0.5 * square + square * square * _polynomial(COSINE, square)
        quarter = count.astype(jnp.int32) + quarters
        found = jnp.where(quarter & 1 == 0, odd, even)
        return jnp.where(quarter & 2 == 0, found, -found)

    return sine


def _polynomial(coefficients: Sequence[float], number: Array) -> Array:
    """By Horner's rule."""
    value: Any = coefficients[-1]
    for each in reversed(coefficients[:-1]):
        value = value * number + each
    return value


def _select(which: Array, *cases: Array) -> Array:
    """One of two numbers by a flag, or one of several by an integer."""
    if which.dtype == bool:
        return lax.select_n(which, *cases)
    *others, last = enumerate(cases)
    return functools.reduce(
        lambda rest, case: jnp.where(which <= case[0], case[1], rest), reversed(others), last[1]
    )


def _iota(equation: JaxprEqn) -> Array:
    shape, axis = _shape(equation), equation.params["dimension"]
    found = lax.broadcasted_iota(equation.params["dtype"], (1, *map(widened, shape)), 1 + axis)
    return filled(found, shape)


def _broadcast(equation: JaxprEqn, tile: Array) -> Array:
    axes = [0, *(1 + axis for axis in equation.params["broadcast_dimensions"])]
    wide = (tile.shape[0], *map(widened, _shape(equation)))
    return filled(lax.broadcast_in_dim(tile, wide, axes), _shape(equation))


def _reshape(equation: JaxprEqn, tile: Array) -> Array:
    before, after = (
        [n for n in shape_of(v) if n != 1] for v in (equation.invars[0], *equation.outvars)
    )
    if before != after:
        raise NoKernelError("kernels add and remove axes of size 1, and reshape no more")
    return tile.reshape(tile.shape[0], *map(widened, _shape(equation)))


def _transpose(equation: JaxprEqn, tile: Array) -> Array:
    return lax.transpose(tile, [0, *(1 + axis for axis in equation.params["permutation"])])


def _sum(equation: JaxprEqn, tile: Array) -> Array:
    return tile.sum([1 + axis for axis in equation.params["axes"]], dtype=tile.dtype)


def _max(equation: JaxprEqn, tile: Array) -> Array:
    axes = [1 + axis for axis in equation.params["axes"]]
    inside = filled(jnp.ones(tile.shape, bool), shape_of(equation.invars[0]))
    is_float = jnp.issubdtype(tile.dtype, jnp.floating)
    least = -jnp.inf if is_float else jnp.iinfo(tile.dtype).min
    largest = jnp.where(inside, tile, jnp.full((), least, tile.dtype)).max(axes)
    return filled(largest, _shape(equation))


def _all(equation: JaxprEqn, tile: Array) -> Array:
    shape = shape_of(equation.invars[0])
    return filled(~_any(equation, filled(~tile, shape)), _shape(equation))


def _any(equation: JaxprEqn, tile: Array) -> Array:
    return _sum(equation, tile.astype(jnp.int32)) > 0


def _slice(equation: JaxprEqn, tile: Array) -> Array:
    if any(stride != 1 for stride in equation.params["strides"] or ()):
        raise NoKernelError("kernels have no strides")
    old, new = shape_of(equation.invars[0]), _shape(equation)
    for axis, start in enumerate(equation.params["start_indices"]):
        if old[axis] != new[axis]:
            tile = moved(tile, 1 + axis, start, old[axis], new[axis])
    return tile


def _pad(equation: JaxprEqn, tile: Array, padding: Array) -> Array:
    old, new = shape_of(equation.invars[0]), _shape(equation)
    padding = lax.expand_dims(padding, range(1, tile.ndim))
    for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
        if interior:
            raise NoKernelError("kernels have no strides")
        if low or high:
            tile = moved(tile, 1 + axis, -int(low), old[axis], new[axis])
            index = indices(tile.shape[1 + axis], 1 + axis, tile.ndim) - int(low)
            tile = jnp.where((index >= 0) & (index < old[axis]), tile, padding)
    return filled(tile, new)


def _concatenate(equation: JaxprEqn, *tiles: Array) -> Joined:
    axis = equation.params["dimension"]
    return Joined(tiles, [shape_of(v)[axis] for v in equation.invars], axis, _shape(equation))


def _stack(equation: JaxprEqn, *tiles: Array) -> Joined:
    axis = equation.params["axis"]
    single = [lax.expand_dims(tile, [1 + axis]) for tile in tiles]
    return Joined(single, [1] * len(tiles), axis, _shape(equation))


def _unstack(equation: JaxprEqn, tile: Array) -> list[Array]:
    axis = equation.params["axis"]
    old = shape_of(equation.invars[0])[axis]
    return [moved(tile, 1 + axis, i, old, 1).squeeze(1 + axis) for i in range(old)]


def parts_of(equation: JaxprEqn) -> list[Part]:
    """Into what an array is split."""
    axis, sizes = equation.params["axis"], [int(size) for size in equation.params["sizes"]]
    starts = itertools.accumulate(sizes, initial=0)
    return [Part(axis, start, size) for start, size in zip(starts, sizes, strict=False)]


def _split(equation: JaxprEqn, tile: Array) -> list[Array]:
    old = shape_of(equation.invars[0])
    return [moved(tile, 1 + p.axis, p.start, old[p.axis], p.size) for p in parts_of(equation)]


def _dot(equation: JaxprEqn, left: Array, right: Array) -> Array:
    (of_left, of_right), (many_left, many_right) = equation.params["dimension_numbers"]
    count, many = len(of_left), len(many_left)
    if count == 1 and not many and left.ndim == right.ndim == 3:
        turned = [left if of_left == (1,) else left.swapaxes(1, 2)]
        turned.append(right if of_right == (0,) else right.swapaxes(1, 2))
        return filled(multiplied(*turned), _shape(equation))
    front = range(count + 1 + many)
    left = jnp.moveaxis(
        left, [*(1 + axis for axis in of_left), 0, *(1 + axis for axis in many_left)], front
    )
    right = jnp.moveaxis(
        right, [*(1 + axis for axis in of_right), 0, *(1 + axis for axis in many_right)], front
    )
    rows, columns = left.ndim - len(front), right.ndim - len(front)
    left = lax.expand_dims(left, range(left.ndim, left.ndim + columns))
    right = lax.expand_dims(right, range(len(front), len(front) + rows))
    return filled((left * right).sum(range(count), dtype=left.dtype), _shape(equation))


def _same(equation: JaxprEqn, tile: Array) -> Array:
    del equation
    return tile


RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "sin": _on_numbers(_sine_after(0)),
    "cos": _on_numbers(_sine_after(1)),
    "select_n": _on_numbers(_select),
    "stop_gradient": _same,
    "copy": _same,
    "is_finite": _on_numbers(lambda number: jnp.abs(number) < jnp.inf),
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "reduce_sum": _sum,
    "reduce_max": _max,
    "reduce_and": _all,
    "reduce_or": _any,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "dot_general": _dot,
    "filtrax_product": lambda *operands: [matrices.product(*operands)],
    "filtrax_root_sum": matrices.root_sum,
    "filtrax_array_update": matrices.array_update,
    "filtrax_inverse": lambda *operands: [matrices.inverse(*operands)],
    "filtrax_log_determinant": lambda *operands: [matrices.log_determinant(*operands)],
    "filtrax_canonical": lambda *operands: [matrices.canonical(*operands)],
    "filtrax_cholesky": lambda *operands: [matrices.cholesky(*operands)],
    "filtrax_square_root": lambda *operands: [matrices.square_root(*operands)],
}
"""How tiles become tiles, by the name of an operation: not every version of JAX has them all."""
