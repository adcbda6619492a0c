"""Operations on small matrices as primitives of JAX, and the derivative of each.

Written as products, derivatives keep nothing of a factorization for the backward pass. Each rule
has a test that differentiates the plain formula.

Two rules need a word. Almost everything that is done with a square root L of a covariance depends
on L Lᵀ alone, and L V has the same square for every orthogonal V. So a tangent of L may be that of
any square root with the right square. With A = L Q and orthonormal rows in Q,

    d(L Lᵀ) = dA Aᵀ + A dAᵀ = (dA Qᵀ) Lᵀ + L (dA Qᵀ)ᵀ,   so that dL = dA Qᵀ

is one: a product, without an inverse, and exact where L is singular. `canonical` gives a square
root the tangent of the triangular one, for the few uses that depend on L itself.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from filtrax.linalg import _small
from filtrax.linalg._jax import bilinear, define, lower

Tangent = Array | None
"""None stands for zero."""


def multiply(left: Array, right: Array) -> Array:
    """A B of two matrices."""
    return product.bind(left, right)[0]


def _product_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """d(A B) = dA B + A dB."""
    (left, right), (d_left, d_right) = primals, tangents
    terms = [] if d_left is None else [multiply(d_left, right)]
    terms += [] if d_right is None else [multiply(left, d_right)]
    return product.bind(left, right), [sum(terms[1:], terms[0])]


product = define(
    "filtrax_product",
    lambda left, right: [(*left.shape[:-1], right.shape[-1])],
    _small.product_on_cpu,
    _product_rule,
)
"""A B."""
bilinear(
    product,
    lambda cotangent, right: multiply(cotangent, _small.swap(right)),
    lambda cotangent, left: multiply(_small.swap(left), cotangent),
)


def _sum(terms: Sequence[Array | None]) -> Tangent:
    known = [term for term in terms if term is not None]
    return sum(known[1:], known[0]) if known else None


def _times(tangent: Tangent, matrix: Array) -> Tangent:
    """dA Bᵀ."""
    return None if tangent is None else multiply(tangent, _small.swap(matrix))


def _orthogonalized(rows: Array, sizes: Sequence[int], orthogonalize: Any) -> list[Array]:
    """L, and Q in parts with so many columns."""
    lower_triangle, basis = orthogonalize(rows)
    ends = np.cumsum(sizes)[:-1]
    return [lower_triangle, *jnp.split(basis, ends, -1)]


def _root_sum(orthogonalize: Any) -> Any:
    def program(*parts):
        sizes = [part.shape[-1] for part in parts]
        return _orthogonalized(jnp.concatenate(parts, -1), sizes, orthogonalize)

    return program


def _root_sum_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """dL = Σ dAᵢ Qᵢᵀ, and dQᵢ = L⁻¹ (dAᵢ - dL Qᵢ)."""
    results = root_sum.bind(*primals)
    factor, *basis = results
    change = _sum([_times(tangent, q) for tangent, q in zip(tangents, basis, strict=True)])
    assert change is not None
    inverse = pseudo_inverse(factor)
    of_basis = [
        multiply(inverse, _minus(tangent, multiply(change, q)))
        for tangent, q in zip(tangents, basis, strict=True)
    ]
    return results, [change, *of_basis]


root_sum = define(
    "filtrax_root_sum",
    lambda *parts: [(*parts[0].shape[:-1], parts[0].shape[-2]), *(part.shape for part in parts)],
    _root_sum(_small.orthogonalize_on_cpu),
    _root_sum_rule,
)
"""L and Qᵢ with L Qᵢ = Aᵢ, so that L Lᵀ = Σ Aᵢ Aᵢᵀ: lower triangular, and orthonormal rows."""


def _array_update(orthogonalize: Any) -> Any:
    def program(noise, image, prior):
        rows = noise.shape[-2]
        zeros = jnp.zeros((*prior.shape[:-1], noise.shape[-1]), prior.dtype)
        top, bottom = (jnp.concatenate(pair, -1) for pair in ((noise, image), (zeros, prior)))
        sizes = noise.shape[-1], image.shape[-1]
        triangle, *basis = _orthogonalized(jnp.concatenate([top, bottom], -2), sizes, orthogonalize)
        below, factor = jnp.split(triangle[..., rows:, :], [rows], -1)
        first, second = (
            [q[..., part, :] for q in basis] for part in (slice(rows), slice(rows, None))
        )
        return [triangle[..., :rows, :rows], below, factor, *first, *second]

    return program


def _array_update_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """The tangent dA Qᵀ, turned such that the upper right block stays zero.

    With blocks Dᵢⱼ of dA Qᵀ: dX = D₁₁, dY = D₂₁ + L (X⁻¹ D₁₂)ᵀ, dL = D₂₂ - Y X⁻¹ D₁₂. The rows of Q
    follow by differentiating A = [X 0; Y L] Q, first those of X, then those of L.
    """
    results = array_update.bind(*primals)
    X, Y, L, noise_1, image_1, noise_2, image_2 = results
    d_noise, d_image, d_prior = tangents
    inverse = pseudo_inverse(X)  # rows that were not seen are zero
    d_X = _sum([_times(d_noise, noise_1), _times(d_image, image_1)])
    d_X = jnp.zeros_like(X) if d_X is None else d_X
    across = _sum([_times(d_noise, noise_2), _times(d_image, image_2)])
    turn = None if across is None else multiply(inverse, across)
    turned = [None, None] if turn is None else [multiply(L, _small.swap(turn)), -multiply(Y, turn)]
    d_Y = _sum([_times(d_prior, image_1), turned[0]])
    d_L = _sum([_times(d_prior, image_2), turned[1]])
    d_Y, d_L = (jnp.zeros_like(m) if d is None else d for m, d in ((Y, d_Y), (L, d_L)))
    d_first = [
        multiply(inverse, _minus(tangent, multiply(d_X, q)))
        for tangent, q in ((d_noise, noise_1), (d_image, image_1))
    ]
    bottom = [(None, noise_1, noise_2, d_first[0]), (d_prior, image_1, image_2, d_first[1])]
    inverse = pseudo_inverse(L)
    d_second = [
        multiply(inverse, _minus(tangent, multiply(d_Y, q) + multiply(d_L, p) + multiply(Y, d_q)))
        for tangent, q, p, d_q in bottom
    ]
    return results, [d_X, d_Y, d_L, *d_first, *d_second]


def _minus(tangent: Tangent, matrix: Array) -> Array:
    return -matrix if tangent is None else tangent - matrix


def _array_shapes(noise: Any, image: Any, prior: Any) -> list[tuple[int, ...]]:
    *batch, rows, columns = noise.shape
    size, inner = prior.shape[-2:]
    shapes = [(rows, rows), (size, rows), (size, size)]
    shapes += [(count, length) for count in (rows, size) for length in (columns, inner)]
    return [(*batch, *shape) for shape in shapes]


array_update = define(
    "filtrax_array_update",
    _array_shapes,
    _array_update(_small.orthogonalize_on_cpu),
    _array_update_rule,
)
"""X, Y and L, and the rows of Q in parts, with

    [N A]   [X 0]
    [0 M] = [Y L] Q.
