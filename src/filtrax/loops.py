"""A filter over a whole sequence as one operation of JAX, which a GPU runs as one kernel.

A loop of kernels launches several of them in each step, which takes longer than what they do. Where
a step can be one kernel, with the models in it, so can the loop: beliefs stay in registers from
step to step. Its derivatives are such loops again; the backward pass is one that runs in reverse.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray, eval_jaxpr
from jax.extend.core import Jaxpr, JaxprEqn, Primitive
from jax.interpreters import ad
from jax.interpreters import partial_eval as pe
from jaxtyping import Array

from filtrax import fusion
from filtrax.fusion import chosen, like, opened, register
from filtrax.linearization import read, value_and_change
from filtrax.small_kernels import Loop, all_equations, is_kernel, run_kernel
from filtrax.tile_rules import NoKernelError
from filtrax.tiles import dtype_of, shape_of

MOST_PARAMETERS = 512
"""Of models in such a loop. A kernel reads them for every sequence and in every step, and gives
each sequence its own gradient of them; products with larger matrices are for all of them at once.
"""

MOST_OPERATIONS = 400
"""Of a step in such a loop: larger kernels take long to compile."""


def scan_in_one(
    step: Callable, first: Any, inputs: Any, *, keeps: bool = True
) -> tuple[Any, Any] | None:
    """What `lax.scan(step, first, inputs)` gives, as one operation.

    `keeps` says whether a backward pass may read more than what was carried to each step, which
    takes memory and saves time. None where programs are not traced for a GPU, or where a step is no
    small kernel.
    """
    if not fusion.for_gpu():
        return None
    carry, structure = jax.tree.flatten(first)
    operands, of_inputs = jax.tree.flatten(inputs)
    results = []

    def flat(*leaves):
        carry = jax.tree.unflatten(structure, leaves[: structure.num_leaves])
        found = step(carry, jax.tree.unflatten(of_inputs, leaves[structure.num_leaves :]))
        found, result = jax.tree.flatten(found)
        results.append(result)
        return found

    loop = Loop(0, len(carry), operands[0].shape[0], keeps=keeps)
    bound = _bound(flat, [*carry, *operands], [False] * (len(carry) + len(operands)), loop, None)
    jaxpr, loop = bound["jaxpr"], bound["loop"]
    shared, before, _ = loop.parts(jaxpr.invars)
    alike = all(
        shape_of(v) == shape_of(w) and dtype_of(v) == dtype_of(w) == jnp.float32
        for v, w in zip(before, jaxpr.outvars, strict=False)
    )
    few = sum(v.aval.size for v in shared) <= MOST_PARAMETERS
    small = few and len(all_equations(jaxpr)) <= MOST_OPERATIONS
    if not (alike and small and is_kernel(jaxpr, loop)):
        return None
    return jax.tree.unflatten(results[0], operation.bind(*bound.pop("operands"), **bound))


operation = Primitive("filtrax_loop")
"""A function of one step of one sequence, a `jaxpr` without constants, in a `loop`; for `size`
sequences or for one (None).

Operands that are `batched` have an axis for the sequences in front, as all results do. What belongs
to steps has an axis for these next."""


def _bind(
    function: Callable,
    operands: Sequence[Any],
    batched: Sequence[bool],
    loop: Loop,
    size: int | None,
) -> list[Array]:
    bound = _bound(function, operands, batched, loop, size)
    return operation.bind(*bound.pop("operands"), **bound)


def _bound(
    function: Callable,
    operands: Sequence[Any],
    batched: Sequence[bool],
    loop: Loop,
    size: int | None,
) -> dict[str, Any]:
    """The operation of a function. What it closes over is shared, what it leaves is no operand."""
    consts, whole = opened(function, _single(operands, batched, loop))
    shared = len(consts) + loop.shared
    carried = [shared <= i < shared + loop.carried for i in range(len(whole.invars))]
    jaxpr, used = pe.dce_jaxpr(whole, [True] * len(whole.outvars), carried)
    return {
        "operands": chosen(used, [*consts, *operands]),
        "jaxpr": jaxpr,
        "loop": loop._replace(shared=sum(used[:shared])),
        "batched": tuple(chosen(used, [*[False] * len(consts), *batched])),
        "size": size,
    }


def _single(
    operands: Sequence[Any], batched: Sequence[bool], loop: Loop
) -> list[jax.ShapeDtypeStruct]:
    """What operands are for one sequence in one step."""
    each = fusion.single(operands, batched)
    shared, carried, others = loop.parts(each)
    steps = (jax.ShapeDtypeStruct(one.shape[1:], one.dtype) for one in others)
    return [*shared, *carried, *steps]


def _shapes(
    *operands: Any, jaxpr: Jaxpr, loop: Loop, batched: Any, size: int | None
) -> list[ShapedArray]:
    del operands, batched
    front = () if size is None else (size,)
    carried, others = jaxpr.outvars[: loop.carried], jaxpr.outvars[loop.carried :]
    ends = [ShapedArray((*front, *shape_of(v)), dtype_of(v)) for v in carried]
    steps = [ShapedArray((*front, loop.length, *shape_of(v)), dtype_of(v)) for v in others]
    return ends + steps


def _inline(
    *operands: Array, jaxpr: Jaxpr, loop: Loop, batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The loop as it was written."""

    def single(operands):
        shared, first, inputs = loop.parts(operands)

        def step(carry, inputs):
            found = eval_jaxpr(jaxpr, (), *shared, *carry, *inputs)
            return found[: loop.carried], found[loop.carried :]

        last, others = lax.scan(step, first, inputs, loop.length, loop.reverse)
        return [*last, *others]

    if size is None:
        return single(operands)
    axes = tuple(0 if each else None for each in batched)
    return jax.vmap(single, (axes,), axis_size=size)(operands)


