"""A filter over a whole sequence as one operation of JAX, which a GPU runs as one kernel.

A loop of kernels launches several of them in each step, which takes longer than what they do. Where
a step can be one kernel, with the models in it, so can the loop: beliefs stay in registers from
step to step. Its derivatives are such loops again; the backward pass is one that runs in reverse.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from filtrax.accelerate import _triton, limits
from filtrax.accelerate._jax import (
    Jaxpr,
    JaxprEqn,
    Primitive,
    ShapedArray,
    ad,
    batching,
    eval_jaxpr,
    mlir,
    pe,
)
from filtrax.accelerate.hoisting import split
from filtrax.accelerate.kernels import Loop, all_equations, largest_result, run_kernel
from filtrax.accelerate.linearization import linearize
from filtrax.accelerate.operations import close, like, read, select
from filtrax.accelerate.rules import NoKernelError
from filtrax.accelerate.tiles import dtype_of, shape_of


def as_loop(step: Callable, first: Any, inputs: Any, *, keep: bool = True) -> Callable | None:
    """A loop as one operation, a function of `first` and `inputs`; None if it can be no kernel.

    With `keep` a backward pass may read more of a step than what was carried to it.
    """
    carry, carry_tree = jax.tree.flatten(first)
    leaves, input_tree = jax.tree.flatten(inputs)
    length = leaves[0].shape[0]
    trees = []

    def flat(*operands):
        state = jax.tree.unflatten(carry_tree, operands[: len(carry)])
        result = step(state, jax.tree.unflatten(input_tree, operands[len(carry) :]))
        results, tree = jax.tree.flatten(result)
        trees.append(tree)
        return results

    operands = [*carry, *leaves]
    shapes = _of_one_step(operands, [False] * len(operands), Loop(0, len(carry), length))
    consts, whole = close(flat, shapes)
    if whole.effects:  # a kernel neither prints nor calls back
        return None
    recursion = split(whole, len(consts), len(carry))
    shapes = list(map(like, (*recursion.of_consts, *recursion.carried, *recursion.of_inputs)))
    body = jax.make_jaxpr(recursion.step)(*shapes).jaxpr
    body, _ = pe.dce_jaxpr(body, [True] * len(body.outvars), instantiate=True)
    loop = Loop(len(recursion.of_consts), len(carry), length, keep=keep)
    if _refusal(body, loop) is not None:
        return None
    params = {"jaxpr": body, "loop": loop, "batched": (False,) * len(shapes), "size": None}

    def run(first, inputs):
        shared, stacked, outside = recursion.prepare(consts, jax.tree.leaves(inputs), length)
        results = operation.bind(*shared, *jax.tree.leaves(first), *stacked, **params)
        sources = {True: iter(results), False: iter(outside)}
        return jax.tree.unflatten(trees[0], [next(sources[flag]) for flag in recursion.inside])

    return run


def _refusal(jaxpr: Jaxpr, loop: Loop) -> str | None:
    """The reason why a loop can be no kernel, if there is one."""
    shared, before, inputs = loop.parts(jaxpr.invars)
    after = jaxpr.outvars[: loop.carried]
    if any(dtype_of(v) != jnp.float32 for v in (*before, *after)):
        return "a belief has other types than float32"
    if list(map(shape_of, before)) != list(map(shape_of, after)):
        return "a belief changes its shape"
    if sum(v.aval.size for v in shared) > limits.MOST_PARAMETERS:
        return f"its models have more than {limits.MOST_PARAMETERS} parameters"
    if sum(v.aval.size for v in inputs) > limits.MOST_INPUTS:
        return f"a step reads more than {limits.MOST_INPUTS} numbers"
    if len(all_equations(jaxpr)) > limits.MOST_OPERATIONS:
        return f"a step has more than {limits.MOST_OPERATIONS} operations"
    try:
        largest_result(jaxpr, loop)
    except NoKernelError as error:
        return str(error)
    return None


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
    """Binds a function as one loop. Closed-over arrays become shared operands; unused ones go."""
    consts, whole = close(function, _of_one_step(operands, batched, loop))
    shared = len(consts) + loop.shared
    carried = [shared <= i < shared + loop.carried for i in range(len(whole.invars))]
    jaxpr, used = pe.dce_jaxpr(whole, [True] * len(whole.outvars), carried)
    return operation.bind(
        *select(used, [*consts, *operands]),
        jaxpr=jaxpr,
        loop=loop._replace(shared=sum(used[:shared])),
        batched=tuple(select(used, [*[False] * len(consts), *batched])),
        size=size,
    )


def _of_one_step(
    operands: Sequence[Any], batched: Sequence[bool], loop: Loop
) -> list[jax.ShapeDtypeStruct]:
    """Shapes and types of operands for one sequence in one step."""
    once = loop.shared + loop.carried
    return [
        jax.ShapeDtypeStruct(jnp.shape(operand)[flag + (i >= once) :], jnp.result_type(operand))
        for i, (operand, flag) in enumerate(zip(operands, batched, strict=True))
    ]


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

    def of_one_sequence(operands):
        shared, first, inputs = loop.parts(operands)

        def step(carry, inputs):
            results = eval_jaxpr(jaxpr, (), *shared, *carry, *inputs)
            return results[: loop.carried], results[loop.carried :]

        last, others = lax.scan(step, first, inputs, loop.length, loop.reverse)
        return [*last, *others]

    if size is None:
        return of_one_sequence(operands)
    axes = tuple(0 if flag else None for flag in batched)
    return jax.vmap(of_one_sequence, (axes,), axis_size=size)(operands)


def _kernel(
    *operands: Array, jaxpr: Jaxpr, loop: Loop, batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The loop as one kernel."""
    results = run_kernel(jaxpr, batched, 1 if size is None else size, *operands, loop=loop)
    return [result[0] for result in results] if size is None else results