"""


def invert(factor: Array) -> Array:
    """L⁻¹ of a lower triangular L; its tangent may be that of any square root."""
    return inverse.bind(factor)[0]


def _inverse_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """dL⁻¹ = -L⁻¹ dL L⁻¹."""
    (factor,), (change,) = primals, tangents
    found = invert(factor)
    assert change is not None
    return [found], [-multiply(multiply(found, change), found)]


inverse = define(
    "filtrax_inverse", lambda factor: [factor.shape], _small.inverse_on_cpu, _inverse_rule
)
"""L⁻¹ of a lower triangular L."""


def _log_determinant(factor: Array, inverted: Array) -> list[Array]:
    del inverted
    return [2 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)]


def _log_determinant_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """d ln |L Lᵀ| = 2 tr(L⁻¹ dL), whatever square root the tangent is one of."""
    (_, inverted), (change, _) = primals, tangents
    found = log_determinant.bind(*primals)
    if change is None:
        return found, [None]
    return found, [2 * (_small.swap(inverted) * change).sum((-1, -2))]


log_determinant = define(
    "filtrax_log_determinant",
    lambda factor, inverted: [factor.shape[:-2]],
    _log_determinant,
    _log_determinant_rule,
)
"""ln |L Lᵀ| of a lower triangular L; its inverse is known."""


def _lower_part(matrix: Array) -> Array:
    """Φ: the lower triangle with half of the diagonal (Murray 2016)."""
    size = matrix.shape[-1]
    kept = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)
    return jnp.broadcast_to(jnp.asarray(kept, matrix.dtype), matrix.shape) * matrix


def _positive(factor: Array) -> tuple[Array, Array]:
    """L with ones in the place of zeros on its diagonal, and where these are."""
    size = factor.shape[-1]
    diagonal = jnp.broadcast_to(jnp.eye(size, dtype=bool), factor.shape)
    return jnp.where(diagonal & (factor == 0), 1.0, factor), diagonal & (factor == 0)


def pseudo_inverse(factor: Array) -> Array:
    """L⁻¹, with a zero row for each zero on the diagonal of L."""
    regular, zero = _positive(factor)
    return jnp.where(zero.any(-1, keepdims=True), 0.0, invert(regular))


def _triangular_tangent(factor: Array, square: Any) -> Array:
    """The triangular dL with dL Lᵀ + L dLᵀ = dΣ; `square(B)` is B dΣ Bᵀ.

    dL = L Φ(L⁻¹ dΣ L⁻ᵀ), with ones in the place of zeros on the diagonal of L (Murray 2016).
    """
    regular, _ = _positive(factor)
    return multiply(regular, _lower_part(square(invert(regular))))


def _canonical_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    """As that of a Cholesky factor with dΣ = dL Lᵀ + L dLᵀ."""
    (factor,), (change,) = primals, tangents
    (triangular,) = canonical.bind(factor)
    assert change is not None

    def square(inverted):
        half = multiply(multiply(inverted, change), _small.swap(multiply(inverted, factor)))
        return half + _small.swap(half)

    return [triangular], [_triangular_tangent(triangular, square)]


canonical = define(
    "filtrax_canonical",
    lambda factor: [factor.shape],
    lambda factor: [factor],
    _canonical_rule,
)
"""The same square root with the tangent of the lower triangular one."""


def _congruence(change: Array) -> Any:
    return lambda matrix: multiply(multiply(matrix, change), _small.swap(matrix))


def _cholesky_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    (matrix,), (change,) = primals, tangents
    (factor,) = cholesky.bind(matrix)
    assert change is not None
    return [factor], [_triangular_tangent(factor, _congruence(change))]


cholesky = define(
    "filtrax_cholesky", lambda matrix: [matrix.shape], _small.cholesky_on_cpu, _cholesky_rule
)
"""The lower triangular L with L Lᵀ = A for a symmetric A; not finite if A is not positive."""


def _square_root(matrices: Array) -> list[Array]:
    """The factor of A or, where it has none, that of A with the roundings of its diagonal."""
    size, epsilon = matrices.shape[-1], jnp.finfo(matrices.dtype).eps
    diagonal = jnp.broadcast_to(jnp.eye(size, dtype=bool), matrices.shape)
    fixed = diagonal & (matrices == 0)
    regular = jnp.where(fixed, 1.0, matrices)
    rounded = jnp.where(diagonal, (1 + size * (size + 1) * epsilon) * regular, regular)
    (plain,), (restored,) = cholesky.bind(regular), cholesky.bind(rounded)
    # A pivot that fails spoils all that come after it, so the last one tells.
    factor = jnp.where(jnp.isfinite(plain[..., -1:, -1:]), plain, restored)
    return [jnp.where(fixed, 0.0, factor)]


def _square_root_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    (matrix,), (change,) = primals, tangents
    (root,) = square_root.bind(matrix)
    assert change is not None
    return [root], [_triangular_tangent(root, _congruence(change))]


square_root = define(
    "filtrax_square_root", lambda matrix: [matrix.shape], _square_root, _square_root_rule
)
"""A lower triangular L with L Lᵀ = A for a symmetric, positive semi-definite A."""


def _log_sum_rule(primals: Sequence[Array], tangents: Sequence[Tangent]) -> Any:
    (logarithms,), (change,) = primals, tangents
    (total,) = log_sum.bind(logarithms)
    assert change is not None
    return [total], [(jnp.exp(logarithms - total[..., None]) * change).sum(-1)]


log_sum = define(
    "filtrax_log_sum",
    lambda logarithms: [logarithms.shape[:-1]],
    lambda logarithms: [_plain_log_sum(logarithms)],
    _log_sum_rule,
)
"""ln Σ exp(aᵢ)."""


def _plain_log_sum(logarithms: Array) -> Array:
    top = jnp.max(logarithms, -1)
    shift = jnp.where(jnp.isfinite(top), top, 0.0)
    return jnp.log(jnp.exp(logarithms - shift[..., None]).sum(-1)) + shift


for _platform in ("cuda", "rocm"):
    lower(product, _small.product_on_gpu, _platform)
    lower(root_sum, _root_sum(_small.orthogonalize), _platform)
    lower(array_update, _array_update(_small.orthogonalize), _platform)
    lower(inverse, _small.inverse_on_gpu, _platform)
    lower(cholesky, _small.cholesky_on_gpu, _platform)
    lower(log_sum, _small.log_sum_of_pairs, _platform)
