"""Loops over small steps as kernels of a GPU.

A kernel computes with tiles (`filtrax.accelerate.tiles`), by a rule for each operation of a step
(`filtrax.accelerate.rules`, `filtrax.accelerate.matrices`).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from filtrax.accelerate import _triton, limits
from filtrax.accelerate._jax import Jaxpr, JaxprEqn, Literal, subjaxprs
from filtrax.accelerate.matrices import BY_COLUMNS
from filtrax.accelerate.parts import by_parts
from filtrax.accelerate.rules import RULES, NoKernelError, parts_of
from filtrax.accelerate.tiles import (
    Operand,
    Part,
    Value,
    dtype_of,
    pieces,
    place,
    shape_of,
    tile_of,
    widened,
)


class Loop(NamedTuple):
    """How the operands of a jaxpr are used when it is the body of a loop.

    **Attributes:**

    - `shared`: the number of operands that all steps share; they come first.
    - `carried`: the number of operands after these that a step hands to the next one. As many
      results come first. All others, operands and results, have an axis for the `length` steps.
    - `reverse`: whether the last step is the first one.
    - `keep`: whether its derivatives may use more of a step than what was carried to it.
    """

    shared: int
    carried: int
    length: int
    reverse: bool = False
    keep: bool = False

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Operands that are shared, that are carried, and that belong to the steps."""
        first, second = self.shared, self.shared + self.carried
        return list(operands[:first]), list(operands[first:second]), list(operands[second:])


