"""Programs for many small matrices, chosen when a primitive is lowered for a device.

A library call on a 4 x 4 matrix costs a CPU more than its arithmetic, and is made for one matrix
of a batch after the other; the same algorithm written out is vectorized over the batch. What is
fastest depends on the device and on the number of matrices, which a function of one matrix does
not know. `benchmarks/small_matrices.py` measures the limits below.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlib.version
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array

HAS_DEADLOCKS = jaxlib.version.__version_info__ < (0, 11, 2)
"""True if batches of matrices must not be given to LAPACK on a CPU (see `_in_turn`)."""

LARGEST_UNROLLED = 6
"""Matrices up to this size are unrolled into scalars on a GPU; larger ones compile too long."""

LARGEST_SUMMED = 32
"""Products up to this size are fused sums on a GPU, if they are not unrolled."""

LARGEST_UNROLLED_ON_CPU = 4
"""The same on a CPU, where fusion computes a product again for each column of the next one."""

LARGEST_TINY_ON_CPU = 7
"""Products up to this size are unrolled on a CPU: XLA's batched product is slower for them."""

FEW_ON_CPU = 4096
"""Products with at most that many multiplications in all are fused sums on a CPU, not calls."""

LARGEST_VECTORIZED_ON_CPU = 8
"""Batches of matrices up to this size are factorized and inverted without LAPACK on a CPU."""

MOST_UNROLLED_ROWS = 24
"""Rows up to this number are orthogonalized in code that is written out; more compile too long."""


def swap(matrices: Array) -> Array:
    """Transposed matrices."""
    return jnp.swapaxes(matrices, -1, -2)


def product_on_cpu(left: Array, right: Array) -> list[Array]:
    """A B."""
    *count, rows, inner = left.shape
    columns = right.shape[-1]
    tiny = max(rows, inner, columns) <= LARGEST_TINY_ON_CPU or inner <= LARGEST_UNROLLED_ON_CPU
    few = math.prod(count) * rows * inner * columns <= FEW_ON_CPU
    if few and (math.prod(count) == 1 or not tiny):
        return [summed_product(left, right)]
    return [unrolled_product(left, right) if tiny else library_product(left, right)]


def product_on_gpu(left: Array, right: Array) -> list[Array]:
    """A B."""
    if left.shape[-1] <= LARGEST_UNROLLED:
        return [unrolled_product(left, right)]
    small = max(*left.shape[-2:], right.shape[-1]) <= LARGEST_SUMMED
    return [summed_product(left, right) if small else library_product(left, right)]


