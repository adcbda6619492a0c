"""Everything that the algebra uses of JAX beyond its public interface.

A test lists these names, so that an upgrade of JAX has one place to look.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def define(
    name: str,
    shapes: Callable[..., Sequence[tuple[int, ...]]],
    program: Callable[..., Any],
    derivative: Callable[..., Any],
) -> Primitive:
    """Makes a primitive for one matrix, or for many with leading axes.

    **Arguments:**

    - `shapes`: the shapes of its results, from the operands.
    - `program`: its results, from operands with any number of leading axes; a list.
    - `derivative`: `derivative(primals, tangents) -> (results, tangents of the results)`. None
      stands for a tangent that is zero.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(jax.jit(primitive.bind))
    primitive.def_abstract_eval(
        lambda *operands, **params: [
            ShapedArray(shape, operands[0].dtype) for shape in shapes(*operands, **params)
        ]
    )
    lower(primitive, program)

    def batch(operands, axes, **params):
        pairs = list(zip(operands, axes, strict=True))
        size = next(array.shape[axis] for array, axis in pairs if axis is not None)
        moved = (batching.bdim_at_front(*pair, size) for pair in pairs)
        results = primitive.bind(*moved, **params)
        return results, [0] * len(results)

    def jvp(primals, tangents, **params):
        known = [None if isinstance(tangent, ad.Zero) else tangent for tangent in tangents]
        results, moved = derivative(primals, known, **params)
        zeros = (ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results)
        pairs = zip(zeros, moved, strict=True)
        return results, [zero if tangent is None else tangent for zero, tangent in pairs]

    batching.primitive_batchers[primitive] = batch
    ad.primitive_jvps[primitive] = jvp
    return primitive


def lower(primitive: Primitive, program: Callable[..., Any], platform: str | None = None) -> None:
    """Chooses the program of a primitive, for all platforms or for one of them."""
    mlir.register_lowering(primitive, mlir.lower_fun(program, multiple_results=True), platform)


def bilinear(primitive: Primitive, left: Callable[..., Any], right: Callable[..., Any]) -> None:
    """Lets a primitive be transposed by either of two operands, as a product of matrices can."""

    def transpose(cotangents, a, b, **params):
        (cotangent,) = cotangents
        if isinstance(cotangent, ad.Zero):
            return None, None
        if ad.is_undefined_primal(a):
            return left(cotangent, b), None
        return None, right(cotangent, a)

    ad.primitive_transposes[primitive] = transpose
