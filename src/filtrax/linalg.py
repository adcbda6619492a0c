"""Algebra of small symmetric matrices, and the Gaussian density that needs it.

A library call costs a GPU one launch and hardly any work for a 4 x 4 matrix, while the same
algorithm written out in scalars is fused with its surroundings; on a CPU the library call wins
at every size. The choice is made when a program is lowered for a device, so one traced program
serves both (`jax.lax.platform_dependent`).
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Scalar

LARGEST_UNROLLED = 6
"""Matrices up to this size are unrolled into scalars on a GPU.

Larger ones would still run faster, but compile for longer than they are worth in most programs:
`benchmarks/small_matrices.py` measures both.
"""

Function = TypeVar("Function", bound=Callable)


def precise(function: Function) -> Function:
    """Computes the matrix products of a function in full precision on every device.

    GPUs multiply float32 matrices with a mantissa of ten bits unless told otherwise. That is fine
    for networks, but a covariance that is wrong in the fourth digit is not.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with jax.default_matmul_precision("float32"):
            return function(*args, **kwargs)

    return cast(Function, wrapped)


def product(left: Float[Array, "n k"], *others: Float[Array, "..."]) -> Float[Array, "..."]:
    """A B C ... of small matrices, from left to right; the last one may be a vector.

    Computed in full precision on every device.
    """
    for right in others:
        left = _product(left, right)
    return left


@precise
def _product(left: Array, right: Array) -> Array:
    return _per_platform(jnp.matmul, _unrolled_product, left, right)


def symmetrize(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric part of a matrix, which removes the rounding of a product like A P Aᵀ."""
    return 0.5 * (matrix + matrix.T)


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = A; not finite where A is not positive definite."""
    return _per_platform(jnp.linalg.cholesky, _unrolled_cholesky, matrix)


def solve_lower(factor: Float[Array, "n n"], right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """L⁻¹ B for a lower triangular L; B is a vector or a matrix."""
    return _per_platform(_library_solve_lower, _unrolled_solve_lower, factor, right)


def solve_upper(factor: Float[Array, "n n"], right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """L⁻ᵀ B for a lower triangular L; B is a vector or a matrix."""
    return _per_platform(_library_solve_upper, _unrolled_solve_upper, factor, right)


def cholesky_solve(
    factor: Float[Array, "n n"], right: Float[Array, "n ..."]
) -> Float[Array, "n ..."]:
    """(L Lᵀ)⁻¹ B."""
    return solve_upper(factor, solve_lower(factor, right))


def log_determinant(factor: Float[Array, "n n"]) -> Scalar:
    """ln |L Lᵀ| of a lower triangular L with a positive diagonal."""
    return 2.0 * jnp.log(jnp.diagonal(factor)).sum()


def square_root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower triangular L with L Lᵀ = A to rounding, for a positive *semi*-definite A.

    A component without any variance has a zero row in L. A matrix that is singular to working
    precision has no Cholesky factor in floating-point numbers; n (n + 1) roundings of its
    diagonal are what its own entries are uncertain by, and they restore the factor (Higham,
    Accuracy and Stability of Numerical Algorithms, theorem 10.7). An indefinite matrix has no
    square root: the result is not finite.
    """
    size, epsilon = covariance.shape[-1], jnp.finfo(covariance.dtype).eps
    fixed = jnp.diagonal(covariance) == 0
    matrix = covariance + jnp.diag(fixed.astype(covariance.dtype))
    singular = ~jnp.isfinite(cholesky(jax.lax.stop_gradient(matrix))).all()
    roundings = jnp.where(singular, size * (size + 1) * epsilon, 0.0).astype(matrix.dtype)
    factor = cholesky(matrix + roundings * jnp.diag(jnp.diagonal(matrix)))
    return jnp.where(fixed[:, None], 0.0, factor)


@precise
def whiten(samples: Float[Array, "n x"]) -> Float[Array, "n x"]:
    """Shifts and maps samples linearly so that their mean is 0 and their covariance I, exactly."""
    centred = samples - samples.mean(0, keepdims=True)
    factor = cholesky(centred.T @ centred / samples.shape[0])
    return solve_lower(factor, centred.T).T


def marginal(covariance: Float[Array, "n n"], seen: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """Puts independent unit variance in the place of every component that was not seen.

    With a zero residual in these places, densities, gains and determinants computed from the
    result are exactly those of the marginal distribution of what was seen.
    """
    both = seen[:, None] & seen[None, :]
    return jnp.where(both, covariance, jnp.eye(seen.size, dtype=covariance.dtype))


@precise
def gaussian_log_density(
    residual: Float[Array, " n"],
    covariance: Float[Array, "n n"],
    seen: Bool[Array, " n"] | None = None,
) -> Scalar:
    """The log density ln N(d; 0, C) of the components that were seen.

    -½ [dᵀ C⁻¹ d + ln |C| + n ln 2π]
    """
    if seen is None:
        seen = jnp.ones(residual.shape, bool)
    residual = jnp.where(seen, residual, 0.0)
    factor = cholesky(marginal(covariance, seen))
    white = solve_lower(factor, residual)
    dimension = seen.sum().astype(residual.dtype)
    return -0.5 * ((white**2).sum() + log_determinant(factor) + dimension * math.log(2 * math.pi))


def _per_platform(library: Callable, unrolled: Callable, *operands: Array) -> Array:
    if operands[0].shape[-1] > LARGEST_UNROLLED:
        return library(*operands)
    return jax.lax.platform_dependent(*operands, cuda=unrolled, rocm=unrolled, default=library)


def _library_solve_lower(factor: Array, right: Array) -> Array:
    return solve_triangular(factor, right, lower=True)


def _library_solve_upper(factor: Array, right: Array) -> Array:
    return solve_triangular(factor, right, lower=True, trans="T")


def _unrolled_product(left: Array, right: Array) -> Array:
    """Σₖ aₖ bₖᵀ, with the columns of one matrix and the rows of the other."""
    matrix = right if right.ndim == 2 else right[:, None]
    terms = [left[:, k, None] * matrix[None, k, :] for k in range(left.shape[-1])]
    return functools.reduce(jnp.add, terms).reshape(left.shape[:1] + right.shape[1:])


def _unrolled_cholesky(matrix: Array) -> Array:
    matrix = symmetrize(matrix)  # as the library does, so that derivatives agree
    size = matrix.shape[-1]
    factor = [[jnp.zeros((), matrix.dtype)] * size for _ in range(size)]
    for j in range(size):
        for i in range(j, size):
            rest = matrix[i, j]
            for k in range(j):
                rest = rest - factor[i][k] * factor[j][k]
            factor[i][j] = jnp.sqrt(rest) if i == j else rest / factor[j][j]
    return jnp.stack([jnp.stack(row) for row in factor])


def _unrolled_solve_lower(factor: Array, right: Array) -> Array:
    return _substitute(factor, right, range(factor.shape[-1]))


def _unrolled_solve_upper(factor: Array, right: Array) -> Array:
    return _substitute(factor.T, right, reversed(range(factor.shape[-1])))


def _substitute(triangle: Array, right: Array, order) -> Array:
    """Solves for the rows in the given order; each uses the rows solved before it."""
    rows: dict[int, Array] = {}
    for i in order:
        rest = right[i]
        for j, row in rows.items():
            rest = rest - triangle[i, j] * row
        rows[i] = rest / triangle[i, i]
    return jnp.stack([rows[i] for i in range(len(rows))])
