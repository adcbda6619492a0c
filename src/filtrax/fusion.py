"""Functions of a few small arrays as single operations of JAX, which a GPU runs as single kernels.

A step of a filter is hundreds of operations on tiny matrices, and to launch one of them takes a GPU
longer than to do it. `fused` makes one operation of a function of one sequence. A batch of
sequences is one operation, too, and so is each of its derivatives.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.core import ShapedArray, eval_jaxpr
from jax.extend.core import Jaxpr, JaxprEqn, Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jaxtyping import Array

from filtrax.small_kernels import is_kernel, lowering, run_kernel
from filtrax.tile_rules import NoKernelError
from filtrax.tiles import dtype_of, shape_of

Function = TypeVar("Function", bound=Callable)


def for_gpu() -> bool:
    """Whether programs that are traced now are meant for a GPU."""
    return jax.default_backend() == "gpu"


def fused(function: Function) -> Function:
    """The function as one operation, where programs are traced for a GPU.

    Arguments and results are trees of arrays of one sequence; what the function closes over may be
    traced. A function that cannot be a kernel (see `run_kernel`) is compiled as it was written.
    """

    @functools.wraps(function)
    def one(*arguments):
        if not for_gpu():
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        results = []

        def flat(*leaves):
            found, result = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
            results.append(result)
            return found

        found = _bind(flat, leaves, [False] * len(leaves), None)
        return jax.tree.unflatten(results[0], found)

    return cast(Function, one)


def joined(function: Callable[[], Any]) -> Any:
    """What a function without arguments gives, with fused operations in a row made one.

    Two of them become one if the second needs a result of the first, and nothing that others make
    of it. So a filter may be written in parts that are kernels of their own only if they must.
    """
    if not for_gpu():
        return function()
    traced, shape = jax.make_jaxpr(function, return_shape=True)()
    jaxpr = traced.jaxpr.replace(eqns=_joined(traced.jaxpr.eqns, traced.jaxpr.outvars))
    found = eval_jaxpr(jaxpr, traced.consts)
    return jax.tree.unflatten(jax.tree.structure(shape), found)


operation = Primitive("filtrax_fused")
"""A function of one sequence, a `jaxpr` without constants, for `size` sequences or for one (None).

Operands that are `batched` have an axis for the sequences in front, as all results do."""


def _bind(
    function: Callable, operands: Sequence[Any], batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The operation of a function. What it closes over is an operand, what it leaves is none."""
    consts, whole = opened(function, single(operands, batched))
    jaxpr, used = pe.dce_jaxpr(whole, True)
    batched = tuple(chosen(used, [*[False] * len(consts), *batched]))
    operands = chosen(used, [*consts, *operands])
    return operation.bind(*operands, jaxpr=jaxpr, batched=batched, size=size)


def opened(function: Callable, arguments: Sequence[Any]) -> tuple[list[Array], Jaxpr]:
    """What a function closes over, and the function of that and of its arguments."""
    known = jax.make_jaxpr(function)(*arguments)
    consts = [jnp.asarray(each) for each in known.consts]
    whole = jax.make_jaxpr(lambda consts, operands: eval_jaxpr(known.jaxpr, consts, *operands))(
        consts, arguments
    )
    return consts, whole.jaxpr


def single(operands: Sequence[Any], batched: Sequence[bool]) -> list[jax.ShapeDtypeStruct]:
    """What operands are for one sequence."""
    return [
        jax.ShapeDtypeStruct(jnp.shape(each)[int(has_axis) :], jnp.result_type(each))
        for each, has_axis in zip(operands, batched, strict=True)
    ]


def chosen(flags: Sequence[bool], things: Sequence[Any]) -> list[Any]:
    """Things whose flags are set."""
    return [thing for flag, thing in zip(flags, things, strict=True) if flag]


def _shapes(*operands: Any, jaxpr: Jaxpr, batched: Any, size: int | None) -> list[ShapedArray]:
    del operands, batched
    front = () if size is None else (size,)
    return [ShapedArray((*front, *shape_of(v)), dtype_of(v)) for v in jaxpr.outvars]


