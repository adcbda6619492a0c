"""Small matrices against NumPy and SciPy, on every path that a platform may take."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from filtrax import linalg
from filtrax.linalg import _small

CHOLESKY = {
    "library": _small.library_cholesky,
    "unrolled": _small.unrolled_cholesky,
    "blocked": _small.blocked_cholesky,
}
INVERSE = {
    "library": _small.library_inverse_lower,
    "unrolled": _small.unrolled_inverse_lower,
}


def random_covariances(rng, count, size):
    factors = rng.normal(size=(count, size, size))
    return factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 8, 10])
def test_every_program_for_factors_and_inverses_equals_numpy(size):
    covariances = random_covariances(np.random.default_rng(size), 20, size)
    factors = np.linalg.cholesky(covariances)
    for cholesky in CHOLESKY.values():
        np.testing.assert_allclose(cholesky(jnp.asarray(covariances)), factors, atol=1e-10)
    for inverse in INVERSE.values():
        found = inverse(jnp.asarray(factors))
        np.testing.assert_allclose(found, np.linalg.inv(factors), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 1, 2), (3, 6, 1)])
def test_every_program_for_products_equals_numpys(shape):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(5, rows, inner)), rng.normal(size=(5, inner, columns))
    for program in (_small.library_product, _small.unrolled_product):
        found = program(jnp.asarray(left), jnp.asarray(right))
        np.testing.assert_allclose(found, left @ right, rtol=1e-12)


def test_the_product_of_the_library_is_in_full_precision():
    """It is hidden in a primitive, where the test of all products of filters does not see it."""
    matrix = jnp.ones((9, 9), jnp.float32)
    lowered = jax.jit(_small.library_product).lower(matrix, matrix).as_text()
    assert lowered.count("dot_general") == lowered.count("precision = [HIGHEST, HIGHEST]") == 1


def results(algebra):
    """A number that depends on all that is computed of a covariance and a matrix."""
    cholesky, inverse, product = algebra

    def scored(covariance, right):
        factor = cholesky(covariance)
        white = product(inverse(factor), right)
        return jnp.sin(white).sum() + (product(factor, white) ** 3).sum()

    return scored


OURS = (linalg.cholesky, linalg.inverse, linalg.product)
THEIRS = (jnp.linalg.cholesky, jnp.linalg.inv, jnp.matmul)


@pytest.mark.parametrize("size", [2, 5])
def test_derivatives_of_every_order_and_mode_are_those_of_jax(size):
    """Rejects a rule for a factor that forgets its triangle, and one that holds to first order."""
    rng = np.random.default_rng(0)
    covariance = jnp.asarray(random_covariances(rng, 1, size)[0])
    right = jnp.asarray(rng.normal(size=(size, 2)))
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        ours, theirs = (
            jax.jit(derivative(results(algebra)))(covariance, right) for algebra in (OURS, THEIRS)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("size", [3, 7])
def test_batches_have_the_values_and_gradients_of_single_matrices(size):
    """One matrix and many have programs of their own, and batches may be nested and partial."""
    rng = np.random.default_rng(1)
    covariances = jnp.asarray(random_covariances(rng, 6, size))
    right = jnp.asarray(rng.normal(size=(size, 3)))
    one = jax.jit(jax.value_and_grad(results(OURS), (0, 1)))
    alone = [one(covariance, right) for covariance in covariances]
    expected = jax.tree.map(lambda *each: jnp.stack(each), *alone)
    batched = jax.vmap(one, (0, None))
    nested = jax.vmap(batched, (1, None), 1)(covariances.reshape(2, 3, size, size), right)
    for found in (batched(covariances, right), nested):
        flat = jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), found, expected)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), flat, expected
        )
    # The gradient by what all of a batch share is a sum.
    total = jax.grad(lambda r: jax.vmap(results(OURS), (0, None))(covariances, r).sum())(right)
    np.testing.assert_allclose(total, expected[1][1].sum(0), rtol=1e-8, atol=1e-8)


def test_a_product_of_several_matrices_is_taken_from_left_to_right():
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=shape) for shape in ((2, 3), (3, 9), (9, 4), (4,))]
    ours = linalg.product(*(jnp.asarray(factor) for factor in factors))
    np.testing.assert_allclose(ours, np.linalg.multi_dot(factors), rtol=1e-12)


@pytest.mark.parametrize("name", CHOLESKY)
def test_the_factor_of_an_indefinite_matrix_is_not_finite(name):
    # Rejects a clamp under the root, which would repair a broken covariance in silence.
    for size in (2, 6):
        matrix = jnp.eye(size).at[-1, 0].set(2.0).at[0, -1].set(2.0)
        assert not jnp.isfinite(CHOLESKY[name](matrix)).all()
        assert not jnp.isfinite(linalg.cholesky(matrix)).all()


def test_public_functions_agree_with_numpy_on_both_sides_of_the_largest_unrolled_size():
    rng = np.random.default_rng(0)
    largest = _small.LARGEST_UNROLLED_ON_CPU
    for size in (largest, largest + 1):
        matrix = random_covariances(rng, 1, size)[0]
        right = rng.normal(size=(size, 2))
        factor = linalg.cholesky(jnp.asarray(matrix))
        np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-12)
        inverted = linalg.inverse(factor)
        solved = linalg.product(inverted.T, inverted, jnp.asarray(right))
        np.testing.assert_allclose(solved, np.linalg.solve(matrix, right), rtol=1e-8)
        np.testing.assert_allclose(
            linalg.log_determinant(factor, inverted), np.linalg.slogdet(matrix)[1], rtol=1e-12
        )


def test_a_gpu_unrolls_small_matrices_and_calls_a_library_for_others():
    """Rejects a choice made by the machine that traces instead of the one that will run."""

    def lowered(size):
        traced = jax.jit(linalg.cholesky).trace(jax.ShapeDtypeStruct((size, size), jnp.float32))
        return "cusolver" in traced.lower(lowering_platforms=("cuda",)).as_text()

    assert not lowered(_small.LARGEST_UNROLLED)
    assert lowered(_small.LARGEST_UNROLLED + 1)


@pytest.mark.parametrize(
    ("size", "count", "called"), [(4, 1, False), (5, 1, True), (8, 3, False), (9, 3, True)]
)
def test_a_cpu_calls_a_library_for_one_matrix_or_for_large_ones(size, count, called):
    matrices = jax.ShapeDtypeStruct((count, size, size), jnp.float32)
    for function in (linalg.cholesky, linalg.inverse):
        lowered = jax.jit(jax.vmap(function)).lower(matrices).as_text()
        assert ("lapack" in lowered) == called


@pytest.mark.parametrize("has_deadlocks", [True, False])
def test_a_cpu_gives_a_library_no_batch_where_that_may_never_return(has_deadlocks, monkeypatch):
    # Rejects batches that jaxlib 0.10 deals out to the threads that wait for them.
    monkeypatch.setattr(_small, "HAS_DEADLOCKS", has_deadlocks)
    jax.clear_caches()
    matrices = jax.ShapeDtypeStruct((3, 2, 16, 16), jnp.float32)
    for function in (linalg.cholesky, linalg.inverse):
        text = jax.jit(jax.vmap(jax.vmap(function))).lower(matrices).as_text()
        calls = [line for line in text.splitlines() if "@lapack" in line]
        assert calls
        assert all(("tensor<3x2x16x16xf32>" in call) != has_deadlocks for call in calls)
    jax.clear_caches()


ROWS = {
    "square": lambda rng: rng.normal(size=(4, 4)),
    "wide": lambda rng: rng.normal(size=(3, 9)),
    "high": lambda rng: rng.normal(size=(6, 2)),
    "of rank one": lambda rng: np.outer(rng.normal(size=5), rng.normal(size=7)),
    "with zero rows": lambda rng: rng.normal(size=(5, 6)) * np.asarray([0, 1, 1, 0, 1])[:, None],
    "many": lambda rng: rng.normal(size=(_small.MOST_UNROLLED_ROWS + 2, 40)),
    "zero": lambda rng: np.zeros((3, 4)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("program", [_small.orthogonalize, _small.orthogonalize_on_cpu])
def test_rows_are_a_triangle_times_orthonormal_rows(program, name):
    """Rejects a basis that is not orthonormal, and a direction without length that is not zero."""
    rows = np.stack([ROWS[name](np.random.default_rng(seed)) for seed in range(3)])
    lower, basis = map(np.asarray, program(jnp.asarray(rows)))
    np.testing.assert_allclose(lower @ basis, rows, atol=1e-12)
    np.testing.assert_array_equal(lower, np.tril(lower))
    assert (np.diagonal(lower, axis1=1, axis2=2) >= 0).all()
    gram = basis @ basis.swapaxes(1, 2)
    independent = np.diagonal(gram, axis1=1, axis2=2) > 0.5
    if name in ("square", "wide", "many"):
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(len(rows[0])), gram.shape), atol=1e-9
        )
    elif name in ("with zero rows", "zero"):
        np.testing.assert_array_equal(independent, np.abs(rows).sum(-1) > 0)
        np.testing.assert_array_equal(basis[~independent], 0)


@pytest.mark.parametrize("count", [4, _small.MOST_UNROLLED_ROWS + 1])
def test_a_cpu_orthogonalizes_a_batch_as_a_gpu_does(count):
    """Rejects products of rows of different matrices, and a loop that differs from its steps."""
    rows = np.random.default_rng(0).normal(size=(5, 7, count, count + 2))
    rows[2, 3, 1] = 0
    rows = jnp.asarray(rows)
    on_cpu = jax.jit(_small.orthogonalize_on_cpu)(rows)
    for found, expected in zip(on_cpu, _small.orthogonalize(rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_one_matrix_is_orthogonalized_by_a_library_on_a_cpu_as_many_are_without():
    """Rejects a zero row with a direction, in which rows after it would have a part."""
    rows = np.random.default_rng(0).normal(size=(12, 14))
    rows[[0, 3, 7]] = 0
    one = jax.jit(_small.orthogonalize_on_cpu)(jnp.asarray(rows))
    assert "lapack" in jax.jit(_small.orthogonalize_on_cpu).lower(jnp.asarray(rows)).as_text()
    for leaf, expected in zip(one, _small.orthogonalize(jnp.asarray(rows)), strict=True):
        np.testing.assert_allclose(leaf, expected, atol=1e-12)


def test_the_root_of_a_sum_is_as_exact_as_its_parts():
    """Rejects a factorization of the sum of squares: in single precision the small part is lost."""
    large, small = np.diag([3e2, 3e2]), np.asarray([[1e-2, 0.0], [0.0, 1e-2]])
    mixing = np.asarray([[1.0, 1.0], [1.0, 1.0]])
    parts = (mixing @ large, small)
    root = linalg.root_sum(*(jnp.asarray(part, jnp.float32) for part in parts))
    exact = np.linalg.cholesky(sum(part @ part.T for part in parts))
    np.testing.assert_allclose(root, exact, rtol=1e-3)
    square = jnp.asarray(sum(part @ part.T for part in parts), jnp.float32)
    assert not np.allclose(linalg.cholesky(square), exact, rtol=1e-3)


def test_the_array_form_of_an_update_is_that_of_the_textbook():
    rng = np.random.default_rng(6)
    noise, matrix, prior = (rng.normal(size=shape) for shape in ((2, 2), (2, 3), (3, 3)))
    X, Y, L = map(
        np.asarray, linalg.array_update(*map(jnp.asarray, (noise, matrix @ prior, prior)))
    )
    covariance = prior @ prior.T
    innovation = matrix @ covariance @ matrix.T + noise @ noise.T
    across = covariance @ matrix.T
    np.testing.assert_allclose(X @ X.T, innovation, rtol=1e-12)
    np.testing.assert_allclose(Y @ X.T, across, rtol=1e-12)
    updated = covariance - across @ np.linalg.inv(innovation) @ across.T
    np.testing.assert_allclose(L @ L.T, updated, atol=1e-12)
    for triangle in (X, L):
        np.testing.assert_array_equal(triangle, np.tril(triangle))


def test_a_downdate_subtracts_and_is_not_finite_where_nothing_is_left():
    """Rejects a clamp, which would repair a covariance that is none in silence."""
    factor = np.linalg.cholesky(random_covariances(np.random.default_rng(2), 1, 3)[0])
    vector = factor @ np.asarray([0.5, -0.3, 0.4])
    found = np.asarray(linalg.downdate(jnp.asarray(factor), jnp.asarray(vector)))
    np.testing.assert_allclose(found @ found.T, factor @ factor.T - np.outer(vector, vector))
    too_long = jnp.asarray(factor @ np.asarray([0.9, -0.9, 0.4]))
    assert not np.isfinite(linalg.downdate(jnp.asarray(factor), too_long)).all()


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
    # A compiler that computes an entry twice may round it in two ways, which pivots magnify.
    allowed = 8 * 4 * 5 * np.finfo(dtype).eps * stds[:, :, None] * stds[:, None, :]
    assert (error <= allowed).all()
    np.testing.assert_array_equal(roots[stds == 0], 0)


def test_square_root_of_a_regular_covariance_is_its_cholesky_factor():
    """Rejects a jitter that is added always: each diagonal is then larger, by ten roundings."""
    covariances = jnp.asarray(random_covariances(np.random.default_rng(4), 50, 4))
    roots, factors = (
        np.asarray(jax.vmap(function)(covariances))
        for function in (linalg.square_root, linalg.cholesky)
    )
    np.testing.assert_allclose(roots, factors, rtol=1e-14, atol=1e-14)
    diagonals = (np.diagonal(m, axis1=1, axis2=2) for m in (roots, factors))
    ratio = np.divide(*diagonals)
    assert abs(ratio.mean() - 1) < 2 * np.finfo(float).eps


@pytest.mark.parametrize("size", [3, 6, 10])
def test_square_roots_do_not_depend_on_the_other_matrices_of_a_batch(size):
    # Rejects a branch for a whole batch that changes what is regular, or misses what is not.
    covariances = random_covariances(np.random.default_rng(8), 4, size)
    covariances[1] = 2.0  # of rank 1
    for row in (0, -1):
        covariances[2, row] = covariances[2, :, row] = 0.0
    covariances[3] -= 100.0 * np.eye(size)
    batch = jnp.asarray(covariances)

    def both(matrix):
        return linalg.square_root(matrix), jax.grad(lambda m: linalg.square_root(m).sum())(matrix)

    together = jax.jit(jax.vmap(both))(batch)
    for i in (0, 2):  # those that have one root
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-12),
            together,
            both(batch[i]),
        )
    roots = np.asarray(together[0])
    finite = np.isfinite(roots).all((1, 2))
    np.testing.assert_array_equal(finite, [True, True, True, False])
    np.testing.assert_allclose(roots[:3] @ roots[:3].transpose(0, 2, 1), batch[:3], atol=1e-9)


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


def test_the_marginal_root_keeps_the_seen_block_and_makes_the_rest_independent():
    factor = np.linalg.cholesky(random_covariances(np.random.default_rng(6), 1, 3)[0])
    for seen in MASKS:
        root = np.asarray(linalg.marginal_root(jnp.asarray(factor), jnp.asarray(seen)))
        block, expected = np.ix_(seen, seen), np.eye(3)
        expected[block] = (factor @ factor.T)[block]
        np.testing.assert_allclose(root @ root.T, expected, atol=1e-12)
        np.testing.assert_array_equal(root, np.tril(root))


def test_log_density_of_what_was_seen_equals_scipys_of_the_seen_block():
    """Rejects a constant that counts unseen components, and a conditional for a marginal."""
    rng = np.random.default_rng(7)
    factors = np.linalg.cholesky(random_covariances(rng, len(MASKS), 3))
    residuals = rng.normal(size=(len(MASKS), 3))
    hidden = np.where(MASKS, residuals, np.nan)
    value_and_grad = jax.jit(jax.vmap(jax.value_and_grad(linalg.gaussian_log_density, (0, 1))))
    values, gradients = value_and_grad(*map(jnp.asarray, (hidden, factors, MASKS)))
    for i, seen in enumerate(MASKS):
        block = (factors[i] @ factors[i].T)[np.ix_(seen, seen)]
        density = multivariate_normal.logpdf(residuals[i, seen], cov=block) if seen.any() else 0.0
        np.testing.assert_allclose(values[i], density, atol=1e-12)
        expected = np.zeros(3)
        expected[seen] = -np.linalg.solve(block, residuals[i, seen])
        np.testing.assert_allclose(gradients[0][i], expected, atol=1e-12)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_log_density_without_a_mask_is_that_of_all_components():
    rng = np.random.default_rng(8)
    factor, residual = rng.normal(size=(3, 5)), rng.normal(size=3)
    np.testing.assert_allclose(
        linalg.gaussian_log_density(jnp.asarray(residual), jnp.asarray(factor)),
        multivariate_normal.logpdf(residual, cov=factor @ factor.T),
        rtol=1e-12,
    )


LOGARITHMS = {
    "some": np.asarray([-2.0, 0.5, -np.inf, 3.0, 3.0]),
    "large": np.asarray([1e4, 1e4 - 1, -1e4]),
    "one": np.asarray([-7.0]),
    "none": np.full(3, -np.inf),
}


@pytest.mark.parametrize("name", LOGARITHMS)
@pytest.mark.parametrize(
    "log_sum", [linalg.log_sum, lambda logarithms: _small.log_sum_of_pairs(logarithms)[0]]
)
def test_sums_of_logarithms_are_scipys_however_they_are_added_up(log_sum, name):
    found = jax.jit(log_sum)(jnp.asarray(LOGARITHMS[name]))
    np.testing.assert_allclose(found, logsumexp(LOGARITHMS[name]), rtol=1e-14)


def test_derivatives_of_a_sum_of_logarithms_are_shares_and_their_covariance():
    logarithms = jnp.asarray(LOGARITHMS["some"])
    shares = np.exp(LOGARITHMS["some"] - logsumexp(LOGARITHMS["some"]))
    np.testing.assert_allclose(jax.grad(linalg.log_sum)(logarithms), shares, rtol=1e-14)
    covariance = np.diag(shares) - np.outer(shares, shares)
    curvature = jax.jit(jax.hessian(linalg.log_sum))(logarithms)
    np.testing.assert_allclose(curvature, covariance, atol=1e-14)