def _kernel(
    *operands: Array, jaxpr: Jaxpr, loop: Loop, batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The loop as one kernel, or as it was written."""
    count = 1 if size is None else size
    try:
        found = run_kernel(jaxpr, batched, count, *operands, loop=loop)
    except NoKernelError:
        return _inline(*operands, jaxpr=jaxpr, loop=loop, batched=batched, size=size)
    return [each[0] for each in found] if size is None else found


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: Jaxpr,
    loop: Loop,
    batched: Sequence[bool],
    size: int | None,
) -> tuple[list[Array], list[Any]]:
    """The value, and the change: a loop of its own, so that it is linear in its tangents.

    It computes each step again from what was carried to it, and from what else the loop of the
    value keeps.
    """
    shared, _, inputs = loop.parts(primals)
    of_shared, of_carried, of_inputs = loop.parts(tangents)
    moving = [not isinstance(each, ad.Zero) for each in of_shared]
    arriving = [not isinstance(each, ad.Zero) for each in of_inputs]
    all_moving = [*moving, *[True] * loop.carried, *arriving]
    both = value_and_change(jaxpr, all_moving)
    residuals = both.residuals() if loop.keeps else []

    def value(*operands):
        known = both.computed(both.values, operands)
        return [*read(known, [*both.results, *residuals]), *loop.parts(operands)[1]]

    found = iter(_bind(value, primals, batched, loop, size))
    found, kept, before = (
        [next(found) for _ in vs] for vs in (jaxpr.outvars, residuals, of_carried)
    )

    of_all, carried_flags, input_flags = loop.parts(batched)
    has_axis = size is not None
    groups = [  # what they are, whether they have an axis for sequences, whether they are tangents
        (shared, of_all, False),
        (chosen(moving, of_shared), chosen(moving, of_all), True),
        ([ad.instantiate_zeros(each) for each in of_carried], carried_flags, True),
        (kept, [has_axis] * len(kept), False),
        (before, [has_axis] * len(before), False),
        (inputs, input_flags, False),
        (chosen(arriving, of_inputs), chosen(arriving, input_flags), True),
    ]

    def change(*operands):
        rest = iter(operands)
        shared, d_shared, d_carry, kept, carry, inputs, d_inputs = (
            [next(rest) for _ in group] for group, *_ in groups
        )
        values = [*kept, *shared, *carry, *inputs, *d_shared, *d_carry, *d_inputs]
        known = both.computed([*residuals, *both.values, *both.changes], values)
        return read(known, both.changed)

    operands, flags = (_flat([group[i] for group in groups]) for i in (0, 1))
    inner = loop._replace(shared=len(shared) + sum(moving))
    traced = jax.make_jaxpr(change)(*_single(operands, flags, inner)).jaxpr
    linear = _flat([[is_linear] * len(group) for group, _, is_linear in groups])

    def changes(i, result):
        if i < loop.carried:
            return True
        _, used = pe.dce_jaxpr(traced, [result is each for each in traced.outvars])
        return any(chosen(linear, used))

    changing = [changes(i, result) for i, result in enumerate(traced.outvars)]
    function = lambda *operands: chosen(changing, change(*operands))  # noqa: E731
    some = iter(_bind(function, operands, flags, inner, size))
    none = [ad.Zero(jax.typeof(each).to_tangent_aval()) for each in found]
    return found, [next(some) if c else zero for c, zero in zip(changing, none, strict=True)]


def _flat(groups: Sequence[Sequence[Any]]) -> list[Any]:
    return [each for group in groups for each in group]


def _transpose(
    cotangents: Sequence[Any],
    *operands: Any,
    jaxpr: Jaxpr,
    loop: Loop,
    batched: Sequence[bool],
    size: int | None,
) -> list[Any]:
    """The loop in reverse.

    It carries cotangents of what was carried, and adds up those of what was shared. All that is
    carried is linear; what of it is known is zero.
    """
    unknown = [ad.is_undefined_primal(operand) for operand in operands]
    shared, _, inputs = loop.parts(unknown)
    linear = [*shared, *[True] * loop.carried, *inputs]
    given = [not isinstance(each, ad.Zero) for each in cotangents[loop.carried :]]
    like_all = [like(v) for v in jaxpr.invars]
    sizes = sum(shared), loop.carried, sum(inputs)
    known = [not each for each in linear]
    num_known = sum(known[: loop.shared])

    def transposed(*arguments):
        inner = Loop(num_known, loop.carried + sizes[0], loop.length)
        of_shared, carried, of_inputs = inner.parts(arguments)
        num_inputs = len(inputs) - sizes[2]
        values, changes = [*of_shared, *of_inputs[:num_inputs]], of_inputs[num_inputs:]

        def function(*unknown):
            of_known, of_linear = iter(values), iter(unknown)
            everything = [next(of_linear if each else of_known) for each in linear]
            found = eval_jaxpr(jaxpr, (), *everything)
            return [*found[: loop.carried], *chosen(given, found[loop.carried :])]

        back = jax.linear_transpose(function, *chosen(linear, like_all))
        found = back([*carried[: loop.carried], *changes])
        to_shared, to_carried, to_inputs = Loop(*sizes).parts(found)
        sums = map(jnp.add, carried[loop.carried :], to_shared)
        return [*to_carried, *sums, *to_inputs]

    def start(each, var):
        zero = isinstance(each, ad.Zero)
        return jnp.zeros(shape_of(var), dtype_of(var)) if zero else each

    of_known, flags_known = chosen(known, operands), chosen(known, batched)
    last, given_last = cotangents[: loop.carried], jaxpr.outvars[: loop.carried]
    totals = [jnp.zeros(each.shape, each.dtype) for each in chosen(shared, like_all[: loop.shared])]
    has_axis = size is not None
    arguments = [
        *of_known[:num_known],
        *map(start, last, given_last),
        *totals,
        *of_known[num_known:],
        *chosen(given, cotangents[loop.carried :]),
    ]
    flags = [
        *flags_known[:num_known],
        *(has_axis and not isinstance(each, ad.Zero) for each in last),
        *[False] * len(totals),
        *flags_known[num_known:],
        *[has_axis] * sum(given),
    ]
    inner = Loop(num_known, loop.carried + sizes[0], loop.length, not loop.reverse)
    found = _bind(transposed, arguments, flags, inner, size)
    to_carried, to_shared, to_inputs = Loop(loop.carried, sizes[0], loop.length).parts(found)
    results = iter([*to_shared, *to_carried, *to_inputs])

    def cotangent(is_unknown, is_linear, has_own_axis):
        each = next(results) if is_linear else None
        if each is None or not is_unknown:
            return None
        return each if has_own_axis or size is None else each.sum(0)

    return list(map(cotangent, unknown, linear, batched))


def _without_unused(used: list[bool], equation: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The equation with the results that are used, and with what they need."""
    if not any(used):
        return [False] * len(equation.invars), None
    loop = equation.params["loop"]
    wanted = [True] * loop.carried + used[loop.carried :]
    count = len(equation.invars)
    carried = [loop.shared <= i < loop.shared + loop.carried for i in range(count)]
    jaxpr, needed = pe.dce_jaxpr(equation.params["jaxpr"], wanted, carried)
    params = equation.params | {
        "jaxpr": jaxpr,
        "batched": tuple(chosen(needed, equation.params["batched"])),
        "loop": loop._replace(shared=sum(needed[: loop.shared])),
    }
    invars, outvars = chosen(needed, equation.invars), chosen(wanted, equation.outvars)
    return needed, equation.replace(invars=invars, outvars=outvars, params=params)


register(operation, _shapes, _inline, _kernel, _jvp, _transpose, _without_unused)
