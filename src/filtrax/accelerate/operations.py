"""Functions of one sequence as jaxprs, and their operations one by one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from filtrax.accelerate._jax import Jaxpr, JaxprEqn, Literal, eval_jaxpr
from filtrax.accelerate.tiles import dtype_of, shape_of

Values = dict[Any, Any]
"""Values of variables."""


def close(function: Callable, arguments: Sequence[Any]) -> tuple[list[Array], Jaxpr]:
    """The arrays that a function closes over, and its jaxpr with these as leading operands."""
    traced = jax.make_jaxpr(function)(*arguments)
    keys = list(map(_key, traced.consts))
    distinct = dict(zip(keys, traced.consts, strict=True))
    consts = list(map(jnp.asarray, distinct.values()))

    def whole(consts, operands):
        values = dict(zip(distinct, consts, strict=True))
        return eval_jaxpr(traced.jaxpr, [values[key] for key in keys], *operands)

    return consts, jax.make_jaxpr(whole)(consts, arguments).jaxpr


def _key(const: Any) -> Any:
    """Equal keys of NumPy arrays with equal numbers, and of no other arrays."""
    is_known = isinstance(const, np.ndarray)
    return (const.dtype, const.shape, const.tobytes()) if is_known else id(const)


def compute(equations: Iterable[JaxprEqn], values: Values) -> Values:
    """The values with those that follow by some equations."""
    values = dict(values)
    for equation in equations:
        values |= zip(equation.outvars, apply(equation, values), strict=True)
    return values


def apply(equation: JaxprEqn, values: Values) -> Sequence[Any]:
    """The results of one operation."""
    params = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*read(values, equation.invars), **params)
    return results if equation.primitive.multiple_results else [results]


def read(values: Values, atoms: Iterable[Any]) -> list[Any]:
    """Values of variables, and literal numbers."""
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]


def variables(atoms: Iterable[Any]) -> list[Any]:
    """The variables among atoms."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def select(flags: Sequence[bool], items: Sequence[Any]) -> list[Any]:
    """The items whose flags are set."""
    return [item for flag, item in zip(flags, items, strict=True) if flag]


def like(variable: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a variable."""
    return jax.ShapeDtypeStruct(shape_of(variable), dtype_of(variable))
