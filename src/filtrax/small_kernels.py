"""Functions of small arrays as kernels of a GPU.

Triton, which is used by way of Pallas, has arrays whose sizes are powers of two, and can neither
cut nor join them. So a kernel computes with tiles: the same array of some sequences, filled up with
zeros. A rule computes what an operation of JAX does, from tiles with zeros to tiles with zeros.

Threads share the last axes of an array. A sum over the first one is done by each thread alone, one
over others makes threads wait for each other. So products have the axis that is summed in front.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal, subjaxprs
from jax.interpreters import mlir
from jaxtyping import Array

MOST_NUMBERS = 8192
"""How many numbers the largest intermediate result of a program has, with all its sequences."""

LARGEST_RESULT = 16384
"""A function with a larger intermediate result of one sequence is no kernel: the registers of a
program do not hold it. A product of two 16 x 16 matrices has 4096 terms."""

FEWEST_PROGRAMS = 256
"""As many programs a large GPU runs side by side: fewer sequences are not put together."""

NUMBERS_PER_WARP = 1024
"""Threads that wait for each other cost more than they help where there is little to do."""

FEWEST_TERMS = 1024
"""A product of two matrices with as many terms is one to Triton in a program for one sequence: its
operands go through shared memory, where a table of all terms would fill registers. Products of
fewer terms, or with a side shorter than `SHORTEST_SIDE`, are sums over a table."""

SHORTEST_SIDE = 8

MANY_PROGRAMS = 512
"""So many programs with such products keep a large GPU busy with one warp each; fewer have two."""

TYPES = tuple(map(np.dtype, ("float32", "int32", "int64", "bool")))


class NoKernelError(Exception):
    """A function that cannot be a kernel."""


def run_kernel(
    jaxpr: Jaxpr,
    batched: Sequence[bool],
    count: int,
    *operands: Array,
    interpret: bool = False,
) -> list[Array]:
    """A function of one sequence for `count` of them, as one kernel.

    Operands that are `batched` have an axis for the sequences in front, as all results do; others
    are shared. Raises `NoKernelError` if the function has operations or types that kernels
    have not, or is too large.
    """
    # Imported where a kernel is written: that takes a while, and Triton may leave JAX one day.
    try:
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import triton
    except ImportError as error:
        raise NoKernelError("this version of JAX cannot write kernels") from error

    largest, has_products = _largest(jaxpr)
    tile = _power(min(MOST_NUMBERS // largest, count // FEWEST_PROGRAMS))
    warps = min(_power(tile * largest // NUMBERS_PER_WARP), 4)
    if has_products:
        tile, warps = 1, 1 if count >= MANY_PROGRAMS else 2

    def program(*refs):
        first = pl.program_id(0) * tile

        def load(ref, shape, has_axis, part):
            where, inside = _place(first, tile, count, shape, has_axis, part)
            return triton.load(ref.at[where], mask=inside, other=_zero(ref.dtype))

        operands = [
            Operand(functools.partial(load, ref, shape_of(var), each))
            for ref, var, each in zip(refs, jaxpr.invars, batched, strict=False)
        ]
        found = _evaluate(jaxpr, operands)
        for ref, var, result in zip(refs[len(operands) :], jaxpr.outvars, found, strict=True):
            for part, each in _pieces(result):
                where, inside = _place(first, tile, count, shape_of(var), True, part)
                triton.store(ref.at[where], jnp.broadcast_to(each, where.shape), mask=inside)

    shapes = [(count, *shape_of(var)) for var in jaxpr.outvars]
    found = pl.pallas_call(
        program,
        out_shape=[
            jax.ShapeDtypeStruct((math.prod(shape),), dtype_of(var))
            for shape, var in zip(shapes, jaxpr.outvars, strict=True)
        ],
        grid=(-(-count // tile),),
        compiler_params=triton.CompilerParams(num_warps=warps),
        interpret=interpret,
        name="filtrax_fused",
    )(*(operand.reshape(-1) for operand in operands))
    return [each.reshape(shape) for each, shape in zip(found, shapes, strict=True)]


def lowering(program: Callable, otherwise: Callable, *, multiple_results: bool) -> Callable:
    """Lowers an operation as a program with kernels, or as another one for several devices.

    A program for several devices is divided among them after it was lowered, and a kernel cannot
    be divided.
    """

    def lower(context, *operands, **params):
        devices = getattr(context.module_context.axis_context, "num_devices", 1)
        chosen = program if devices == 1 else otherwise
        return mlir.lower_fun(chosen, multiple_results)(context, *operands, **params)

    return lower


def is_kernel(jaxpr: Jaxpr) -> bool:
    """Whether a function can be a kernel."""
    try:
        return _largest(jaxpr)[0] > 0
    except NoKernelError:
        return False


def _power(number: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)


def _wide(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def shape_of(variable: Any) -> tuple[int, ...]:
    """The shape of an operand or a result, for one sequence."""
    return variable.aval.shape


def dtype_of(variable: Any) -> Any:
    """Its type."""
    return variable.aval.dtype


def _zero(dtype: Any) -> Array:
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
        """That of the array."""
        moves = [
            moved(tile, 1 + part.axis, -part.start, part.size, self.shape[self.axis])
            for part, tile in self.parts
        ]
        either = jnp.logical_or if moves[0].dtype == bool else jnp.add
        return functools.reduce(either, moves)


Value = Array | Operand | Joined


def _tile(value: Value) -> Array:
    return value.tile if isinstance(value, Operand | Joined) else value


def _pieces(value: Value) -> list[tuple[Part | None, Array]]:
    """The tiles of a result, and which parts of it they are."""
    return [*value.parts] if isinstance(value, Joined) else [(None, _tile(value))]


def _place(
    first: Array, tile: int, count: int, shape: Sequence[int], batched: bool, part: Part | None
) -> tuple[Array, Array]:
    """Where the numbers of a tile are in an array that lies flat, and which of them exist."""
    rank = 1 + len(shape)
    if batched:
        where = first + indices(tile, 0, rank)
        inside = where < count
    else:
        where = indices(1, 0, rank)
        inside = where < 1
    for axis, size in enumerate(shape):
        start, wanted = (part.start, part.size) if part and part.axis == axis else (0, size)
        index = indices(_wide(wanted), 1 + axis, rank)
        where, inside = where * size + (start + index), inside & (index < wanted)
    return where, inside


def indices(size: int, axis: int, rank: int) -> Array:
    """0, 1, ... along an axis of a tile, the others of which have size 1."""
    axis %= rank
    return lax.broadcasted_iota(jnp.int32, [size if i == axis else 1 for i in range(rank)], axis)


def _largest(jaxpr: Jaxpr) -> tuple[int, bool]:
    """How many numbers the largest tile of one sequence has, and whether there are products."""

    def load(var, part):
        shape = list(shape_of(var))
        if part is not None:
            shape[part.axis] = part.size
        return jnp.zeros((1, *map(_wide, shape)), dtype_of(var))

    def trace():
        operands = [Operand(functools.partial(load, var)) for var in jaxpr.invars]
        return [tile for each in _evaluate(jaxpr, operands) for _, tile in _pieces(each)]

    traced = jax.make_jaxpr(trace)()

    def equations(jaxpr):
        return [*jaxpr.eqns, *(each for inner in subjaxprs(jaxpr) for each in equations(inner))]

    every = equations(traced.jaxpr)
    found = max((math.prod(shape_of(v)) for each in every for v in each.outvars), default=1)
    if found > LARGEST_RESULT:
        raise NoKernelError(f"an intermediate result has {found} numbers")
    return found, any(each.primitive is lax.dot_general_p for each in every)


def _evaluate(jaxpr: Jaxpr, operands: Sequence[Value]) -> list[Value]:
    """The function, computed with tiles."""
    known = dict(zip(jaxpr.invars, operands, strict=True))
    for var in jaxpr.invars:
        _check_type(var)

    def read(atom):
        if isinstance(atom, Literal):
            return jnp.full((1,) * (1 + np.ndim(atom.val)), atom.val, dtype_of(atom))
        return known[atom]

    for equation in jaxpr.eqns:
        found = _apply(equation, [read(atom) for atom in equation.invars])
        for var, value in zip(equation.outvars, found, strict=True):
            _check_type(var)
            known[var] = value
    return [read(atom) for atom in jaxpr.outvars]


def _check_type(var: Any) -> None:
    # Numbers of Python are doubles, where those are enabled, until they meet an array.
    if dtype_of(var) not in TYPES and shape_of(var):
        raise NoKernelError(f"kernels do not compute with {dtype_of(var)}")


CALLS = {
    "jit": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "filtrax_fused": "jaxpr",
}
"""Operations that are functions, and under which name those are kept."""


def _apply(equation: JaxprEqn, values: Sequence[Value]) -> Sequence[Value]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        if getattr(inner, "consts", ()) or equation.params.get("size") is not None:
            raise NoKernelError(
                f"the function in {name} has constants, or is for several sequences"
            )
        return _evaluate(getattr(inner, "jaxpr", inner), values)
    if name not in RULES:
        raise NoKernelError(f"kernels have no {name}")
    if name == "split" and isinstance(values[0], Operand):
        return [values[0].load(part) for part in _parts(equation)]
    found = RULES[name](equation, *map(_tile, values))
    return found if equation.primitive.multiple_results else [found]


def filled(tile: Array, shape: Sequence[int]) -> Array:
    """The tile with zeros where an array of that shape has no entries."""
    for axis, size in enumerate(shape, start=1):
        if tile.shape[axis] != size:
            tile = jnp.where(
                indices(tile.shape[axis], axis, tile.ndim) < size, tile, _zero(tile.dtype)
            )
    return tile


def _shape(equation: JaxprEqn) -> tuple[int, ...]:
    return shape_of(equation.outvars[0])


KEEP_ZEROS = {"abs", "add", "add_any", "convert_element_type", "copy", "mul", "neg", "sub"}
KEEP_ZEROS |= {"and", "or", "select_n", "sign", "sqrt", "square"}
"""Operations on numbers that are zero if all of their operands are."""

ELEMENTWISE = KEEP_ZEROS | {"ceil", "div", "eq", "exp", "floor", "ge", "gt", "integer_pow", "le"}
ELEMENTWISE |= {"log", "lt", "max", "min", "ne", "not", "pow", "rsqrt"}


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


def _remainder(number: Array, divisor: Array) -> Array:
    """What is left of a number, with its sign, to the rounding of the number itself."""
    ratio = number / divisor
    return number - divisor * jnp.where(ratio < 0, jnp.ceil(ratio), jnp.floor(ratio))


def _iota(equation: JaxprEqn) -> Array:
    shape, axis = _shape(equation), equation.params["dimension"]
    found = lax.broadcasted_iota(equation.params["dtype"], (1, *map(_wide, shape)), 1 + axis)
    return filled(found, shape)


def _broadcast(equation: JaxprEqn, tile: Array) -> Array:
    axes = [0, *(1 + axis for axis in equation.params["broadcast_dimensions"])]
    wide = (tile.shape[0], *map(_wide, _shape(equation)))
    return filled(lax.broadcast_in_dim(tile, wide, axes), _shape(equation))


def _reshape(equation: JaxprEqn, tile: Array) -> Array:
    before, after = (
        [n for n in shape_of(v) if n != 1] for v in (equation.invars[0], *equation.outvars)
    )
    if before != after:
        raise NoKernelError("kernels add and remove axes of size 1, and reshape no more")
    return tile.reshape(tile.shape[0], *map(_wide, _shape(equation)))


def _transpose(equation: JaxprEqn, tile: Array) -> Array:
    return lax.transpose(tile, [0, *(1 + axis for axis in equation.params["permutation"])])


def _sum(equation: JaxprEqn, tile: Array) -> Array:
    return tile.sum([1 + axis for axis in equation.params["axes"]], dtype=tile.dtype)


def _all(equation: JaxprEqn, tile: Array) -> Array:
    shape = shape_of(equation.invars[0])
    return ~_any(equation, filled(~tile, shape))


def _any(equation: JaxprEqn, tile: Array) -> Array:
    return _sum(equation, tile.astype(jnp.int32)) > 0


def moved(tile: Array, axis: int, shift: int, old: int, new: int) -> Array:
    """yⱼ = xⱼ₊ₛ for j < `new` along an axis with `old` entries, zero where there is no xⱼ₊ₛ.

    No entry can be addressed, so that is a sum over a table in which places are compared, or a
    product with a matrix of zeros and ones.
    """
    if tile.dtype == bool:
        return moved(tile.astype(jnp.int32), axis, shift, old, new) > 0

    size, wide = tile.shape[axis], _wide(new)

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
    return jnp.where(chosen, table, _zero(tile.dtype)).sum(0, dtype=tile.dtype)


def multiplied(left: Array, right: Array) -> Array:
    """A B for tiles of matrices."""
    sizes = (max(left.shape[0], right.shape[0]), *left.shape[1:], right.shape[2])
    if _is_product(sizes, left.dtype):
        return lax.dot(left.squeeze(0), right.squeeze(0), precision=lax.Precision.HIGHEST)[None]
    left, right = jnp.moveaxis(left, 2, 0)[..., None], jnp.moveaxis(right, 1, 0)[:, :, None, :]
    return (left * right).sum(0)


def _is_product(sizes: Sequence[int], dtype: Any) -> bool:
    """Whether Triton multiplies matrices: how many, and rows, terms and columns of each product."""
    count, *sides = sizes
    few = math.prod(sides) < FEWEST_TERMS or min(sides) < SHORTEST_SIDE
    return count == 1 and dtype == np.float32 and not few


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
    for axis, (low, _, interior) in enumerate(equation.params["padding_config"]):
        if interior:
            raise NoKernelError("kernels have no strides")
        if old[axis] != new[axis]:
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


def _parts(equation: JaxprEqn) -> list[Part]:
    """Into what an array is split."""
    axis, sizes = equation.params["axis"], [int(size) for size in equation.params["sizes"]]
    starts = itertools.accumulate(sizes, initial=0)
    return [Part(axis, start, size) for start, size in zip(starts, sizes, strict=False)]


def _split(equation: JaxprEqn, tile: Array) -> list[Array]:
    old = shape_of(equation.invars[0])
    return [moved(tile, 1 + p.axis, p.start, old[p.axis], p.size) for p in _parts(equation)]


def _dot(equation: JaxprEqn, left: Array, right: Array) -> Array:
    (of_left, of_right), batch = equation.params["dimension_numbers"]
    if any(batch):
        raise NoKernelError("kernels have no products of several matrices")
    count = len(of_left)
    if count == 1 and left.ndim == right.ndim == 3:
        turned = [left if of_left == (1,) else left.swapaxes(1, 2)]
        turned.append(right if of_right == (0,) else right.swapaxes(1, 2))
        return filled(multiplied(*turned), _shape(equation))
    left = jnp.moveaxis(left, [1 + axis for axis in of_left], range(count))
    right = jnp.moveaxis(right, [1 + axis for axis in of_right], range(count))
    rows, columns = left.ndim - 1 - count, right.ndim - 1 - count
    left = lax.expand_dims(left, range(left.ndim, left.ndim + columns))
    right = lax.expand_dims(right, range(1 + count, 1 + count + rows))
    return filled((left * right).sum(range(count)), _shape(equation))


RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "is_finite": _on_numbers(lambda number: jnp.abs(number) < jnp.inf),
    "rem": _on_numbers(_remainder),
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "reduce_sum": _sum,
    "reduce_and": _all,
    "reduce_or": _any,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "dot_general": _dot,
}
"""How tiles become tiles, by the name of an operation: not every version of JAX has them all."""
