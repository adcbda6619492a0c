"""Operations on small arrays whose programs are chosen when they are lowered for a device.

What is fastest depends on the device and on how many matrices there are at once, neither of which
is known where a function of one matrix is written. So the product, the Cholesky factor, the
inverse of a triangular matrix, the square root, the diagonal and the logarithm of a sum are
primitives of JAX, here with leading axes for batches.

A library call costs a GPU one launch and hardly any work for a 4 x 4 matrix, and a CPU one call
for each matrix of a batch, while the same algorithm written out is fused with its
surroundings and vectorized over the batch. Large matrices are left to libraries. Functions that
are kernels as a whole (`filtrax.fusion`) have rules for them (`filtrax.matrix_rules`).
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array

from filtrax import matrix_rules
from filtrax.small_kernels import is_kernel, lowering, run_kernel
from filtrax.tile_rules import RULES

HAS_DEADLOCKS = jaxlib.version.__version_info__ < (0, 11, 2)
"""Whether batches of matrices must not be given to a library on a CPU (see `_in_turn`)."""

LARGEST_UNROLLED = 6
"""Matrices up to this size are unrolled into scalars on a GPU.

Larger ones would still run faster, but compile for longer than they are worth in most programs:
`benchmarks/small_matrices.py` measures both.
"""

LARGEST_SUMMED = 32
"""Products all of whose sizes are at most this are fused sums on a GPU, if they are not unrolled: a
sum is fused with what comes before and after it, a call is not. Factors and inverses of matrices up
to this size are kernels there."""

LARGEST_UNROLLED_ON_CPU = 4
"""The same on a CPU, where larger ones are slower as well: a product that is fused with the one
before it computes that one again for each of its columns."""

LARGEST_TINY_ON_CPU = 7
"""Products all of whose sizes are at most this are unrolled on a CPU: the program that XLA has for
a batch of them is slower than that for matrices of size 8."""

FEW_ON_CPU = 4096
"""Products with at most that many multiplications in all are fused sums on a CPU, not calls; a
single one is never unrolled then."""

LARGEST_VECTORIZED_ON_CPU = 8
"""Batches of matrices up to this size are factorized and inverted without a library on a CPU.

