"""Optimizers that are compared by what they do.

Optax makes an optimizer of new functions in every call. JAX compares functions by identity, so a
second `optax.adam(1e-3)` would be a second program to compile, and one more to be kept.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from filtrax._checks import is_concrete


def comparable(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same optimizer, equal to all whose functions have the same code and the same numbers."""
    if isinstance(optimizer.update, Comparable):
        return optimizer
    functions = {name: Comparable(getattr(optimizer, name)) for name in ("init", "update")}
    return optimizer._replace(**functions)


class Comparable:
    """A function that equals others of the same code with equal closures."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.signature = _signature(function, ())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable) and self.signature == other.signature

    def __hash__(self) -> int:
        return hash(self.signature)


class _Identity:
    """An object that equals itself alone, and is kept so that no other one takes its place."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _signature(value: Any, outer: tuple[int, ...]) -> Any:
    """A hashable description of a value, functions by their code and by what they close over.

    `outer` are the values inside of which it is described: a function may close over itself.
    """
    if id(value) in outer:
        return "recursion", outer[::-1].index(id(value))
    outer = (*outer, id(value))
    inner = functools.partial(_signature, outer=outer)
    if isinstance(value, Comparable):
        return value.signature
    if isinstance(value, types.FunctionType):
        cells = tuple(inner(_content(cell)) for cell in value.__closure__ or ())
        defaults = inner(value.__defaults__), inner(value.__kwdefaults__)
        return "function", value.__code__, _Identity(value.__globals__), defaults, cells
    if isinstance(value, types.MethodType):
        return "method", inner(value.__func__), inner(value.__self__)
    if isinstance(value, functools.partial):
        return "partial", inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, bool | int | float | complex | str | bytes | type | None):
        return type(value).__name__, value
    if isinstance(value, tuple | list):
        return type(value), tuple(map(inner, value))
    if isinstance(value, dict):
        return "dict", tuple((key, inner(child)) for key, child in value.items())
    if isinstance(value, np.ndarray) or _is_known(value):
        array = np.asarray(value)
        return "array", array.shape, str(array.dtype), array.tobytes()
    return _Identity(value)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return None


def _is_known(value: Any) -> bool:
    return isinstance(value, jax.Array) and is_concrete(value)
