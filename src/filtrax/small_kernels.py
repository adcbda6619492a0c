"""Functions of small arrays as kernels of a GPU, written in Triton by way of Pallas.

A kernel computes with tiles (`filtrax.tiles`), by a rule for each operation of the function
(`filtrax.tile_rules`, `filtrax.matrix_rules`).
"""

import dataclasses
import functools
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

from filtrax.part_rules import by_parts
from filtrax.tile_rules import RULES, NoKernelError, parts_of
from filtrax.tiles import Operand, Value, dtype_of, pieces, place, shape_of, tile_of, widened, zero

MOST_NUMBERS = 8192
"""How many numbers the largest intermediate result of a program has, with all its sequences."""

LARGEST_RESULT = 16384
"""A function with a larger intermediate result of one sequence is no kernel: the registers of a
program do not hold it. A product of two 16 x 16 matrices has 4096 terms."""

FEWEST_PROGRAMS = 1024
"""As many programs a large GPU runs side by side: fewer sequences are not put together."""

NUMBERS_PER_WARP = 1024
"""Threads that wait for each other cost more than they help where there is little to do."""

MOST_PLACES = 2**31 - 1
"""In an array of all sequences: places are counted in 32 bits."""

TYPES = tuple(map(np.dtype, ("float32", "int32", "int64", "bool")))


class Loop(NamedTuple):
    """That a function is a step of a loop, and which of its operands are what.

    **Attributes:**

    - `shared`: how many operands all steps share; they come first.
    - `carried`: how many come next, that a step hands to the next one. As many results come first.
      All others, operands and results, have an axis for the `length` steps in front.
    - `reverse`: whether the last step is the first one.
    - `keeps`: whether its derivatives may use more of a step than what was carried to it.
    """

    shared: int
    carried: int
    length: int
    reverse: bool = False
    keeps: bool = False

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """What is shared, what is carried, and what belongs to the steps."""
        first, second = self.shared, self.shared + self.carried
        return list(operands[:first]), list(operands[first:second]), list(operands[second:])