At 10 they would still run faster, but filters with several factors compile for much longer.
The library takes one matrix after the other.
"""


def _primitive(
    name: str,
    shape: Callable,
    on_cpu: Callable,
    on_gpu: Callable,
    in_kernel: Callable | None = None,
    alone: Callable | None = None,
) -> Primitive:
    """An operation with its programs; `alone` is that of a GPU in which it is a kernel."""
    primitive = Primitive(f"filtrax_{name}")
    primitive.def_impl(jax.jit(primitive.bind))
    primitive.def_abstract_eval(lambda *operands: ShapedArray(shape(*operands), operands[0].dtype))
    mlir.register_lowering(primitive, mlir.lower_fun(on_gpu, multiple_results=False), "rocm")
    with_kernels = lowering(alone or on_gpu, on_gpu, multiple_results=False)
    mlir.register_lowering(primitive, with_kernels, "cuda")
    mlir.register_lowering(primitive, mlir.lower_fun(on_cpu, multiple_results=False))
    if in_kernel is not None:
        RULES[primitive.name] = in_kernel

    def batch(operands, axes):
        pairs = list(zip(operands, axes, strict=True))
        size = next(array.shape[axis] for array, axis in pairs if axis is not None)
        return primitive.bind(*(batching.bdim_at_front(*pair, size) for pair in pairs)), 0

    batching.primitive_batchers[primitive] = batch
    return primitive


def _swap(matrices: Array) -> Array:
    return jnp.swapaxes(matrices, -1, -2)


def _product_on_cpu(left: Array, right: Array) -> Array:
    *count, rows, inner = left.shape
    columns = right.shape[-1]
    tiny = max(rows, inner, columns) <= LARGEST_TINY_ON_CPU or inner <= LARGEST_UNROLLED_ON_CPU
    few = math.prod(count) * rows * inner * columns <= FEW_ON_CPU
    if few and (math.prod(count) == 1 or not tiny):
        return summed_product(left, right)
    return unrolled_product(left, right) if tiny else library_product(left, right)


def _product_on_gpu(left: Array, right: Array) -> Array:
    if left.shape[-1] <= LARGEST_UNROLLED:
        return unrolled_product(left, right)
    small = max(*left.shape[-2:], right.shape[-1]) <= LARGEST_SUMMED
    return summed_product(left, right) if small else library_product(left, right)


def _cholesky_on_cpu(matrices: Array) -> Array:
    own = matrices.shape[-1] <= LARGEST_UNROLLED_ON_CPU or _vectorized(matrices)
    return blocked_cholesky(matrices) if own else _in_turn(library_cholesky, matrices)


def _cholesky_on_gpu(matrices: Array) -> Array:
    unrolled = matrices.shape[-1] <= LARGEST_UNROLLED
    return unrolled_cholesky(matrices) if unrolled else library_cholesky(matrices)


def _cholesky_alone(matrices: Array) -> Array:
    return _as_kernel(cholesky, _cholesky_on_gpu, matrices)


def _inverse_lower_on_cpu(factors: Array) -> Array:
    own = factors.shape[-1] <= LARGEST_UNROLLED_ON_CPU or _vectorized(factors)
    return unrolled_inverse_lower(factors) if own else _in_turn(library_inverse_lower, factors)


def _inverse_lower_on_gpu(factors: Array) -> Array:
    unrolled = factors.shape[-1] <= LARGEST_UNROLLED
    return unrolled_inverse_lower(factors) if unrolled else library_inverse_lower(factors)


def _inverse_lower_alone(factors: Array) -> Array:
    return _as_kernel(inverse_lower, _inverse_lower_on_gpu, factors)


def _square_root_on_cpu(matrices: Array) -> Array:
    """The Cholesky factor; only if one of the matrices is singular is there more to do.

    What comes from a branch is stored. A choice between two factors would be made again by every
    product that reads the result, for each of its terms.
    """
    factor = cholesky.bind(matrices)
    last = factor[..., -1, -1]  # a pivot that fails spoils all that come after it
    return jax.lax.cond(jnp.isfinite(last).all(), lambda: factor, lambda: any_square_root(matrices))


def _as_kernel(primitive: Primitive, otherwise: Callable, matrices: Array) -> Array:
    """One kernel for all matrices, where a GPU would call a library for matrices of their size."""
    *_, rows, columns = matrices.shape
    one = jax.make_jaxpr(primitive.bind)(jax.ShapeDtypeStruct((rows, columns), matrices.dtype))
    flat = matrices.reshape(-1, rows, columns)
    if LARGEST_UNROLLED < rows <= LARGEST_SUMMED and is_kernel(one.jaxpr):
        [found] = run_kernel(one.jaxpr, [True], len(flat), flat)
        return found.reshape(matrices.shape)
    return otherwise(matrices)


def _vectorized(matrices: Array) -> bool:
    """Whether there are many matrices, and they are not too large; one has a partner at times."""
    *count, size = matrices.shape[:-1]
    return math.prod(count) > 2 and size <= LARGEST_VECTORIZED_ON_CPU


def _in_turn(function: Callable[[Array], Array], matrices: Array) -> Array:
    """A library's function of single matrices, one after the other where batches may hang.

    Given a batch on a CPU, jaxlib before 0.11.2 deals it out to a pool of threads and waits for
    them in one of the threads of that pool (`ParallelBatchMap` in its lapack_kernels.cc): as many
    such calls at the same time as there are threads never return.
    """
    *count, rows, columns = matrices.shape
    if not HAS_DEADLOCKS or math.prod(count) == 1:
        return function(matrices)
    found = jax.lax.map(function, matrices.reshape(-1, rows, columns))
    return found.reshape(matrices.shape)


def library_product(left: Array, right: Array) -> Array:
    """A B in full precision."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def library_cholesky(matrices: Array) -> Array:
    """L of a symmetric A = L Lᵀ."""
    return jnp.linalg.cholesky(matrices, symmetrize_input=False)


def library_inverse_lower(factors: Array) -> Array:
    """L⁻¹."""
    identities = jnp.broadcast_to(jnp.eye(factors.shape[-1], dtype=factors.dtype), factors.shape)
    return solve_triangular(factors, identities, lower=True)


def library_diagonal(matrices: Array) -> Array:
    """Aᵢᵢ."""
    one = jnp.diagonal
    for _ in matrices.shape[:-2]:
        one = jax.vmap(one)
    return one(matrices)


def library_diagonal_matrix(vectors: Array) -> Array:
    """diag(a): the transpose of the function that takes a diagonal."""
    like = jax.ShapeDtypeStruct((*vectors.shape, vectors.shape[-1]), vectors.dtype)
    return jax.linear_transpose(library_diagonal, like)(vectors)[0]


def unrolled_product(left: Array, right: Array) -> Array:
    """Σₖ aₖ bₖᵀ, with the columns of one matrix and the rows of the other."""
    terms = [left[..., :, k, None] * right[..., None, k, :] for k in range(left.shape[-1])]
    return functools.reduce(jnp.add, terms)