def _lower(context: Any, *operands: Any, **params: Any) -> Any:
    """Lowers to one kernel or, with a warning that says why, to the loop as it was written."""
    devices = getattr(context.module_context.axis_context, "num_devices", 1)
    try:
        if devices > 1:
            raise NoKernelError("the compiler divides the program among several devices")
        with _triton.lowering():
            return mlir.lower_fun(_kernel, multiple_results=True)(context, *operands, **params)
    except Exception as error:
        _triton.warn(str(error))
    return mlir.lower_fun(_inline, multiple_results=True)(context, *operands, **params)


def _batch(
    operands: Sequence[Any],
    axes: Sequence[int | None],
    *,
    batched: Sequence[bool],
    size: int | None,
    **params: Any,
) -> tuple[list[Array], list[int]]:
    """Two axes of sequences are one long axis; an operand without either stays shared."""
    pairs = list(zip(operands, axes, strict=True))
    count = next(operand.shape[axis] for operand, axis in pairs if axis is not None)
    mapped = tuple(axis is not None for axis in axes)
    front = [o if axis is None else jnp.moveaxis(o, axis, 0) for o, axis in pairs]
    if size is None:
        results = operation.bind(*front, batched=mapped, size=count, **params)
        return results, [0] * len(results)

    def merge(operand, has_new, has_old):
        if not (has_new or has_old):
            return operand
        shape = operand.shape[has_new + has_old :]
        sizes = (count if has_new else 1, size if has_old else 1)
        wide = jnp.broadcast_to(operand.reshape(*sizes, *shape), (count, size, *shape))
        return wide.reshape(count * size, *shape)

    merged = map(merge, front, mapped, batched)
    either = tuple(new or old for new, old in zip(mapped, batched, strict=True))
    results = operation.bind(*merged, batched=either, size=count * size, **params)
    return [r.reshape(count, size, *r.shape[1:]) for r in results], [0] * len(results)


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: Jaxpr,
    loop: Loop,
    batched: Sequence[bool],
    size: int | None,
) -> tuple[list[Array], list[Any]]:
    """The value, and the tangent: a loop of its own, so that it is linear in its tangents.

    It computes each step again from what was carried to it, and from what else the loop of the
    value keeps.
    """
    shared, _, inputs = loop.parts(primals)
    d_shared, d_first, d_inputs = loop.parts(tangents)
    moving_shared, moving_inputs = (
        [not isinstance(tangent, ad.Zero) for tangent in group] for group in (d_shared, d_inputs)
    )
    both = linearize(jaxpr, [*moving_shared, *[True] * loop.carried, *moving_inputs])
    residuals = both.residuals() if loop.keep else []

    def value(*operands):
        values = both.follow(both.primals, operands)
        return [*read(values, [*both.results, *residuals]), *loop.parts(operands)[1]]

    outputs = iter(_bind(value, primals, batched, loop, size))
    results, kept, before = (
        list(itertools.islice(outputs, len(group))) for group in (jaxpr.outvars, residuals, d_first)
    )

    flags_shared, flags_first, flags_inputs = loop.parts(batched)
    whole = [size is not None]
    groups = [  # operands, whether they have an axis for sequences, whether they are tangents
        (shared, flags_shared, False),
        (select(moving_shared, d_shared), select(moving_shared, flags_shared), True),
        ([ad.instantiate_zeros(tangent) for tangent in d_first], flags_first, True),
        (kept, whole * len(kept), False),
        (before, whole * len(before), False),
        (inputs, flags_inputs, False),
        (select(moving_inputs, d_inputs), select(moving_inputs, flags_inputs), True),
    ]
    variables = [*residuals, *both.primals, *both.tangents]

    def tangent(*operands):
        rest = iter(operands)
        shared, d_shared, d_carry, kept, carry, inputs, d_inputs = (
            [next(rest) for _ in group] for group, *_ in groups
        )
        values = [*kept, *shared, *carry, *inputs, *d_shared, *d_carry, *d_inputs]
        return read(both.follow(variables, values), both.changes)

    operands, flags = ([item for group in groups for item in group[i]] for i in (0, 1))
    inner = loop._replace(shared=len(shared) + sum(moving_shared))
    traced = jax.make_jaxpr(tangent)(*_of_one_step(operands, flags, inner)).jaxpr
    linear = [is_tangent for group, _, is_tangent in groups for _ in group]

    def changes(i):
        wanted = [j == i for j in range(len(traced.outvars))]
        return i < loop.carried or any(select(linear, pe.dce_jaxpr(traced, wanted)[1]))

    changing = [changes(i) for i in range(len(results))]
    function = lambda *operands: select(changing, tangent(*operands))  # noqa: E731
    rest = iter(_bind(function, operands, flags, inner, size))
    zeros = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    return results, [next(rest) if c else zero for c, zero in zip(changing, zeros, strict=True)]


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
    carried is linear: an operand of these that is no unknown is zero.
    """
    unknown = [ad.is_undefined_primal(operand) for operand in operands]
    shared, _, inputs = loop.parts(unknown)
    linear = [*shared, *[True] * loop.carried, *inputs]
    fixed = [not flag for flag in linear]
    given = [not isinstance(cotangent, ad.Zero) for cotangent in cotangents[loop.carried :]]
    shapes = list(map(like, jaxpr.invars))
    sizes = sum(shared), loop.carried, sum(inputs)
    fixed_shared, fixed_inputs = len(shared) - sizes[0], len(inputs) - sizes[2]
    inner = Loop(fixed_shared, loop.carried + sizes[0], loop.length, not loop.reverse)

    def transposed(*arguments):
        of_shared, carried, of_steps = inner.parts(arguments)
        values = [*of_shared, *of_steps[:fixed_inputs]]

        def function(*unknowns):
            rest = {True: iter(unknowns), False: iter(values)}
            results = eval_jaxpr(jaxpr, (), *(next(rest[flag]) for flag in linear))
            return [*results[: loop.carried], *select(given, results[loop.carried :])]

        back = jax.linear_transpose(function, *select(linear, shapes))
        results = back([*carried[: loop.carried], *of_steps[fixed_inputs:]])
        to_shared, to_carried, to_inputs = Loop(*sizes[:2], loop.length).parts(results)
        sums = map(jnp.add, carried[loop.carried :], to_shared)
        return [*to_carried, *sums, *to_inputs]

    def instantiate(cotangent, variable):
        zero = isinstance(cotangent, ad.Zero)
        return jnp.zeros(shape_of(variable), dtype_of(variable)) if zero else cotangent

    values, flags = select(fixed, operands), select(fixed, batched)
    last = cotangents[: loop.carried]
    totals = [jnp.zeros(v.shape, v.dtype) for v in select(shared, shapes[: loop.shared])]
    has_axis = size is not None
    arguments = [
        *values[:fixed_shared],
        *map(instantiate, last, jaxpr.outvars[: loop.carried]),
        *totals,
        *values[fixed_shared:],
        *select(given, cotangents[loop.carried :]),
    ]
    argument_flags = [
        *flags[:fixed_shared],
        *(has_axis and not isinstance(cotangent, ad.Zero) for cotangent in last),
        *[False] * len(totals),
        *flags[fixed_shared:],
        *[has_axis] * sum(given),
    ]
    results = _bind(transposed, arguments, argument_flags, inner, size)
    outer = Loop(loop.carried, sizes[0], loop.length)
    to_carried, to_shared, to_inputs = outer.parts(results)
    rest = iter([*to_shared, *to_carried, *to_inputs])

    def cotangent(is_unknown, is_linear, has_own_axis):
        result = next(rest) if is_linear else None
        if result is None or not is_unknown:
            return None
        return result if has_own_axis or size is None else result.sum(0)

    return list(map(cotangent, unknown, linear, batched))


def _eliminate(used: list[bool], equation: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The equation with the results that are used, and with the operands that these need."""
    if not any(used):
        return [False] * len(equation.invars), None
    loop = equation.params["loop"]
    wanted = [True] * loop.carried + used[loop.carried :]
    count = len(equation.invars)
    carried = [loop.shared <= i < loop.shared + loop.carried for i in range(count)]
    jaxpr, needed = pe.dce_jaxpr(equation.params["jaxpr"], wanted, carried)
    params = equation.params | {
        "jaxpr": jaxpr,
        "batched": tuple(select(needed, equation.params["batched"])),
        "loop": loop._replace(shared=sum(needed[: loop.shared])),
    }
    invars, outvars = select(needed, equation.invars), select(wanted, equation.outvars)
    return needed, equation.replace(invars=invars, outvars=outvars, params=params)


operation.multiple_results = True
operation.def_impl(_inline)
operation.def_abstract_eval(_shapes)
mlir.register_lowering(operation, mlir.lower_fun(_inline, multiple_results=True))
mlir.register_lowering(operation, _lower, _triton.PLATFORM)
batching.primitive_batchers[operation] = _batch
ad.primitive_jvps[operation] = _jvp
ad.primitive_transposes[operation] = _transpose
pe.dce_rules[operation] = _eliminate
