"""A function and its change as operations in a row, and what a backward pass keeps of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from filtrax.fusion import chosen, like
from filtrax.small_kernels import CALLS

KEPT = {f"filtrax_{name}" for name in ("product", "cholesky", "inverse_lower", "square_root")}
"""Operations whose results a backward pass reads, and does not compute again."""

RULED = {"custom_jvp_call"}
"""Calls of functions with derivatives of their own, which they have until these are taken."""

Known = dict[Any, Any]
"""What variables are."""


class ValueAndChange(NamedTuple):
    """A function of `values`, and its change with the `changes` of some of them.

    **Attributes:**

    - `equations`: of both, none of which is a call.
    - `constants`: what they use besides.
    - `values`, `changes`, `results`, `changed`: variables.
    """

    equations: Sequence[JaxprEqn]
    constants: Known
    values: Sequence[Any]
    changes: Sequence[Any]
    results: Sequence[Any]
    changed: Sequence[Any]

    def computed(self, variables: Sequence[Any], operands: Sequence[Any]) -> Known:
        """All that follows from what some variables are."""
        known = self.constants | dict(zip(variables, operands, strict=True))
        for equation in self.equations:
            is_new = not all(v in known for v in equation.outvars)
            if is_new and all(v in known for v in _variables(equation.invars)):
                known |= zip(equation.outvars, _done(equation, known), strict=True)
        return known

    def residuals(self) -> list[Any]:
        """Results of `KEPT` operations that the change needs, and that do not change themselves."""
        moved = {*self.changes}
        for equation in self.equations:
            if not moved.isdisjoint(_variables(equation.invars)):
                moved |= {*equation.outvars}
        found, needed = [], _variables(self.changed)
        for equation in reversed(self.equations):
            if needed.isdisjoint(equation.outvars):
                continue
            if equation.primitive.name in KEPT and moved.isdisjoint(equation.outvars):
                found += equation.outvars
            else:
                needed |= _variables(equation.invars)
        return found


def value_and_change(jaxpr: Jaxpr, moving: Sequence[bool]) -> ValueAndChange:
    """A function, and its change with those of its operands that are `moving`."""

    def both(*operands):
        values, changes = operands[: len(moving)], operands[len(moving) :]

        def function(*moved):
            some = iter(moved)
            pairs = zip(moving, values, strict=True)
            return _inlined(jaxpr, [next(some) if m else v for m, v in pairs], {*CALLS} - RULED)

        found, changed = jax.jvp(function, chosen(moving, values), list(changes))
        return [*found, *changed]

    likes = [like(v) for v in jaxpr.invars]
    arguments = [*likes, *chosen(moving, likes)]
    calls = jax.make_jaxpr(both)(*arguments)
    inline = lambda *operands: _inlined(calls.jaxpr, operands, {*CALLS}, calls.consts)  # noqa: E731
    flat = jax.make_jaxpr(inline)(*arguments)
    variables, results = flat.jaxpr.invars, flat.jaxpr.outvars
    return ValueAndChange(
        flat.jaxpr.eqns,
        dict(zip(flat.jaxpr.constvars, flat.consts, strict=True)),
        variables[: len(moving)],
        variables[len(moving) :],
        results[: len(jaxpr.outvars)],
        results[len(jaxpr.outvars) :],
    )


def read(known: Known, atoms: Iterable[Any]) -> list[Any]:
    """What variables are, or numbers."""
    return [each.val if isinstance(each, Literal) else known[each] for each in atoms]


def _inlined(
    jaxpr: Jaxpr, operands: Sequence[Any], calls: Collection[str], consts: Sequence[Any] = ()
) -> list[Any]:
    """The function, with the operations of functions that it calls in the place of calls."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *operands], strict=True))
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in calls:
            inner = equation.params[CALLS[name]]
            parts = getattr(inner, "jaxpr", inner), read(known, equation.invars), calls
            found = _inlined(*parts, getattr(inner, "consts", ()))
        else:
            found = _done(equation, known)
        known |= zip(equation.outvars, found, strict=True)
    return read(known, jaxpr.outvars)


def _done(equation: JaxprEqn, known: Known) -> Sequence[Any]:
    params = equation.primitive.get_bind_params(equation.params)
    found = equation.primitive.bind(*read(known, equation.invars), **params)
    return found if equation.primitive.multiple_results else [found]


def _variables(atoms: Iterable[Any]) -> set[Any]:
    return {each for each in atoms if not isinstance(each, Literal)}
