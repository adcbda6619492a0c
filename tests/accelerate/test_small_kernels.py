"""Kernels, interpreted on a CPU, against the functions that they are made of."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import Literal

import filtrax
from filtrax import fusion, linalg, small_kernels, small_matrices
from filtrax.filters.kalman import condition
from filtrax.accelerate.small_kernels import run_kernel
from filtrax.accelerate.tile_rules import NoKernelError
from systems import POSE, beacon_model, beacon_prior

pytestmark = pytest.mark.usefixtures("on_gpu")


def with_kernels(function):
    """The function, with every fused operation computed by an interpreted kernel."""

    def evaluate(jaxpr, consts, arguments):
        known = dict(zip(jaxpr.constvars, consts, strict=True))
        known |= dict(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            values = [a.val if isinstance(a, Literal) else known[a] for a in equation.invars]
            if equation.primitive is fusion.operation:
                found = interpreted(*values, **equation.params)
            else:
                found = equation.primitive.bind(*values, **equation.params)
                found = found if equation.primitive.multiple_results else [found]
            known |= dict(zip(equation.outvars, found, strict=True))
        return [a.val if isinstance(a, Literal) else known[a] for a in jaxpr.outvars]

    def wrapped(*arguments):
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = evaluate(traced.jaxpr, traced.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return wrapped


def interpreted(*operands, jaxpr, batched, size):
    count = 1 if size is None else size
    found = run_kernel(jaxpr, batched, count, *map(jnp.asarray, operands), interpret=True)
    return [each[0] for each in found] if size is None else found


def assert_alike(found, expected, tolerance=2e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))
        ),
        found,
        expected,
    )


def in_one_kernel(function, *operands):
    """A function of one sequence for a batch, by an interpreted kernel."""
    return with_kernels(jax.vmap(fusion.fused(function)))(*operands)


def covariances(rng, count, size):
    factors = rng.normal(size=(count, size, size))
    return jnp.asarray(factors @ factors.transpose(0, 2, 1) + 0.5 * np.eye(size), jnp.float32)


def problem(count, states, observed, seed=0):
    """Innovations, matrices, prior covariances, noise, and what was seen of it."""
    rng = np.random.default_rng(seed)
    floats = functools.partial(jnp.asarray, dtype=jnp.float32)
    return (
        floats(rng.normal(size=(count, observed))),
        floats(rng.normal(size=(count, observed, states))),
        covariances(rng, count, states),
        covariances(rng, count, observed),
        jnp.asarray(rng.random((count, observed)) < 0.7),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 10, 12])
def test_factors_inverses_and_products_of_every_size_are_numpys(size):
    # Rejects padding that leaks into a result, and a loop over columns that ends too early.
    matrices = covariances(np.random.default_rng(size), 3, size)

    def everything(matrix):
        factor = small_matrices.cholesky.bind(matrix)
        inverse = small_matrices.inverse_lower.bind(factor)
        return factor, inverse, linalg.product(inverse, matrix), linalg.log_determinant(factor)

    factor, inverse, product, determinant = in_one_kernel(everything, matrices)
    expected = np.linalg.cholesky(np.asarray(matrices, float))
    assert_alike(factor, expected)
    assert_alike(inverse, np.linalg.inv(expected))
    assert_alike(product, np.linalg.inv(expected) @ np.asarray(matrices, float))
    assert_alike(determinant, np.linalg.slogdet(np.asarray(matrices, float))[1])
    assert (np.triu(factor, 1) == 0).all()


@pytest.mark.parametrize("count", [1, 3, 700])
@pytest.mark.parametrize("programs", [1, 256])
def test_every_sequence_is_computed_however_they_are_dealt_out(count, programs, monkeypatch):
    # Rejects a last program that reads or writes beyond the batch, or leaves some of it out.
    monkeypatch.setattr(small_kernels, "FEWEST_PROGRAMS", programs)
    matrices = covariances(np.random.default_rng(0), count, 3)
    found = in_one_kernel(lambda matrix: matrix[1:, :2] + matrix[0].sum(), matrices)
    assert_alike(found, matrices[:, 1:, :2] + matrices[:, 0].sum(-1)[:, None, None])


@pytest.mark.parametrize("sizes", [(9, 9, 9), (16, 10, 33), (40, 40, 40)])
def test_products_of_large_matrices_are_products_to_triton(sizes):
    # Rejects operands in the wrong order, padding that leaks in, and tables of all terms.
    rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    left = jnp.asarray(rng.normal(size=(3, rows, inner)), jnp.float32)
    right = jnp.asarray(rng.normal(size=(3, columns, inner)), jnp.float32)

    def everything(left, right):
        shifted = jnp.concatenate([left[1:], left[:9]]), jnp.pad(left, ((0, 0), (2, 0)))
        return linalg.product(left, right.T), left @ right.T, jnp.split(left, [5], 1), shifted

    [equation] = jax.make_jaxpr(fusion.fused(everything))(left[0], right[0]).eqns
    largest, has_products = small_kernels._largest(equation.params["jaxpr"])
    assert has_products
    assert largest <= 64 * 64
    found = in_one_kernel(everything, left, right)
    assert_alike(found, jax.vmap(everything)(left, right), 1e-5)


@pytest.mark.parametrize(
    ("states", "observed"), [(3, 2), pytest.param(1, 1, marks=pytest.mark.long), (5, 9)]
)
def test_value_and_derivatives_of_an_update_are_those_without_kernels(states, observed):
    innovation, *rest, seen = problem(3, states, observed)

    def total(update):
        def function(innovation, matrix, prior, noise):
            found = jax.vmap(update)(innovation, matrix, prior, noise, seen)
            return sum(jnp.sin(each).sum() for each in found)

        return function

    arguments = (innovation, *rest)
    plain, ours = total(condition), total(fusion.fused(condition))
    value_and_gradient = functools.partial(jax.value_and_grad, argnums=(0, 1, 2, 3))
    expected = jax.jit(value_and_gradient(plain))(*arguments)
    assert_alike(with_kernels(value_and_gradient(ours))(*arguments), expected)

    def change(function):
        return lambda *arguments: jax.jvp(function, arguments, arguments)[1]

    assert_alike(with_kernels(change(ours))(*arguments), jax.jit(change(plain))(*arguments), 1e-4)
    # The second derivative in one direction, forward over reverse.
    expected = jax.jit(jax.grad(change(plain)))(*arguments)
    assert_alike(with_kernels(jax.grad(change(ours)))(*arguments), expected, 2e-4)


def test_a_step_of_a_filter_is_that_without_kernels():
    """Every fused function of a filter can be a kernel, and so can its derivative."""
    filt, model = filtrax.UnscentedKalmanFilter(), beacon_model()
    single = lambda tree: jax.tree.map(  # noqa: E731
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, tree
    )
    model, belief, control = single((model, beacon_prior(), jnp.asarray([0.3, 0.15])))
    value = jnp.asarray([6.0, -2.0], jnp.float32)

    def total(mean, covariance):
        measurement = filtrax.Measurement(value, jnp.eye(2, dtype=jnp.float32))
        before = filtrax.Gaussian(mean, covariance)
        after, info = filt.step(model, before, control, measurement, key=jr.key(0))
        return after.mean.sum() + after.covariance.sum() + info.log_likelihood

    gradient = jax.value_and_grad(total, argnums=(0, 1))
    found = with_kernels(gradient)(belief.mean, belief.covariance)
    jax.clear_caches()
    assert_alike(found, jax.jit(gradient)(belief.mean, belief.covariance), 1e-4)


def test_what_was_not_seen_may_be_anything():
    # Rejects a mask that multiplies, as zero times what is not a number is none.
    innovation, matrix, prior, noise, seen = problem(4, 3, 3)
    hidden = jnp.where(seen, innovation, jnp.nan)
    found = in_one_kernel(condition, hidden, matrix, prior, noise, seen)
    assert_alike(found, jax.vmap(condition)(innovation, matrix, prior, noise, seen))


@pytest.mark.parametrize("size", [3, 4])
def test_roots_of_singular_and_indefinite_matrices(size):
    # Rejects padding that makes a matrix regular, or one sequence that spoils its neighbours.
    regular = np.array(covariances(np.random.default_rng(0), 4, size))
    regular[1, 0, :] = regular[1, :, 0] = 0  # without variance in one component
    regular[2] = np.outer(np.arange(1, size + 1), np.arange(1, size + 1))  # of rank 1
    regular[3, 0, 0] = -1  # indefinite
    matrices = jnp.asarray(regular)
    found = in_one_kernel(linalg.square_root, matrices)
    assert_alike(found[:2], jax.vmap(linalg.square_root)(matrices[:2]))
    np.testing.assert_allclose(found[2] @ found[2].T, matrices[2], rtol=1e-5)
    assert not np.isfinite(found[3]).all()
    finite = in_one_kernel(lambda matrix: jnp.isfinite(linalg.square_root(matrix)).all(), matrices)
    np.testing.assert_array_equal(finite, [True, True, True, False])


def test_differences_of_angles_are_few_operations():
    # Rejects remainders: with them a prediction by sigma points takes Triton minutes to compile.
    traced = jax.make_jaxpr(POSE.difference)(jnp.zeros(3), jnp.zeros(3))
    assert len(traced.eqns) <= 20
    assert "rem" not in str(traced)


def test_angles_are_wrapped_as_outside_of_kernels():
    angles = jnp.asarray(np.random.default_rng(0).normal(scale=9, size=(50, 3)), jnp.float32)
    found = in_one_kernel(POSE.wrap, angles)
    turns = (found - jax.vmap(POSE.wrap)(angles)) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-5)
    assert (np.abs(found[:, 2]) <= np.pi + 1e-5).all()


def test_arrays_are_cut_joined_turned_and_summed_as_by_jax():
    rng = np.random.default_rng(0)
    matrices = jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)

    def everything(matrix):
        first, second = jnp.split(matrix, [2])
        stacked = jnp.stack([matrix, -matrix])
        padded = jnp.pad(matrix, ((1, 2), (0, 1)))
        joined = jnp.concatenate([second, jnp.zeros_like(first), first])
        chosen = jnp.where(matrix > 0, matrix, 1.0)
        return (
            (first, second, stacked, stacked[1], padded, joined, chosen, matrix[:, None].T),
            (matrix[-1] @ matrix.T, jnp.tensordot(matrix, matrix, 2), jnp.outer(*matrix[:2])),
            ((matrix > 0).any(0), (matrix > -1).all(), jnp.concatenate([matrix[0] > 0] * 2)),
            (jnp.eye(3, dtype=jnp.float32) - jnp.diag(matrix[0]), jnp.tril(matrix), 1 / matrix),
            (
                jnp.einsum("nij,nkj->nik", stacked, stacked),
                jnp.einsum("nij,nj->ni", stacked, padded[:2, :3]),
            ),
            (jnp.sin(matrix), jnp.cos(matrix), jnp.tanh(matrix), jnp.arctan2(matrix, matrix[:1])),
        )

    found = in_one_kernel(everything, matrices)
    assert_alike(found, jax.vmap(everything)(matrices), 1e-6)


def test_a_row_for_all_rows_does_not_reach_into_the_padding():
    # Rejects sums over rows that do not exist, from which a row was taken all the same.
    matrices = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 3)), jnp.float32)

    def spread_of(matrix):
        centred = jax.lax.sub(matrix, matrix[:1])
        return centred.sum(0), (matrix * matrix[:1]).sum()

    assert_alike(in_one_kernel(spread_of, matrices), jax.vmap(spread_of)(matrices))


def test_parts_of_operands_and_of_results_are_loaded_and_stored_one_by_one():
    # Rejects a part at the wrong place, padding that overwrites its neighbour, and tables.
    matrices = jnp.asarray(np.random.default_rng(0).normal(size=(3, 21, 10)), jnp.float32)

    def function(matrix):
        centre, plus, minus = jnp.split(matrix, [1, 11])
        left, right = jnp.split(matrix, [3], 1)
        return (
            jnp.concatenate([centre, plus + centre, minus - centre]),
            jnp.concatenate([right, left], 1),
            jnp.stack([plus[0], minus[9]], 1),
            2 * jnp.concatenate([minus, plus]),
        )

    [equation] = jax.make_jaxpr(fusion.fused(lambda m: function(m)[:3]))(matrices[0]).eqns
    assert small_kernels._largest(equation.params["jaxpr"]) == (256, False)
    assert_alike(in_one_kernel(function, matrices), jax.vmap(function)(matrices), 1e-6)


def test_rows_of_tiles_stay_apart_where_they_can():
    # Rejects parts in the wrong order, and points that are made one tile to be moved and observed.
    rng = np.random.default_rng(0)
    matrices = jnp.asarray(rng.normal(size=(2, 10, 10)), jnp.float32)

    def of_points(matrix):
        """Of points in a row, as a filter does it, backward pass included."""
        points = jnp.concatenate([matrix[:1], 1 + matrix, 2 * matrix])
        moved = jax.vmap(lambda x: matrix @ jnp.sin(x))(points)
        _, plus, minus = jnp.split(moved, [1, 11])
        return plus - minus, moved[11:], points.T @ moved

    [equation] = jax.make_jaxpr(fusion.fused(of_points))(matrices[0]).eqns
    assert small_kernels._largest(equation.params["jaxpr"])[0] <= 16 * 16
    assert_alike(in_one_kernel(of_points, matrices), jax.vmap(of_points)(matrices))

    def of_others(matrix):
        """Where parts do not fit together."""
        first = jnp.concatenate([matrix[:3], matrix[:2]])
        second = jnp.concatenate([matrix[:1], matrix[:4]])
        across = jnp.concatenate([matrix[:, :2], matrix[:, :3]], 1)
        return (
            first + second,
            first + across[:5, :1],
            first[1:4],
            first @ matrix,
            across[:5] @ first,
        )

    assert_alike(in_one_kernel(of_others, matrices), jax.vmap(of_others)(matrices))


def test_what_kernels_cannot_do_is_refused():
    matrices = jnp.ones((2, 3, 3), jnp.float32)
    with pytest.raises(NoKernelError, match="float64"):
        in_one_kernel(linalg.cholesky, matrices.astype(float))
    with pytest.raises(NoKernelError, match="no sort"):
        in_one_kernel(lambda matrix: jnp.sort(matrix), matrices)
    with pytest.raises(NoKernelError, match="reshape"):
        in_one_kernel(jnp.ravel, matrices)
    large = jnp.ones((2, 40, 40), jnp.float32)
    with pytest.raises(NoKernelError, match="262144 numbers"):
        in_one_kernel(lambda matrix: (matrix[:, :, None] * matrix[None]).sum(1), large)


lowers_kernels = pytest.mark.skipif(
    jax.__version_info__ >= (0, 11) and jax.default_backend() == "cpu",
    reason="this version of JAX lowers kernels where there is a GPU alone",
)


@lowers_kernels
@pytest.mark.parametrize(("dtype", "kernels"), [(jnp.float32, 2), (jnp.float64, 0)])
def test_a_gradient_of_an_update_is_two_kernels_on_a_gpu(dtype, kernels):
    def total(*arguments):
        found = jax.vmap(fusion.fused(condition))(*arguments)
        return found.log_likelihood.sum() + found.covariance.sum()

    *numbers, seen = problem(3, 3, 2)
    arguments = (*(each.astype(dtype) for each in numbers), seen)
    traced = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3))).trace(*arguments)
    lowered = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("__gpu$xla.gpu.triton") == kernels


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_in_kernels_are_exact_to_rounding(name):
    rng = np.random.default_rng(0)
    near = np.pi / 2 * np.arange(-40, 41)
    angles = np.concatenate([rng.uniform(-1e4, 1e4, 4000), rng.normal(size=4000), near, [0.0]])
    angles = angles.astype(np.float32)
    found = np.asarray(in_one_kernel(getattr(jnp, name), jnp.asarray(angles[:, None])))[:, 0]
    exact = getattr(np, name)(angles.astype(np.float64))
    assert np.abs(found - exact).max() < 1.5e-7
    small = np.abs(angles) < 20
    assert (np.abs(found - exact) <= 5e-7 * np.abs(exact))[small].all()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_angles_in_kernels_are_those_of_neighbours(name):
    angles = np.random.default_rng(0).uniform(1e4, 1e7, 2000).astype(np.float32)
    angles = np.concatenate([angles, np.float32([1e9, -1e15, 3e38])])
    found = np.asarray(in_one_kernel(getattr(jnp, name), jnp.asarray(angles[:, None])))[:, 0]
    exact = getattr(np, name)(angles.astype(np.float64))
    assert (np.abs(found - exact) <= np.spacing(np.abs(angles)).astype(np.float64)).all()
    assert np.abs(found).max() < 1.001


def test_sines_in_kernels_say_what_is_no_number():
    angles = jnp.asarray([[jnp.nan], [jnp.inf], [-jnp.inf]], jnp.float32)
    assert np.isnan(in_one_kernel(jnp.sin, angles)).all()
    assert np.isnan(in_one_kernel(jnp.cos, angles)).all()