def _inline(
    *operands: Array, jaxpr: Jaxpr, batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The function as it was written."""
    if size is None:
        return eval_jaxpr(jaxpr, (), *operands)
    axes = tuple(0 if each else None for each in batched)
    mapped = jax.vmap(lambda single: eval_jaxpr(jaxpr, (), *single), (axes,), axis_size=size)
    return mapped(operands)


def _kernel(
    *operands: Array, jaxpr: Jaxpr, batched: Sequence[bool], size: int | None
) -> list[Array]:
    """The function as one kernel, or as it was written."""
    try:
        found = run_kernel(jaxpr, batched, 1 if size is None else size, *operands)
    except NoKernelError:
        return _inline(*operands, jaxpr=jaxpr, batched=batched, size=size)
    return [each[0] for each in found] if size is None else found


def _batching_of(primitive: Primitive) -> Callable:
    """The rule of an operation for one more axis for sequences.

    Two such axes are one long axis; what has neither stays shared.
    """

    def rule(operands, axes, *, batched, size, **params):
        pairs = list(zip(operands, axes, strict=True))
        count = next(each.shape[axis] for each, axis in pairs if axis is not None)
        mapped = tuple(axis is not None for axis in axes)
        front = [each if axis is None else jnp.moveaxis(each, axis, 0) for each, axis in pairs]
        if size is None:
            found = primitive.bind(*front, batched=mapped, size=count, **params)
            return found, [0] * len(found)

        def joined(operand, has_new, has_old):
            if not (has_new or has_old):
                return operand
            rest = operand.shape[has_new + has_old :]
            axes = (count if has_new else 1, size if has_old else 1)
            wide = jnp.broadcast_to(operand.reshape(*axes, *rest), (count, size, *rest))
            return wide.reshape(count * size, *rest)

        together = map(joined, front, mapped, batched)
        either = tuple(new or old for new, old in zip(mapped, batched, strict=True))
        found = primitive.bind(*together, batched=either, size=count * size, **params)
        return [each.reshape(count, size, *each.shape[1:]) for each in found], [0] * len(found)

    return rule


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: Jaxpr,
    batched: Sequence[bool],
    size: int | None,
) -> tuple[list[Array], list[Any]]:
    """The value, and the change: an operation of its own, so that it is linear in its tangents.

    It computes what it needs of the value once more, which costs less than to keep it.
    """
    found = operation.bind(*primals, jaxpr=jaxpr, batched=batched, size=size)
    moving = [not isinstance(tangent, ad.Zero) for tangent in tangents]

    def change(*operands):
        values, changes = operands[: len(primals)], operands[len(primals) :]

        def function(*moved):
            some = iter(moved)
            return eval_jaxpr(
                jaxpr, (), *(next(some) if m else v for m, v in zip(moving, values, strict=True))
            )

        return jax.jvp(function, chosen(moving, values), list(changes))[1]

    operands = [*primals, *chosen(moving, tangents)]
    flags = [*batched, *chosen(moving, batched)]
    traced = jax.make_jaxpr(change)(*single(operands, flags)).jaxpr

    def changes(result):
        _, used = pe.dce_jaxpr(traced, [result is each for each in traced.outvars])
        return any(used[len(primals) :])

    changing = [changes(result) for result in traced.outvars]
    some = iter(_bind(lambda *all_of: chosen(changing, change(*all_of)), operands, flags, size))
    none = [ad.Zero(jax.typeof(each).to_tangent_aval()) for each in found]
    return found, [next(some) if c else zero for c, zero in zip(changing, none, strict=True)]


def _transpose(
    cotangents: Sequence[Any],
    *operands: Any,
    jaxpr: Jaxpr,
    batched: Sequence[bool],
    size: int | None,
) -> list[Any]:
    """The transposed function. What sequences share gets the sum of what each of them gives it."""
    linear = [ad.is_undefined_primal(operand) for operand in operands]
    known = [not each for each in linear]
    given = [not isinstance(each, ad.Zero) for each in cotangents]
    like_all = [like(v) for v in jaxpr.invars]

    def transposed(*arguments):
        values, changes = arguments[: sum(known)], arguments[sum(known) :]

        def function(*unknown):
            of_known, of_linear = iter(values), iter(unknown)
            everything = [next(of_linear if each else of_known) for each in linear]
            return chosen(given, eval_jaxpr(jaxpr, (), *everything))

        return jax.linear_transpose(function, *chosen(linear, like_all))(list(changes))

    arguments = [*chosen(known, operands), *chosen(given, cotangents)]
    flags = [*chosen(known, batched), *[size is not None] * sum(given)]
    found = iter(_bind(transposed, arguments, flags, size))

    def cotangent(has_axis):
        each = next(found)
        return each if has_axis or size is None else each.sum(0)

    return [
        cotangent(has_axis) if each else None
        for each, has_axis in zip(linear, batched, strict=True)
    ]


def _without_unused(used: list[bool], equation: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The equation with the results that are used, and with what they need."""
    if not any(used):
        return [False] * len(equation.invars), None
    jaxpr, needed = pe.dce_jaxpr(equation.params["jaxpr"], used)
    batched = tuple(chosen(needed, equation.params["batched"]))
    params = equation.params | {"jaxpr": jaxpr, "batched": batched}
    invars, outvars = chosen(needed, equation.invars), chosen(used, equation.outvars)
    return needed, equation.replace(invars=invars, outvars=outvars, params=params)


def _joined(equations: Sequence[JaxprEqn], results: Sequence[Any]) -> list[JaxprEqn]:
    """The equations, in an order in which operations that can be joined are."""
    places = [i for i, each in enumerate(equations) if each.primitive is operation]
    for i, j in itertools.combinations(places, 2):
        first, second = equations[i], equations[j]
        before: list[JaxprEqn] = []
        after: list[JaxprEqn] = []
        for each in equations[i + 1 : j]:
            (after if _needs(each, [first, *after]) else before).append(each)
        if _needs(second, after) or not _needs(second, [first]):
            continue
        rest = [*after, *equations[j + 1 :]]
        both = _joint(first, second, [*results, *(v for each in rest for v in each.invars)])
        if both is not None:
            return _joined([*equations[:i], *before, both, *rest], results)
    return list(equations)


def _needs(equation: JaxprEqn, others: Sequence[JaxprEqn]) -> bool:
    """Whether an equation uses a result of others."""
    return any(v is w for v in equation.invars for each in others for w in each.outvars)


def _joint(first: JaxprEqn, second: JaxprEqn, used: Sequence[Any]) -> JaxprEqn | None:
    """One operation for two, the second of which uses the first; None if it would be no kernel."""
    if first.params["size"] != second.params["size"]:
        return None
    inner = [next((i for i, w in enumerate(first.outvars) if v is w), None) for v in second.invars]
    outer = [i is None for i in inner]
    kept = [any(v is w for w in used) for v in first.outvars]

    def function(own, others):
        found, rest = eval_jaxpr(first.params["jaxpr"], (), *own), iter(others)
        given = [next(rest) if i is None else found[i] for i in inner]
        return [*chosen(kept, found), *eval_jaxpr(second.params["jaxpr"], (), *given)]

    operands = first.params["jaxpr"].invars, chosen(outer, second.params["jaxpr"].invars)
    jaxpr = jax.make_jaxpr(function)(*([like(v) for v in each] for each in operands)).jaxpr
    if not is_kernel(jaxpr):
        return None
    batched = (*first.params["batched"], *chosen(outer, second.params["batched"]))
    return second.replace(
        invars=[*first.invars, *chosen(outer, second.invars)],
        outvars=[*chosen(kept, first.outvars), *second.outvars],
        params=second.params | {"jaxpr": jaxpr, "batched": batched},
    )


def like(variable: Any) -> jax.ShapeDtypeStruct:
    """What a variable stands for."""
    return jax.ShapeDtypeStruct(shape_of(variable), dtype_of(variable))


def register(
    primitive: Primitive,
    shapes: Callable,
    inline: Callable,
    kernel: Callable,
    jvp: Callable,
    transpose: Callable,
    without_unused: Callable,
) -> None:
    """Tells JAX what an operation is: as it was written, and as a kernel of a GPU."""
    primitive.multiple_results = True
    primitive.def_impl(inline)
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, mlir.lower_fun(inline, multiple_results=True))
    mlir.register_lowering(primitive, lowering(kernel, inline, multiple_results=True), "cuda")
    batching.primitive_batchers[primitive] = _batching_of(primitive)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    pe.dce_rules[primitive] = without_unused


register(operation, _shapes, _inline, _kernel, _jvp, _transpose, _without_unused)