def summed_product(left: Array, right: Array) -> Array:
    """A B as the sum of all products of entries, which is one kernel.

    On a CPU, columns of an unrolled product can become kernels of their own, which cost more than
    their work where that is little.
    """
    return (left[..., :, :, None] * right[..., None, :, :]).sum(-2)


def unrolled_cholesky(matrices: Array) -> Array:
    """L, entry by entry."""
    size = matrices.shape[-1]
    factor = [[jnp.zeros_like(matrices[..., 0, 0])] * size for _ in range(size)]
    for j in range(size):
        rests = [matrices[..., i, j] for i in range(j, size)]
        for k in range(j):
            rests = [r - factor[i][k] * factor[j][k] for i, r in enumerate(rests, start=j)]
        factor[j][j] = jnp.sqrt(rests[0])
        scale = 1 / factor[j][j]  # a division is a step of its own in a program, a product is not
        for i in range(j + 1, size):
            factor[i][j] = rests[i - j] * scale
    return jnp.stack([jnp.stack(row, -1) for row in factor], -2)


def blocked_cholesky(matrices: Array, block: int = 4) -> Array:
    """L: the factor of the first rows, then that of what they leave of the others.

    L₂₁ = A₂₁ L₁₁⁻ᵀ,   L₂₂ L₂₂ᵀ = A₂₂ - L₂₁ L₂₁ᵀ
    """
    if matrices.shape[-1] <= block:
        return unrolled_cholesky(matrices)
    first = unrolled_cholesky(matrices[..., :block, :block])
    below = matrices[..., block:, :block]
    left = unrolled_product(below, _swap(unrolled_inverse_lower(first)))
    rest = matrices[..., block:, block:] - unrolled_product(left, _swap(left))
    upper = jnp.concatenate([first, jnp.zeros_like(_swap(left))], -1)
    return jnp.concatenate([upper, jnp.concatenate([left, blocked_cholesky(rest)], -1)], -2)


def any_square_root(matrices: Array) -> Array:
    """L of a singular A = L Lᵀ, too: the factor of A or, where it has none, that with roundings.

    `linalg.square_root` says which. A component without any variance has a 1 in its place until
    the end.
    """
    size, epsilon = matrices.shape[-1], jnp.finfo(matrices.dtype).eps
    fixed = _fixed(matrices)
    regular = jnp.where(fixed, 1.0, matrices)
    rounded = (1 + size * (size + 1) * epsilon) * regular
    rounded = jnp.where(_on_diagonal(matrices), rounded, regular)
    plain, restored = cholesky.bind(jnp.stack([regular, rounded]))
    # A pivot that fails spoils all that come after it, so the last one tells.
    factor = jnp.where(jnp.isfinite(plain[..., -1:, -1:]), plain, restored)
    return jnp.where(fixed, 0.0, factor)


def _on_diagonal(matrices: Array) -> Array:
    return jnp.broadcast_to(jnp.eye(matrices.shape[-1], dtype=bool), matrices.shape)


def _fixed(matrices: Array) -> Array:
    """Where the diagonal is zero."""
    return _on_diagonal(matrices) & (matrices == 0)


def unrolled_inverse_lower(factors: Array) -> Array:
    """L⁻¹: a row is that of the identity less Lᵢⱼ times the rows before it, divided by Lᵢᵢ."""
    identity = jnp.eye(factors.shape[-1], dtype=factors.dtype)
    scales = 1 / jnp.diagonal(factors, axis1=-2, axis2=-1)
    rows: list[Array] = []
    for i in range(factors.shape[-1]):
        rest = jnp.broadcast_to(identity[i], factors.shape[:-1])
        for j, row in enumerate(rows):
            rest = rest - factors[..., i, j, None] * row
        rows.append(rest * scales[..., i, None])
    return jnp.stack(rows, -2)


def log_sum_of_pairs(logarithms: Array) -> Array:
    """ln Σ exp(aᵢ) in one launch: parts of a sum are pairs of a maximum m and Σ exp(aᵢ - m).

    (Milakov & Gimelshein 2018, Online normalizer calculation for softmax)
    """

    def join(a, b):
        top = jnp.maximum(a[0], b[0])
        # The difference of two infinities is not a number.
        shares = [jnp.where(m == top, s, s * jnp.exp(m - top)) for m, s in (a, b)]
        return top, shares[0] + shares[1]

    none = jnp.full_like(logarithms, -jnp.inf, shape=()), jnp.zeros_like(logarithms, shape=())
    pairs = (logarithms, jnp.ones_like(logarithms))
    top, total = jax.lax.reduce(pairs, none, join, (logarithms.ndim - 1,))
    return top + jnp.log(total)


