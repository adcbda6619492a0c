"""Algebra of small symmetric matrices, and the Gaussian density that needs it.

Everything is made of products, Cholesky factors and inverses of triangular matrices, of which
`filtrax.small_matrices` has the programs. Their derivatives here are products again, so that no
loop keeps what a factorization computed on its way.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax import fusion, small_matrices
from filtrax.arrays import Scalar

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
        matrix = right if right.ndim == 2 else right[:, None]
        found = small_matrices.product.bind(*_of_one_type(left, matrix))
        left = found.reshape(left.shape[:1] + right.shape[1:])
    return left


def sum_of_products(
    weights: Sequence[Scalar],
    left: Sequence[Float[Array, "_ n"]],
    right: Sequence[Float[Array, "_ m"]],
) -> Float[Array, "n m"]:
    """Σ wᵢ aᵢ bᵢᵀ of rows that are given in parts; those of a part have the same weight.

    A kernel cannot join parts, and adds up the products of each; else one product of all is faster.
    """
    if fusion.for_gpu():
        terms = zip(weights, left, right, strict=True)
        return functools.reduce(jnp.add, (product((w * a).T, b) for w, a, b in terms))
    pairs = zip(weights, left, strict=True)
    column = jnp.concatenate([jnp.broadcast_to(w, (len(a), 1)) for w, a in pairs])
    return product((column * jnp.concatenate([*left])).T, jnp.concatenate([*right]))


@jax.custom_jvp
def sum_of_squares(
    weights: Sequence[Scalar], parts: Sequence[Float[Array, "_ n"]]
) -> Float[Array, "n n"]:
    """Σ wᵢ aᵢ aᵢᵀ. A change of a is one product, not two: Σ wᵢ daᵢ aᵢᵀ and its transpose."""
    return sum_of_products(weights, parts, parts)


@sum_of_squares.defjvp
def _sum_of_squares_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (weights, parts), (weight_changes, changes) = primals, tangents
    half = sum_of_products(weights, changes, parts)
    by_weights = sum_of_products(weight_changes, parts, parts)
    return sum_of_squares(weights, parts), by_weights + half + half.T


@jax.custom_jvp
def congruent(matrix: Float[Array, "m n"], middle: Float[Array, "n n"]) -> Float[Array, "m m"]:
    """A C Aᵀ of a symmetric C. A change of A is one product with what is there: dA (C Aᵀ)."""
    return product(matrix, product(middle, matrix.T))


@congruent.defjvp
def _congruent_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (matrix, middle), (change, middle_change) = primals, tangents
    right = product(middle, matrix.T)
    half = product(change, right)
    by_middle = product(matrix, middle_change, matrix.T)
    return product(matrix, right), by_middle + half + half.T


def symmetrize(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric part of a matrix, which removes the rounding of a product like A P Aᵀ."""
    return 0.5 * (matrix + matrix.T)


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = A; not finite where A is not positive definite."""
    return small_matrices.cholesky.bind(symmetrize(matrix))


def inverse_lower(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ of a lower triangular L."""
    return small_matrices.inverse_lower.bind(factor)


def solve_lower(factor: Float[Array, "n n"], right: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """L⁻¹ B for a lower triangular L; B is a vector or a matrix."""
    return product(inverse_lower(factor), right)


def cholesky_solve(
    factor: Float[Array, "n n"], right: Float[Array, "n ..."]
) -> Float[Array, "n ..."]:
    """(L Lᵀ)⁻¹ B."""
    inverse = inverse_lower(factor)
    return product(inverse.T, product(inverse, right))


def log_determinant(factor: Float[Array, "n n"]) -> Scalar:
    """ln |L Lᵀ| of a lower triangular L with a positive diagonal."""
    return 2.0 * jnp.log(small_matrices.diagonal.bind(factor)).sum()


def log_sum(logarithms: Float[Array, " n"]) -> Scalar:
    """ln Σ exp(aᵢ); minus infinity where all are."""
    return small_matrices.log_sum.bind(logarithms)


def square_root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower triangular L with L Lᵀ = A to rounding, for a positive *semi*-definite A.

    A component without any variance has a zero row in L. A matrix that is singular to working
    precision has no Cholesky factor in floating-point numbers; n (n + 1) roundings of its
    diagonal are what its own entries are uncertain by, and they restore the factor (Higham,
    Accuracy and Stability of Numerical Algorithms, theorem 10.7). An indefinite matrix has no
    square root: the result is not finite.
    """
    return small_matrices.square_root.bind(symmetrize(covariance))


def whiten(samples: Float[Array, "n x"]) -> Float[Array, "n x"]:
    """Shifts and maps samples linearly so that their mean is 0 and their covariance I, exactly."""
    centred = samples - samples.mean(0, keepdims=True)
    factor = cholesky(product(centred.T, centred) / samples.shape[0])
    return solve_lower(factor, centred.T).T


def marginal(covariance: Float[Array, "n n"], seen: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """Puts independent unit variance in the place of every component that was not seen.

    With a zero residual in these places, densities, gains and determinants computed from the
    result are exactly those of the marginal distribution of what was seen.
    """
    both = seen[:, None] & seen[None, :]
    return jnp.where(both, covariance, jnp.eye(seen.size, dtype=covariance.dtype))


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


def _of_one_type(*arrays: Array) -> tuple[Array, ...]:
    dtype = jnp.result_type(*arrays)
    return tuple(array.astype(dtype) for array in arrays)
