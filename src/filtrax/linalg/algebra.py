"""Algebra of small matrices, and the Gaussian density, in terms of square roots of covariances."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax._types import Scalar
from filtrax.linalg import derivatives

Function = TypeVar("Function", bound=Callable)

_outer: list[Any] = []
"""The precision of matrix products outside of each `precise` function that is being traced."""


def precise(function: Function) -> Function:
    """Computes matrix products in full precision on every device.

    GPUs multiply float32 matrices with a mantissa of ten bits unless told otherwise, and a
    position of 10 km in ten bits is off by metres. `fast` is the exception for networks.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with full_precision():
            return function(*args, **kwargs)

    return cast(Function, wrapped)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Computes matrix products in full precision within a block, as `precise` does."""
    _outer.append(jax.config.values["jax_default_matmul_precision"])
    try:
        with jax.default_matmul_precision("float32"):
            yield
    finally:
        _outer.pop()


def imprecise(function: Function) -> Function:
    """Computes matrix products as outside of the outermost `precise` function, for networks."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if not _outer:
            return function(*args, **kwargs)
        with jax.default_matmul_precision(_outer[0]):
            return function(*args, **kwargs)

    return cast(Function, wrapped)


def product(left: Float[Array, "n k"], *others: Float[Array, "..."]) -> Float[Array, "..."]:
    """A B C ... of small matrices, from left to right; the last one may be a vector.

    Computed in full precision on every device.
    """
    for right in others:
        matrix = right if right.ndim == 2 else right[:, None]
        dtype = jnp.result_type(left, matrix)
        result = derivatives.multiply(left.astype(dtype), matrix.astype(dtype))
        left = result.reshape(left.shape[:1] + right.shape[1:])
    return left


