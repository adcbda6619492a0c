"""Functions of small arrays as kernels of a GPU, written in Triton by way of Pallas.

A kernel computes with tiles (`filtrax.tiles`), by a rule for each operation of the function
(`filtrax.tile_rules`, `filtrax.matrix_rules`).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal, subjaxprs
from jax.interpreters import mlir
from jaxtyping import Array

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

TYPES = tuple(map(np.dtype, ("float32", "int32", "int64", "bool")))


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
        tile = warps = 1

    def program(*refs):
        first = pl.program_id(0) * tile

        def load(ref, shape, has_axis, part):
            where, inside = place(first, tile, count, shape, has_axis, part)
            return triton.load(ref.at[where], mask=inside, other=zero(ref.dtype))

        operands = [
            Operand(functools.partial(load, ref, shape_of(var), each))
            for ref, var, each in zip(refs, jaxpr.invars, batched, strict=False)
        ]
        found = evaluate(jaxpr, operands)
        for ref, var, result in zip(refs[len(operands) :], jaxpr.outvars, found, strict=True):
            for part, each in pieces(result):
                where, inside = place(first, tile, count, shape_of(var), True, part)
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


def _largest(jaxpr: Jaxpr) -> tuple[int, bool]:
    """How many numbers the largest tile of one sequence has, and whether there are products."""

    def load(var, part):
        shape = list(shape_of(var))
        if part is not None:
            shape[part.axis] = part.size
        return jnp.zeros((1, *map(widened, shape)), dtype_of(var))

    def trace():
        operands = [Operand(functools.partial(load, var)) for var in jaxpr.invars]
        return [tile for each in evaluate(jaxpr, operands) for _, tile in pieces(each)]

    traced = jax.make_jaxpr(trace)()

    def equations(jaxpr):
        return [*jaxpr.eqns, *(each for inner in subjaxprs(jaxpr) for each in equations(inner))]

    every = equations(traced.jaxpr)
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
    found = RULES[name](equation, *map(tile_of, values))
    return found if equation.primitive.multiple_results else [found]
