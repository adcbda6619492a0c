"""Small matrices against NumPy and SciPy, on every path that a platform may take."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from filtrax import linalg

LIBRARY = (jnp.linalg.cholesky, linalg._library_solve_lower, linalg._library_solve_upper)
UNROLLED = (
    linalg._unrolled_cholesky,
    linalg._unrolled_solve_lower,
    linalg._unrolled_solve_upper,
)


def random_covariances(rng, count, size):
    factors = rng.normal(size=(count, size, size))
    return factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(size)


def solve_with(path):
    """All that a path computes of a covariance and a matrix, with derivatives in a direction."""
    cholesky, solve_lower, solve_upper = path

    def results(covariance, right):
        factor = cholesky(covariance)
        return factor, solve_lower(factor, right), solve_upper(factor, right[:, 0])

    def with_derivatives(arguments, directions):
        return jax.jvp(results, arguments, directions)

    # Compiling takes far longer than running, and longer still with optimizations.
    quickly = {"xla_backend_optimization_level": 0}
    return jax.jit(jax.vmap(with_derivatives), compiler_options=quickly)


@pytest.mark.parametrize("size", range(1, 7))
def test_unrolled_and_library_algebra_equal_numpy_and_have_the_same_derivatives(size):
    rng = np.random.default_rng(size)
    covariances, rights = random_covariances(rng, 20, size), rng.normal(size=(20, size, 3))
    factors = np.linalg.cholesky(covariances)
    expected = (
        factors,
        np.linalg.solve(factors, rights),
        np.linalg.solve(factors.transpose(0, 2, 1), rights[..., :1])[..., 0],
    )
    arguments = jnp.asarray(covariances), jnp.asarray(rights)
    directions = tuple(jnp.asarray(rng.normal(size=array.shape)) for array in arguments)
    values, derivatives = solve_with(UNROLLED)(arguments, directions)
    library_values, library_derivatives = solve_with(LIBRARY)(arguments, directions)
    for ours, theirs, numpy in zip(values, library_values, expected, strict=True):
        np.testing.assert_allclose(ours, numpy, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(theirs, numpy, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(derivatives, library_derivatives, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)


def test_unrolled_algebra_has_the_librarys_gradients_in_reverse_mode():
    def gradient(path):
        def scored(covariance, right):
            factor = path[0](covariance)
            return (path[2](factor, path[1](factor, right)) * right).sum()

        return jax.jit(jax.grad(scored, (0, 1)))

    rng = np.random.default_rng(0)
    arguments = jnp.asarray(random_covariances(rng, 1, 3)[0]), jnp.asarray(rng.normal(size=(3, 2)))
    both = zip(gradient(UNROLLED)(*arguments), gradient(LIBRARY)(*arguments), strict=True)
    for ours, theirs in both:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 1, 2), (3, 6, 0)])
def test_unrolled_products_equal_numpys(shape):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    left = rng.normal(size=(rows, inner))
    right = rng.normal(size=(inner, columns) if columns else inner)
    ours = linalg._unrolled_product(jnp.asarray(left), jnp.asarray(right))
    np.testing.assert_allclose(ours, left @ right, rtol=1e-12)


def test_a_product_of_several_matrices_is_taken_from_left_to_right():
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=shape) for shape in ((2, 3), (3, 9), (9, 4), (4,))]
    ours = linalg.product(*(jnp.asarray(factor) for factor in factors))
    np.testing.assert_allclose(ours, np.linalg.multi_dot(factors), rtol=1e-12)


def test_unrolled_cholesky_of_an_indefinite_matrix_is_not_finite():
    # Rejects a clamp under the root, which would repair a broken covariance in silence.
    matrix = jnp.asarray([[1.0, 2.0], [2.0, 1.0]])
    assert not jnp.isfinite(linalg._unrolled_cholesky(matrix)).all()
    assert not jnp.isfinite(linalg.cholesky(matrix)).all()


def test_public_functions_agree_with_numpy_on_both_sides_of_the_largest_unrolled_size():
    rng = np.random.default_rng(0)
    for size in (linalg.LARGEST_UNROLLED, linalg.LARGEST_UNROLLED + 1):
        matrix = random_covariances(rng, 1, size)[0]
        right = rng.normal(size=(size, 2))
        factor = linalg.cholesky(jnp.asarray(matrix))
        np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-12)
        np.testing.assert_allclose(
            linalg.cholesky_solve(factor, jnp.asarray(right)),
            np.linalg.solve(matrix, right),
            rtol=1e-8,
        )
        np.testing.assert_allclose(
            linalg.log_determinant(factor), np.linalg.slogdet(matrix)[1], rtol=1e-12
        )


def test_small_matrices_are_unrolled_on_a_gpu_and_large_ones_are_not():
    # Rejects a choice made by the machine that traces instead of the one that will run.
    def lowered(size):
        exported = jax.export.export(
            jax.jit(linalg.cholesky),
            platforms=["cuda"],
            disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("cusolver_potrf_ffi")],
        )
        return exported(jax.ShapeDtypeStruct((size, size), jnp.float32)).mlir_module()

    assert "cusolver" not in lowered(linalg.LARGEST_UNROLLED)
    assert "cusolver" in lowered(linalg.LARGEST_UNROLLED + 1)


def test_symmetrize_gives_the_symmetric_part():
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    symmetric = linalg.symmetrize(jnp.asarray(matrix))
    np.testing.assert_array_equal(symmetric, symmetric.T)
    np.testing.assert_allclose(symmetric, (matrix + matrix.T) / 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_square_root_of_singular_covariances_is_exact_to_rounding(dtype):
    # Rank 0 to 4, with zero rows and badly scaled components. Plain Cholesky is not finite on
    # most of them, and a fixed jitter on the diagonal would swamp the small components.
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(600, 4, 4))
    factors *= (np.arange(4) < rng.integers(0, 5, size=(600, 1)))[:, None, :]
    factors *= rng.random(size=(600, 4, 1)) < 0.8
    factors *= 10.0 ** rng.uniform(-3, 3, size=(600, 4, 1))
    factors = factors.astype(dtype)
    covariances = factors @ factors.transpose(0, 2, 1)
    roots = np.asarray(jax.jit(jax.vmap(linalg.square_root))(jnp.asarray(covariances)))
    assert roots.dtype == dtype
    assert np.isfinite(roots).all()
    np.testing.assert_array_equal(roots, np.tril(roots))
    stds = np.sqrt(np.diagonal(covariances.astype(float), axis1=1, axis2=2))
    wide = roots.astype(float)
    error = np.abs(wide @ wide.transpose(0, 2, 1) - covariances)
    allowed = 2 * 4 * 5 * np.finfo(dtype).eps * stds[:, :, None] * stds[:, None, :]
    assert (error <= allowed).all()
    np.testing.assert_array_equal(roots[stds == 0], 0)


def test_square_root_of_a_regular_covariance_is_its_cholesky_factor_to_the_last_bit():
    # Rejects a jitter that is added always.
    covariances = jnp.asarray(random_covariances(np.random.default_rng(4), 50, 4))
    np.testing.assert_array_equal(
        jax.vmap(linalg.square_root)(covariances), jax.vmap(linalg.cholesky)(covariances)
    )


def test_square_root_of_an_indefinite_matrix_is_not_finite():
    for matrix in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, -1e-3]], [[-1.0, 0.0], [0.0, 1.0]]):
        assert not jnp.isfinite(linalg.square_root(jnp.asarray(matrix))).all()


def test_square_root_has_a_finite_gradient_where_a_component_has_no_variance():
    matrix = jnp.asarray([[2.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 1.0]])
    gradient = jax.grad(lambda m: linalg.square_root(m).sum())(matrix)
    assert jnp.isfinite(gradient).all()
    seen = np.ix_([0, 2], [0, 2])
    expected = jax.grad(lambda m: linalg.cholesky(m).sum())(matrix[seen])
    np.testing.assert_allclose(gradient[seen], expected)


@pytest.mark.parametrize("count", [6, 100])
def test_whiten_makes_mean_and_covariance_exact(count):
    samples = np.random.default_rng(5).normal(3.0, 10.0, size=(count, 5))
    white = np.asarray(linalg.whiten(jnp.asarray(samples)))
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-10)
    np.testing.assert_allclose(white.T @ white / count, np.eye(5), atol=1e-9)
    # It is a linear map of the samples: the directions that the samples span stay as they are.
    centred = samples - samples.mean(0)
    back = np.linalg.lstsq(centred, white, rcond=None)[0]
    np.testing.assert_allclose(centred @ back, white, atol=1e-8)


MASKS = np.asarray(list(itertools.product([True, False], repeat=3)))


def test_marginal_keeps_the_seen_block_and_makes_the_rest_independent():
    covariance = random_covariances(np.random.default_rng(6), 1, 3)[0]
    for seen in MASKS:
        result = np.asarray(linalg.marginal(jnp.asarray(covariance), jnp.asarray(seen)))
        block = np.ix_(seen, seen)
        expected = np.eye(3)
        expected[block] = covariance[block]
        np.testing.assert_array_equal(result, expected)


def test_log_density_of_what_was_seen_equals_scipys_of_the_seen_block():
    # Rejects a constant that counts unseen components, and a conditional instead of a marginal.
    rng = np.random.default_rng(7)
    covariances = random_covariances(rng, len(MASKS), 3)
    residuals = rng.normal(size=(len(MASKS), 3))
    hidden = np.where(MASKS, residuals, np.nan)
    value_and_grad = jax.jit(jax.vmap(jax.value_and_grad(linalg.gaussian_log_density, (0, 1))))
    values, gradients = value_and_grad(*map(jnp.asarray, (hidden, covariances, MASKS)))
    for i, seen in enumerate(MASKS):
        block = covariances[i][np.ix_(seen, seen)]
        density = multivariate_normal.logpdf(residuals[i, seen], cov=block) if seen.any() else 0.0
        np.testing.assert_allclose(values[i], density, atol=1e-12)
        expected = np.zeros(3)
        expected[seen] = -np.linalg.solve(block, residuals[i, seen])
        np.testing.assert_allclose(gradients[0][i], expected, atol=1e-12)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_log_density_without_a_mask_is_that_of_all_components():
    rng = np.random.default_rng(8)
    covariance, residual = random_covariances(rng, 1, 3)[0], rng.normal(size=3)
    np.testing.assert_allclose(
        linalg.gaussian_log_density(jnp.asarray(residual), jnp.asarray(covariance)),
        multivariate_normal.logpdf(residual, cov=covariance),
        rtol=1e-12,
    )