def library_product(left: Array, right: Array) -> Array:
    """A B by one call, in full precision."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


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


def orthogonalize_on_cpu(rows: Array) -> tuple[Array, Array]:
    """`orthogonalize` in products of a matrix and a vector, which a CPU has a fast program for."""
    *batch, count, length = rows.shape
    rest = rows.reshape(-1, count, length)
    if math.prod(batch) == 1 and count > LARGEST_VECTORIZED_ON_CPU:
        lower, basis = (leaf[None] for leaf in _library_orthogonalize(rest[0]))
    elif count > MOST_UNROLLED_ROWS:
        lower, basis = _gram_schmidt_by_products_loop(rest)
    else:
        lower, basis = _gram_schmidt_by_products(rest)
    return lower.reshape(*batch, count, count), basis.reshape(rows.shape)


def _library_orthogonalize(rows: Array) -> tuple[Array, Array]:
    """`orthogonalize` of one matrix by Householder reflections, in calls of LAPACK.

    A reflection would give a zero row a direction in which those after it have a part. So each zero
    row is one in a column of its own, whose direction is left out of the result.
    """
    zero = (rows == 0).all(1)
    widened = jnp.concatenate([rows.T, jnp.diag(zero).astype(rows.dtype)])
    basis, upper = jnp.linalg.qr(widened)
    diagonal = jnp.diagonal(upper)
    signs = jnp.where(zero, 0.0, jnp.where(diagonal < 0, -1.0, 1.0)).astype(rows.dtype)
    return (upper * signs[:, None]).T, (basis[: rows.shape[1]] * signs[None]).T


def _gram_schmidt_by_products(rest: Array) -> tuple[Array, Array]:
    columns, basis = [], []
    for number in range(rest.shape[1]):
        row = rest[:, 0]
        products = library_product(rest, row[:, :, None])[:, :, 0]
        scale, shares = _scaled(products, products[:, :1])
        columns.append(jnp.pad(products * scale, ((0, 0), (number, 0))))
        basis.append(row * scale)
        rest = rest[:, 1:] - shares[:, 1:, None] * row[:, None]
    return jnp.stack(columns, -1), jnp.stack(basis, 1)


def _gram_schmidt_by_products_loop(rows: Array) -> tuple[Array, Array]:
    many, count, _ = rows.shape

    def step(number, state):
        rest, lower, basis = state
        row = rest[:, number]
        products = library_product(rest, row[:, :, None])[:, :, 0]
        products = jnp.where(jnp.arange(count)[None] >= number, products, 0.0)
        scale, shares = _scaled(products, products[:, number, None])
        lower = lower.at[:, :, number].set(products * scale)
        rest = rest - shares[:, :, None] * row[:, None]
        return rest, lower, basis.at[:, number].set(row * scale)

    start = rows, jnp.zeros((many, count, count), rows.dtype), jnp.zeros_like(rows)
    return jax.lax.fori_loop(0, count, step, start)[1:]


def orthogonalize(rows: Array) -> tuple[Array, Array]:
    """L and Q by the modified Gram-Schmidt process.

    A row that depends on those before it leaves a zero on the diagonal of L and a zero row in Q.
    Each row of L is as exact as the row of A is, however different their lengths are.

    Batches lie behind, so that a device computes along them at once.
    """
    batch = rows.shape[:-2]
    behind = jnp.moveaxis(rows.reshape(-1, *rows.shape[-2:]), 0, -1)
    many = behind.shape[0] > MOST_UNROLLED_ROWS
    results = _gram_schmidt_loop(behind) if many else _gram_schmidt(behind)
    in_front = (jnp.moveaxis(leaf, -1, 0) for leaf in results)
    lower, basis = (leaf.reshape(*batch, *leaf.shape[1:]) for leaf in in_front)
    return lower, basis


def _gram_schmidt(rest: Array) -> tuple[Array, Array]:
    columns, basis = [], []
    for number in range(rest.shape[0]):
        row = rest[0]
        products = (rest * row[None]).sum(1)
        scale, shares = _scaled(products, products[:1])
        columns.append(jnp.pad(products * scale, ((number, 0), (0, 0))))
        basis.append(row * scale)
        rest = rest[1:] - shares[1:, None] * row[None]
    return jnp.stack(columns, 1), jnp.stack(basis)


def _gram_schmidt_loop(rows: Array) -> tuple[Array, Array]:
    count, _, many = rows.shape

    def step(number, state):
        rest, lower, basis = state
        row = rest[number]
        products = (rest * row[None]).sum(1)
        products = jnp.where(jnp.arange(count)[:, None] >= number, products, 0.0)
        scale, shares = _scaled(products, products[number, None])
        lower = lower.at[:, number].set(products * scale)
        rest = rest - shares[:, None] * row[None]
        return rest, lower, basis.at[number].set(row * scale)

    start = rows, jnp.zeros((count, count, many), rows.dtype), jnp.zeros_like(rows)
    return jax.lax.fori_loop(0, count, step, start)[1:]


def _scaled(products: Array, square: Array) -> tuple[Array, Array]:
    """1 / √a of the squared length a of a row, and which share of it lies in each row.

    Zeros where the row is zero. A rounding of the root, which is more than one on some devices,
    enters no share, because it would leave of a long row what is much to a short one.
    """
    positive = square > 0
    regular = jnp.where(positive, square, 1.0)
    scale = jnp.where(positive, 1 / jnp.sqrt(regular), 0.0)
    return scale, jnp.where(positive, products / regular, 0.0)


def cholesky_on_cpu(matrices: Array) -> list[Array]:
    """L of a symmetric A = L Lᵀ."""
    own = matrices.shape[-1] <= LARGEST_UNROLLED_ON_CPU or _vectorized(matrices)
    return [blocked_cholesky(matrices) if own else _in_turn(library_cholesky, matrices)]


def cholesky_on_gpu(matrices: Array) -> list[Array]:
    """L of a symmetric A = L Lᵀ."""
    unrolled = matrices.shape[-1] <= LARGEST_UNROLLED
    return [unrolled_cholesky(matrices) if unrolled else library_cholesky(matrices)]


def library_cholesky(matrices: Array) -> Array:
    """L by one call for each matrix on a CPU."""
    return jnp.linalg.cholesky(matrices, symmetrize_input=False)


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
    left = unrolled_product(below, swap(unrolled_inverse_lower(first)))
    rest = matrices[..., block:, block:] - unrolled_product(left, swap(left))
    upper = jnp.concatenate([first, jnp.zeros_like(swap(left))], -1)
    return jnp.concatenate([upper, jnp.concatenate([left, blocked_cholesky(rest)], -1)], -2)


def inverse_on_cpu(factors: Array) -> list[Array]:
    """L⁻¹ of a lower triangular L."""
    own = factors.shape[-1] <= LARGEST_UNROLLED_ON_CPU or _vectorized(factors)
    return [unrolled_inverse_lower(factors) if own else _in_turn(library_inverse_lower, factors)]


def inverse_on_gpu(factors: Array) -> list[Array]:
    """L⁻¹ of a lower triangular L."""
    unrolled = factors.shape[-1] <= LARGEST_UNROLLED
    return [unrolled_inverse_lower(factors) if unrolled else library_inverse_lower(factors)]


def library_inverse_lower(factors: Array) -> Array:
    """L⁻¹ by one call for each matrix on a CPU."""
    identities = jnp.broadcast_to(jnp.eye(factors.shape[-1], dtype=factors.dtype), factors.shape)
    return solve_triangular(factors, identities, lower=True)


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


def log_sum_of_pairs(logarithms: Array) -> list[Array]:
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
    return [top + jnp.log(total)]


def _vectorized(matrices: Array) -> bool:
    """True if a batch is large enough, and its matrices small enough, to do without LAPACK."""
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
    results = jax.lax.map(function, matrices.reshape(-1, rows, columns))
    return results.reshape(matrices.shape)