def run_kernel(
    jaxpr: Jaxpr,
    batched: Sequence[bool],
    count: int,
    *operands: Array,
    loop: Loop | None = None,
    interpret: bool = False,
) -> list[Array]:
    """A function of one sequence for `count` of them, or a loop of it, as one kernel.

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

    largest, has_products = _largest(jaxpr, loop)
    tile = _power(min(MOST_NUMBERS // largest, count // FEWEST_PROGRAMS))
    warps = min(_power(tile * largest // NUMBERS_PER_WARP), 4)
    if has_products:
        # The numbers of a whole step fill the registers of one warp, and of more of them where
        # sequences are few. Programs that do not fit beside each other would wait for each other.
        tile, warps = 1, 1 if loop is None else min(_power(FEWEST_PROGRAMS // count), 4)

    steps = () if loop is None else (loop.length,)
    once = len(jaxpr.outvars) if loop is None else loop.carried
    shapes = [
        (count, *(() if i < once else steps), *shape_of(var)) for i, var in enumerate(jaxpr.outvars)
    ]
    if max([*map(math.prod, shapes), *(operand.size for operand in operands)]) > MOST_PLACES:
        raise NoKernelError("an array has too many numbers to count them")

    def program(*refs):
        own = _Program(jaxpr, batched, refs, triton, pl.program_id(0) * tile, tile, count)
        own.run() if loop is None else own.run_loop(loop)

    found = pl.pallas_call(
        program,
        out_shape=[
            jax.ShapeDtypeStruct((math.prod(shape),), dtype_of(var))
            for shape, var in zip(shapes, jaxpr.outvars, strict=True)
        ],
        grid=(-(-count // tile),),
        # Without stages: loads ahead of a loop's next step take more registers than they save time.
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="filtrax_fused" if loop is None else "filtrax_loop",
    )(*(operand.reshape(-1) for operand in operands))
    return [each.reshape(shape) for each, shape in zip(found, shapes, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Program:
    """A function for the sequences of one tile, the `first` of which is one of `count`.

    `refs` are all operands and all results, each of them flat.
    """

    jaxpr: Jaxpr
    batched: Sequence[bool]
    refs: Sequence[Any]
    triton: Any
    first: Array
    tile: int
    count: int

    def run(self) -> None:
        found = evaluate(self.jaxpr, [*map(self.operand, range(len(self.jaxpr.invars)))])
        for i, result in enumerate(found):
            self.store(i, result)

    def run_loop(self, loop: Loop) -> None:
        shared, carried, others = loop.parts(range(len(self.jaxpr.invars)))

        def whole(value, var):
            # What is carried has one shape, whatever it was made of.
            return jnp.broadcast_to(tile_of(value), (self.tile, *map(widened, shape_of(var))))

        def step(i, carry):
            when = (loop.length - 1 - i if loop.reverse else i), loop.length
            inputs = [self.operand(each, when) for each in others]
            found = evaluate(self.jaxpr, [*map(self.operand, shared), *carry, *inputs])
            for each in range(loop.carried, len(found)):
                self.store(each, found[each], when)
            return tuple(map(whole, found[: loop.carried], self.jaxpr.outvars))

        start = tuple(whole(self.operand(i), self.jaxpr.invars[i]) for i in carried)
        last = lax.fori_loop(np.int32(0), np.int32(loop.length), step, start)
        for i, result in enumerate(last):
            self.store(i, result)

    def operand(self, i: int, step: tuple[Array, int] | None = None) -> Operand:
        ref, shape = self.refs[i], shape_of(self.jaxpr.invars[i])

        def load(part):
            where, inside = self._place(shape, self.batched[i], part, step)
            return self.triton.load(ref.at[where], mask=inside, other=zero(ref.dtype))

        return Operand(load)

    def store(self, i: int, result: Value, step: tuple[Array, int] | None = None) -> None:
        ref, shape = self.refs[len(self.jaxpr.invars) + i], shape_of(self.jaxpr.outvars[i])
        for part, each in pieces(result):
            where, inside = self._place(shape, True, part, step)
            self.triton.store(ref.at[where], jnp.broadcast_to(each, where.shape), mask=inside)

    def _place(self, *what: Any) -> tuple[Array, Array]:
        return place(self.first, self.tile, self.count, *what)


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


def is_kernel(jaxpr: Jaxpr, loop: Loop | None = None) -> bool:
    """Whether a function can be a kernel, or a loop of it."""
    try:
        return _largest(jaxpr, loop)[0] > 0
    except NoKernelError:
        return False


def all_equations(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """Those of a function, and of all functions in it."""
    return [*jaxpr.eqns, *(each for inner in subjaxprs(jaxpr) for each in all_equations(inner))]


def _power(number: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)


def _largest(jaxpr: Jaxpr, loop: Loop | None = None) -> tuple[int, bool]:
    """How many numbers the largest tile of one sequence has, and whether there are products."""

    def load(var, part):
        shape = list(shape_of(var))
        if part is not None:
            shape[part.axis] = part.size
        return jnp.zeros((1, *map(widened, shape)), dtype_of(var))

    def trace():
        operands: list[Value] = [Operand(functools.partial(load, var)) for var in jaxpr.invars]
        if loop is not None:
            first, second = loop.shared, loop.shared + loop.carried
            operands[first:second] = map(tile_of, operands[first:second])
        return [tile for each in evaluate(jaxpr, operands) for _, tile in pieces(each)]

    every = all_equations(jax.make_jaxpr(trace)().jaxpr)
    found = max((math.prod(shape_of(v)) for each in every for v in each.outvars), default=1)
    if found > LARGEST_RESULT:
        raise NoKernelError(f"an intermediate result has {found} numbers")
    return found, any(each.primitive is lax.dot_general_p for each in every)


def evaluate(jaxpr: Jaxpr, operands: Sequence[Value]) -> list[Value]:
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
        return evaluate(getattr(inner, "jaxpr", inner), values)
    if name not in RULES:
        raise NoKernelError(f"kernels have no {name}")
    if name == "split" and isinstance(values[0], Operand):
        return [values[0].load(part) for part in parts_of(equation)]
    in_parts = by_parts(equation, values, RULES[name])
    if in_parts is not None:
        return in_parts
    found = RULES[name](equation, *map(tile_of, values))
    return found if equation.primitive.multiple_results else [found]