def root_sum(*parts: Float[Array, "n _"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = A Aᵀ + B Bᵀ + ..., by orthogonal transformations.

    No square is ever computed, so that L is exact where L Lᵀ could not be represented. The sum may
    be singular: L then has zeros on its diagonal. The tangent of L is that of some square root of
    the sum (`filtrax.linalg.derivatives`); `canonical` gives it that of the triangular one.
    """
    return derivatives.root_sum.bind(*parts)[0]


def array_update(
    noise: Float[Array, "z n"], image: Float[Array, "z w"], prior: Float[Array, "x w"]
) -> tuple[Float[Array, "z z"], Float[Array, "x z"], Float[Array, "x x"]]:
    """X, Y and L of the array form of a Kalman update.

    With a prior M Mᵀ, the image A = H M of its factor and noise N Nᵀ, an orthogonal Q gives

        [N A]   [X 0]
        [0 M] = [Y L] Q,   so that   X Xᵀ = N Nᵀ + A Aᵀ = S,   Y Xᵀ = M Aᵀ = P Hᵀ,
                                     L Lᵀ = P - Y Yᵀ = P - P Hᵀ S⁻¹ H P

    (Kailath, Sayed & Hassibi 2000, section 12.3). As for `root_sum`, tangents are those of some
    square roots.
    """
    if noise.shape[1] > 2 * (noise.shape[0] + prior.shape[0]):
        noise = root_sum(noise)  # of many samples: fewer rows are as long as that
    corner, below, factor, *_ = derivatives.array_update.bind(noise, image, prior)
    return corner, below, factor


def downdate(factor: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, "n n"]:
    """The lower triangular root of L Lᵀ - v vᵀ; not finite if that is no covariance."""
    white = product(derivatives.pseudo_inverse(factor), vector)
    rest = jnp.eye(white.size, dtype=white.dtype) - white[:, None] * white[None, :]
    return product(factor, cholesky(rest))


def canonical(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The same triangular square root, with its own tangent in the place of another root's."""
    return derivatives.canonical.bind(factor)[0]


def inverse(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ of a lower triangular L."""
    return derivatives.invert(factor)


def pseudo_inverse(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ of a lower triangular L, with a zero row for each zero on its diagonal."""
    return derivatives.pseudo_inverse(factor)


@jax.custom_jvp
def canonical_with(
    factor: Float[Array, "n n"], dependent: Float[Array, "m n"]
) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """The same triangular root with its own tangent, and what is in its coordinates.

    In x = L ξ and y = Y ξ, another root L V means other coordinates Vᵀ ξ. Where the tangent of L is
    that of another root, so is that of Y, and both are turned back.
    """
    return factor, dependent


@canonical_with.defjvp
def _canonical_with_rule(primals: Any, tangents: Any) -> Any:
    """dL of the triangular root, and dY + Y Ω with Ω = L⁻¹ (dL - the other root's)."""
    (factor, dependent), (d_factor, d_dependent) = primals, tangents
    _, change = jax.jvp(canonical, (factor,), (d_factor,))
    turn = product(derivatives.pseudo_inverse(factor), change - d_factor)
    return (factor, dependent), (change, d_dependent + product(dependent, turn))


def log_determinant(factor: Float[Array, "n n"], inverse: Float[Array, "n n"]) -> Scalar:
    """ln |L Lᵀ| of a lower triangular L with a positive diagonal; its derivative needs L⁻¹."""
    return derivatives.log_determinant.bind(factor, inverse)[0]


def log_sum(logarithms: Float[Array, " n"]) -> Scalar:
    """ln Σ exp(aᵢ); minus infinity where all are."""
    return derivatives.log_sum.bind(logarithms)[0]


def symmetrize(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric part of a matrix, which removes the rounding of a product like A P Aᵀ."""
    return 0.5 * (matrix + matrix.T)


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = A; not finite where A is not positive definite."""
    return derivatives.cholesky.bind(symmetrize(matrix))[0]


def square_root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A lower triangular L with L Lᵀ = A to rounding, for a positive *semi*-definite A.

    A component without any variance has a zero row in L. A matrix that is singular to working
    precision has no Cholesky factor in floating-point numbers; n (n + 1) roundings of its
    diagonal are what its own entries are uncertain by, and they restore the factor (Higham,
    Accuracy and Stability of Numerical Algorithms, theorem 10.7). An indefinite matrix has no
    square root: the result is not finite.
    """
    return derivatives.square_root.bind(symmetrize(covariance))[0]


def squared(factor: Float[Array, "*b n k"]) -> Float[Array, "*b n n"]:
    """F Fᵀ, of one matrix or of many, in full precision."""
    return jnp.matmul(factor, jnp.swapaxes(factor, -1, -2), precision=jax.lax.Precision.HIGHEST)


def whiten(samples: Float[Array, "n x"]) -> Float[Array, "n x"]:
    """Shifts and maps samples linearly so that their mean is 0 and their covariance I, exactly."""
    centred = samples - samples.mean(0, keepdims=True)
    factor = cholesky(product(centred.T, centred) / samples.shape[0])
    return product(inverse(factor), centred.T).T


def marginal_root(
    factor: Float[Array, "n k"], seen: Bool[Array, " n"] | None
) -> Float[Array, "n n"]:
    """A lower triangular root of F Fᵀ, with unit variance for what was not seen.

    With a zero residual in these places, densities, gains and determinants are exactly those of
    the marginal distribution of what was seen.
    """
    if seen is None:
        return root_sum(factor)
    return with_ones(root_sum(jnp.where(seen[:, None], factor, 0.0)), seen)


def with_ones(factor: Float[Array, "n n"], seen: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """A triangular root whose rows are zero where nothing was seen, with ones on the diagonal."""
    hidden = jnp.eye(seen.size, dtype=bool) & ~seen[:, None]
    return jnp.where(hidden, jnp.ones((), factor.dtype), factor)


def gaussian_log_density(
    residual: Float[Array, " n"],
    factor: Float[Array, "n k"],
    seen: Bool[Array, " n"] | None = None,
) -> Scalar:
    """The log density ln N(d; 0, F Fᵀ) of the components that were seen.

    -½ [|L⁻¹ d|² + ln |L Lᵀ| + n ln 2π] with L Lᵀ = F Fᵀ
    """
    root = marginal_root(factor, seen)
    inverted = inverse(root)
    if seen is not None:
        residual = jnp.where(seen, residual, 0.0)
    dimension = residual.size if seen is None else seen.sum().astype(residual.dtype)
    white = product(inverted, residual)
    constant = dimension * math.log(2 * math.pi)
    return -0.5 * ((white**2).sum() + log_determinant(root, inverted) + constant)