product = _primitive(
    "product",
    lambda left, right: (*left.shape[:-1], right.shape[-1]),
    _product_on_cpu,
    _product_on_gpu,
    matrix_rules.product,
)
"""A B."""

cholesky = _primitive(
    "cholesky",
    lambda matrix: matrix.shape,
    _cholesky_on_cpu,
    _cholesky_on_gpu,
    matrix_rules.cholesky,
    _cholesky_alone,
)
"""The lower triangular L with L Lᵀ = A for a symmetric A."""

inverse_lower = _primitive(
    "inverse_lower",
    lambda factor: factor.shape,
    _inverse_lower_on_cpu,
    _inverse_lower_on_gpu,
    matrix_rules.inverse_lower,
    _inverse_lower_alone,
)
"""L⁻¹ of a lower triangular L."""

square_root = _primitive(
    "square_root",
    lambda matrix: matrix.shape,
    any_square_root,
    any_square_root,
    matrix_rules.square_root,
)
"""A lower triangular L with L Lᵀ = A for a symmetric, positive semi-definite A."""

# Several devices would have to agree on a branch.
_root_lowering = lowering(_square_root_on_cpu, any_square_root, multiple_results=False)
mlir.register_lowering(square_root, _root_lowering, "cpu")

log_sum = _primitive(
    "log_sum",
    lambda logarithms: logarithms.shape[:-1],
    functools.partial(jax.nn.logsumexp, axis=-1),
    log_sum_of_pairs,
)
"""ln Σ exp(aᵢ)."""


diagonal = _primitive(
    "diagonal",
    lambda matrix: matrix.shape[:-1],
    library_diagonal,
    library_diagonal,
    matrix_rules.diagonal,
)
"""The entries Aᵢᵢ of a square A."""

diagonal_matrix = _primitive(
    "diagonal_matrix",
    lambda vector: (*vector.shape, vector.shape[-1]),
    library_diagonal_matrix,
    library_diagonal_matrix,
    matrix_rules.diagonal_matrix,
)
"""The matrix that has a vector as its diagonal, and zeros elsewhere."""


def relative_change(factor: Array, change: Array) -> Array:
    """L⁻¹ dL = Φ(L⁻¹ dA L⁻ᵀ): Φ keeps the lower triangle and half of the diagonal.

    (Murray 2016, Differentiation of the Cholesky decomposition)
    """
    inverse, size = inverse_lower.bind(factor), factor.shape[-1]
    kept = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)
    change = product.bind(product.bind(inverse, change), _swap(inverse))
    return jnp.broadcast_to(jnp.asarray(kept, factor.dtype), factor.shape) * change


def _cholesky_change(change: Array, factor: Array, matrix: Array) -> Array:
    return product.bind(factor, relative_change(factor, change))


def _square_root_change(change: Array, root: Array, matrix: Array) -> Array:
    """As that of the Cholesky factor, which has a 1 in the place of no variance."""
    relative = relative_change(jnp.where(_fixed(matrix), 1.0, root), change)
    # Transposed, as sigma points use it: so what comes back from them is the left of a product,
    # of which a CPU computes less again than of the right.
    return _swap(product.bind(_swap(relative), _swap(root)))


def _inverse_lower_change(change: Array, inverse: Array, factor: Array) -> Array:
    """dL⁻¹ = -L⁻¹ dL L⁻¹."""
    return -product.bind(product.bind(inverse, jnp.tril(change)), inverse)


def _log_sum_change(change: Array, total: Array, logarithms: Array) -> Array:
    return (jnp.exp(logarithms - total[..., None]) * change).sum(-1)


# Rules of the operations themselves: that of a `custom_jvp` around them is lost once a loop has
# been differentiated, and a second derivative would not find it.
ad.defjvp2(cholesky, _cholesky_change)
ad.defjvp2(square_root, _square_root_change)
ad.defjvp2(inverse_lower, _inverse_lower_change)
ad.defjvp2(log_sum, _log_sum_change)
ad.deflinear2(diagonal, lambda change, _: [diagonal_matrix.bind(change)])
ad.deflinear2(diagonal_matrix, lambda change, _: [diagonal.bind(change)])
ad.defbilinear(
    product,
    lambda change, left, right: product.bind(change, _swap(right)),
    lambda change, left, right: product.bind(_swap(left), change),
)