def run_kernel(
    jaxpr: Jaxpr, batched: Sequence[bool], count: int, *operands: Array, loop: Loop
) -> list[Array]:
    """Runs a loop of one sequence for `count` of them as one kernel.

    Operands that are `batched` have an axis for the sequences in front, as all results do; others
    are shared. Raises `NoKernelError` if a step has operations or types that kernels have not, or
    is too large.
    """
    shapes = [
        (count, *(() if i < loop.carried else (loop.length,)), *shape_of(variable))
        for i, variable in enumerate(jaxpr.outvars)
    ]
    if max([*map(math.prod, shapes), *(o.size for o in operands)]) > limits.MOST_PLACES:
        raise NoKernelError("an array has too many numbers to count them")
    tile, warps = _sizes(jaxpr, count, loop)

    def program(index, *references):
        _Program(jaxpr, batched, references, index * tile, tile, count).run(loop)

    flat = [
        jax.ShapeDtypeStruct((math.prod(shape),), dtype_of(variable))
        for shape, variable in zip(shapes, jaxpr.outvars, strict=True)
    ]
    in_rows = [operand.reshape(-1) for operand in operands]
    results = _triton.launch(program, flat, -(-count // tile), in_rows, warps=warps)
    return [result.reshape(shape) for result, shape in zip(results, shapes, strict=True)]


def _sizes(jaxpr: Jaxpr, count: int, loop: Loop) -> tuple[int, int]:
    """How many sequences a program has, and how many warps."""
    largest, has_products = largest_result(jaxpr, loop)
    if has_products:
        # The numbers of a step fill the registers of one warp, and of more of them where
        # sequences are few. Programs that do not fit beside each other would wait for each other.
        return 1, min(_power(limits.FEWEST_PROGRAMS // count), limits.MOST_WARPS)
    tile = _power(min(limits.MOST_NUMBERS // largest, count // limits.FEWEST_PROGRAMS))
    return tile, min(_power(tile * largest // limits.NUMBERS_PER_WARP), limits.MOST_WARPS)


def _power(number: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)


@dataclasses.dataclass(frozen=True)
class _Program:
    """A loop for the sequences of one tile, the `first` of which is one of `count`.

    `references` are all operands and all results, each of them flat.
    """

    jaxpr: Jaxpr
    batched: Sequence[bool]
    references: Sequence[Any]
    first: Array
    tile: int
    count: int

    def run(self, loop: Loop) -> None:
        """Runs all steps."""
        shared, carried, inputs = loop.parts(range(len(self.jaxpr.invars)))

        def whole(value, variable):
            # A carried value keeps its shape, whatever it was made of.
            shape = (self.tile, *map(widened, shape_of(variable)))
            return jnp.broadcast_to(tile_of(value), shape)

        def step(i, carry):
            when = (loop.length - 1 - i if loop.reverse else i), loop.length
            own = [self.operand(index, when) for index in inputs]
            results = evaluate(self.jaxpr, [*map(self.operand, shared), *carry, *own])
            for index in range(loop.carried, len(results)):
                self.store(index, results[index], when)
            return tuple(map(whole, results[: loop.carried], self.jaxpr.outvars))

        start = tuple(whole(self.operand(i), self.jaxpr.invars[i]) for i in carried)
        last = lax.fori_loop(np.int32(0), np.int32(loop.length), step, start)
        for i, result in enumerate(last):
            self.store(i, result)

    def operand(self, i: int, step: tuple[Array, int] | None = None) -> Operand:
        """An operand, in one step if it belongs to steps."""
        reference, shape = self.references[i], shape_of(self.jaxpr.invars[i])

        def load(part):
            return _triton.load(reference, *self._place(shape, self.batched[i], part, step))

        return Operand(load)

    def store(self, i: int, result: Value, step: tuple[Array, int] | None = None) -> None:
        """Stores a result, in one step if it belongs to steps."""
        shape = shape_of(self.jaxpr.outvars[i])
        reference = self.references[len(self.jaxpr.invars) + i]
        for part, tile in pieces(result):
            places, inside = self._place(shape, True, part, step)
            _triton.store(reference, places, inside, jnp.broadcast_to(tile, places.shape))

    def _place(self, *what: Any) -> tuple[Array, Array]:
        return place(self.first, self.tile, self.count, *what)


def all_equations(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The operations of a function, and of all functions in it."""
    return [*jaxpr.eqns, *(eqn for inner in subjaxprs(jaxpr) for eqn in all_equations(inner))]


def largest_result(jaxpr: Jaxpr, loop: Loop) -> tuple[int, bool]:
    """How many numbers the largest tile of one sequence has, and whether there are products.

    Raises `NoKernelError` if a step can be no kernel.
    """

    def load(variable: Any, part: Part | None) -> Array:
        shape = list(shape_of(variable))
        if part is not None:
            shape[part.axis] = part.size
        return jnp.zeros((1, *map(widened, shape)), dtype_of(variable))

    def step():
        operands: list[Value] = [Operand(functools.partial(load, v)) for v in jaxpr.invars]
        first, second = loop.shared, loop.shared + loop.carried
        operands[first:second] = map(tile_of, operands[first:second])
        return [tile for value in evaluate(jaxpr, operands) for _, tile in pieces(value)]

    equations = all_equations(jax.make_jaxpr(step)().jaxpr)
    sizes = (math.prod(shape_of(v)) for equation in equations for v in equation.outvars)
    largest = max(sizes, default=1)
    if largest > limits.LARGEST_RESULT:
        raise NoKernelError(f"an intermediate result has {largest} numbers")
    return largest, any(equation.primitive is lax.dot_general_p for equation in equations)


def evaluate(jaxpr: Jaxpr, operands: Sequence[Value]) -> list[Value]:
    """Computes a function with tiles."""
    values = dict(zip(jaxpr.invars, operands, strict=True))
    for variable in jaxpr.invars:
        _check_type(variable)

    def read(atom):
        if isinstance(atom, Literal):
            return jnp.full((1,) * (1 + np.ndim(atom.val)), atom.val, dtype_of(atom))
        return values[atom]

    for equation in jaxpr.eqns:
        results = _apply(equation, [read(atom) for atom in equation.invars])
        for variable, value in zip(equation.outvars, results, strict=True):
            _check_type(variable)
            values[variable] = value
    return [read(atom) for atom in jaxpr.outvars]


def _check_type(variable: Any) -> None:
    # Numbers of Python are doubles, where those are enabled, until they meet an array.
    if dtype_of(variable) not in limits.TYPES and shape_of(variable):
        raise NoKernelError(f"kernels do not compute with {dtype_of(variable)}")


CALLS = {
    "jit": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
}
"""Operations that are functions, and under which name those are kept."""


def _apply(equation: JaxprEqn, values: Sequence[Value]) -> Sequence[Value]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        if getattr(inner, "consts", ()):
            raise NoKernelError(f"the function in {name} has constants")
        return evaluate(getattr(inner, "jaxpr", inner), values)
    if name not in RULES:
        raise NoKernelError(f"kernels have no {name}")
    if name == "split" and isinstance(values[0], Operand):
        return [values[0].load(part) for part in parts_of(equation)]
    in_parts = by_parts(equation, values, RULES[name])
    if in_parts is not None:
        return in_parts
    operands = values if name in BY_COLUMNS else map(tile_of, values)
    results = RULES[name](equation, *operands)
    return results if equation.primitive.multiple_results else [results]
