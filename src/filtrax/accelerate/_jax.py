"""Everything that this package uses of JAX beyond its public interface.

A test lists these names, so that an upgrade of JAX has one place to look.
"""

from jax.core import ShapedArray, eval_jaxpr
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Primitive, subjaxprs
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

__all__ = [
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "ad",
    "batching",
    "eval_jaxpr",
    "mlir",
    "pe",
    "subjaxprs",
]
