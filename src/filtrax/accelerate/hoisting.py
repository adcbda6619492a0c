"""Hoisting: all that a step computes without the belief leaves its loop.

Entries of a noise matrix, sigma points that are drawn, masks of readings: all of that is computed
for all steps at once, by operations that kernels need no rule for. The recursion is what stays.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax.accelerate._jax import Jaxpr, JaxprEqn, Literal
from filtrax.accelerate.operations import compute, read, select, variables
from filtrax.accelerate.tiles import dtype_of

MOVES = {"broadcast_in_dim", "reshape", "squeeze", "transpose"}
"""Operations that a kernel repeats in each step, rather than to read their results."""


class Recursion(NamedTuple):
    """The body of a loop, and what is computed without it.

    **Attributes:**

    - `consts`, `carried`, `inputs`: operands of a step: what it closes over, what one step hands to
      the next, and what belongs to a step.
    - `shared`, `stepwise`: operations that depend on `consts` alone, and on `inputs` but on nothing
      that is carried.
    - `body`: operations that the loop needs, from `of_consts`, `carried` and `of_inputs`.
    - `results`, `inside`: results of a step, carried ones first, and whether the loop computes
      them.
    """

    consts: Sequence[Any]
    carried: Sequence[Any]
    inputs: Sequence[Any]
    shared: Sequence[JaxprEqn]
    stepwise: Sequence[JaxprEqn]
    body: Sequence[JaxprEqn]
    of_consts: Sequence[Any]
    of_inputs: Sequence[Any]
    results: Sequence[Any]
    inside: Sequence[bool]

    def step(self, *operands: Array) -> list[Any]:
        """The results inside the loop, from `of_consts`, `carried` and `of_inputs`."""
        known = [*self.of_consts, *self.carried, *self.of_inputs]
        values = compute(self.body, dict(zip(known, operands, strict=True)))
        return read(values, select(self.inside, self.results))

    def prepare(
        self, consts: Sequence[Array], inputs: Sequence[Array], length: int
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Computes `of_consts`, `of_inputs` of all steps, and the results outside of the loop."""
        values = compute(self.shared, dict(zip(self.consts, consts, strict=True)))
        outside = select([not flag for flag in self.inside], self.results)
        wanted = [*self.of_inputs, *outside]

        def step(inputs):
            own = compute(self.stepwise, values | dict(zip(self.inputs, inputs, strict=True)))
            pairs = zip(wanted, read(own, wanted), strict=True)
            return [jnp.asarray(v, dtype_of(w)) if isinstance(w, Literal) else v for w, v in pairs]

        stacked = jax.vmap(step, axis_size=length)(list(inputs))
        count = len(self.of_inputs)
        return read(values, self.of_consts), stacked[:count], stacked[count:]


def split(jaxpr: Jaxpr, consts: int, carried: int) -> Recursion:
    """Splits a step, whose operands are so many constants, then carried values, then inputs."""
    end = consts + carried
    operands = jaxpr.invars[:consts], jaxpr.invars[consts:end], jaxpr.invars[end:]
    order = ("shared", "stepwise", "carrying")
    kinds: dict[Any, str] = {}
    for kind, group in zip(("shared", "carrying", "stepwise"), operands, strict=True):
        kinds |= dict.fromkeys(group, kind)
    groups: dict[str, list[JaxprEqn]] = {kind: [] for kind in order}
    for equation in jaxpr.eqns:
        names = [kinds[v] for v in variables(equation.invars)]
        kind = max(names, key=order.index, default="shared")
        groups[kind].append(equation)
        kinds |= dict.fromkeys(equation.outvars, kind)

    results = jaxpr.outvars
    of_belief = [not isinstance(v, Literal) and kinds[v] == "carrying" for v in results]
    inside = [*[True] * carried, *of_belief[carried:]]
    body, needed = _body(jaxpr.eqns, variables(select(inside, results)), kinds)
    of_consts, of_inputs = ([v for v in needed if kinds[v] == kind] for kind in order[:2])
    shared, stepwise = groups["shared"], groups["stepwise"]
    return Recursion(*operands, shared, stepwise, body, of_consts, of_inputs, results, inside)


def _body(
    equations: Sequence[JaxprEqn], results: Sequence[Any], kinds: dict[Any, str]
) -> tuple[list[JaxprEqn], list[Any]]:
    """The operations that results need in each step, and what else these need."""
    body, needed = [], dict.fromkeys(results)
    for equation in reversed(equations):
        operands = variables(equation.invars)
        repeated = not operands or equation.primitive.name in MOVES
        carrying = any(kinds[v] == "carrying" for v in operands)
        if (carrying or repeated) and any(v in needed for v in equation.outvars):
            body.append(equation)
            needed |= dict.fromkeys(operands)
    computed = {v for equation in body for v in equation.outvars}
    return body[::-1], [v for v in needed if v not in computed]
