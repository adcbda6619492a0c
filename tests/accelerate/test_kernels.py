"""Rules of kernels against the operations that they stand for, and kernels, interpreted."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import ad

from filtrax import linalg
from filtrax.accelerate import _triton, kernels, limits, tiles
from filtrax.accelerate.kernels import Loop
from filtrax.accelerate.operations import close
from filtrax.accelerate.rules import RULES, NoKernelError
from filtrax.accelerate.tiles import Joined, Part, tile_of, widened
from filtrax.linalg import derivatives
from systems import POSE

COUNT = 3
"""Sequences."""


def floats(*shape, seed=0):
    """Numbers that all functions of numbers are defined for."""
    return np.random.default_rng(seed).uniform(0.1, 0.9, (COUNT, *shape)).astype(np.float32)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=(COUNT, *shape)).astype(np.float32)


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, (COUNT, *shape)).astype(np.int32)


def flags(*shape, seed=0):
    return np.random.default_rng(seed).random((COUNT, *shape)) < 0.5


def covariances(*shape, seed=0):
    factors = normal(*shape, seed=seed)
    return factors @ factors.swapaxes(-1, -2) + 0.5 * np.eye(shape[-1], dtype=np.float32)


def triangles(*shape, seed=0):
    """Lower triangular matrices with positive diagonals."""
    return np.linalg.cholesky(covariances(*shape, seed=seed))


def jaxpr_of(function, operands):
    """The function of one sequence as a kernel takes it, and what it closes over, in front."""
    shapes = [jax.ShapeDtypeStruct(operand.shape[1:], operand.dtype) for operand in operands]
    return close(lambda *operands: jax.tree.leaves(function(*operands)), shapes)


def of_batch(function, operands):
    """The results of the plain operations."""
    return jax.tree.leaves(jax.jit(jax.vmap(function))(*map(jnp.asarray, operands)))


def padded(array):
    """The tile of an array, which is filled up with zeros."""
    return jnp.pad(array, [(0, 0), *((0, widened(size) - size) for size in array.shape[1:])])


def by_rules(function, *operands):
    """The tiles of the results, computed outside of a kernel."""
    values = lambda *operands: [*map(tile_of, values_of(function, operands))]  # noqa: E731
    return jax.jit(values)(*operands)


def values_of(function, operands):
    """Tiles, or rows of them."""
    consts, jaxpr = jaxpr_of(function, operands)
    shared = [padded(const[None]) for const in consts]
    return kernels.evaluate(jaxpr, [*shared, *map(padded, operands)])


def kernel_of(function, *operands):
    """A function of batches that is one kernel."""
    consts, jaxpr = jaxpr_of(function, operands)
    batched = [False] * len(consts) + [True] * len(operands)

    def kernel(*operands):
        loop, count = Loop(len(batched), 0, 1), len(operands[0])
        with _triton.lowering():
            results = kernels.run_kernel(jaxpr, batched, count, *consts, *operands, loop=loop)
        return [result[:, 0] for result in results]

    return kernel


def in_one_kernel(function, *operands):
    """The results, by a kernel that the CPU interprets."""
    interpret = functools.partial(_triton.launch, interpret=True)
    with mock.patch.object(_triton, "launch", interpret):
        return jax.jit(kernel_of(function, *operands))(*map(jnp.asarray, operands))


def assert_alike(results, expected, tolerance=2e-5):
    for result, right in zip(results, expected, strict=True):
        assert result.dtype == right.dtype
        assert result.shape == right.shape
        scale = float(np.abs(np.nan_to_num(right.astype(float))).max(initial=1.0))
        np.testing.assert_allclose(result, right, rtol=tolerance, atol=tolerance * scale)


def assert_rules_hold(function, *operands, tolerance=2e-5):
    """Tiles have the numbers of the plain operations, and zeros wherever an array has none."""
    expected = of_batch(function, operands)
    for tile, right in zip(by_rules(function, *operands), expected, strict=True):
        assert tile.shape[0] in (1, COUNT)
        assert tile.shape[1:] == tuple(map(widened, right.shape[1:]))
        wide = np.broadcast_to(tile, (COUNT, *tile.shape[1:]))
        inside = wide[tuple(slice(size) for size in right.shape)]
        assert_alike([inside], [right], tolerance)
        assert not wide[~padded(np.ones(right.shape, bool))].any()


def select_of(dtype):
    return lambda which, *cases: lax.select_n(which.astype(dtype), *cases)


def batched_products(left, right):
    """Products of matrices, of vectors, and of several of both."""
    return (
        (left @ right.T, left[0] @ right.T, jnp.tensordot(left, left, 2), left[0] @ right[1]),
        jnp.outer(left[0], right[0]),
        jnp.einsum("ij,ij->i", left, left),
        jnp.einsum("ij,ij->j", left, left),
        jnp.einsum("ij,kj,ij->ik", left, right, left),
    )


def of_each(function, *operands):
    """The same of three matrices at once, as of the modes of a system."""
    return jax.vmap(function), *operands


def of_rows(*sizes, rows=5, hidden=()):
    """Parts with so many columns, some of whose rows are zero."""
    parts = [normal(rows, size, seed=size) for size in sizes]
    for part in parts:
        part[:, list(hidden)] = 0
    return parts


def masked_update(hidden=()):
    """Noise, image and prior of an update with three observations."""
    return *of_rows(4, 6, rows=3, hidden=hidden), normal(5, 6)


def singular(*shape):
    """Covariances, one of which has a component without variance, and one of which is of rank 1."""
    result = covariances(*shape)
    result[1, ..., 1, :] = result[1, ..., :, 1] = 0
    row = np.arange(1, shape[-1] + 1, dtype=np.float32)
    result[2] = row[:, None] * row
    return result


UNARY = "abs neg sign sqrt square ceil exp floor exp2 expm1 log log1p logistic rsqrt acos asin atan"
UNARY += " cos cosh sin sinh tan tanh is_finite one_minus_square"
BINARY = "add mul sub div max min pow atan2 eq ge gt le lt ne"
INTEGER = "add mul sub max min eq ge gt le lt ne"
MATRIX, OTHER = floats(5, 3), floats(5, 3, seed=1)
NOT_FINITE = np.where(flags(5, 3), np.float32(np.nan), np.float32(np.inf))

NEW = {name for name in ("one_minus_square",) if not hasattr(lax, name)}
"""Operations that only a later version of JAX has."""

CASES = {
    **{name: (getattr(lax, name), MATRIX) for name in UNARY.split() if name not in NEW},
    **{name: (getattr(lax, name), MATRIX, OTHER) for name in BINARY.split()},
    **{
        f"{name} of integers": (getattr(lax, name), integers(5, 3), integers(5, 3, seed=1))
        for name in INTEGER.split()
    },
    **{f"{name} of integers": (getattr(lax, name), integers(5, 3)) for name in ("abs", "sign")},
    "eq of flags": (lax.eq, flags(5, 3), flags(5, 3, seed=1)),
    "add of a number": (lambda a: a + 2.0, MATRIX),
    "mul of a number of each": (lambda a, b: a * b, MATRIX, floats()),
    "sub of a row": (lambda a: lax.sub(a, a[:1]), MATRIX),
    "log of negative numbers": (jnp.log, normal(5, 3)),
    "add_any": (ad.add_jaxvals, MATRIX, OTHER),
    "copy": (jnp.copy, MATRIX),
    "convert_element_type": (
        lambda a: (a.astype(bool), a.astype(jnp.int32), (a > 0).astype(jnp.float32)),
        10 * normal(5, 3),
    ),
    "integer_pow": (lambda a: (lax.integer_pow(a, 3), lax.integer_pow(a, -2)), MATRIX),
    "and": (lax.bitwise_and, flags(5, 3), flags(5, 3, seed=1)),
    "or": (lax.bitwise_or, flags(5, 3), flags(5, 3, seed=1)),
    "not": (lax.bitwise_not, flags(5, 3)),
    "is_finite of what is not": (lax.is_finite, NOT_FINITE),
    "select_n": (select_of(bool), flags(5, 3), MATRIX, OTHER),
    "select_n by one flag": (lambda which, a: lax.select_n(which, a, 1 - a), flags(), MATRIX),
    "select_n by an integer": (
        lambda which, a, b: lax.select_n(which, a, b, a - b),
        integers(5, 3) % 3,
        MATRIX,
        OTHER,
    ),
    "select_n instead of what is no number": (lambda a: jnp.where(a < 1, a, 1.0), NOT_FINITE),
    "stop_gradient": (lax.stop_gradient, MATRIX),
    "iota": (
        lambda a: (a + lax.broadcasted_iota(a.dtype, (5, 3), 0), jnp.eye(3, dtype=bool), a[0]),
        MATRIX,
    ),
    "broadcast_in_dim": (
        lambda a, b: (
            jnp.broadcast_to(a[None], (3, 5, 3)),
            lax.broadcast_in_dim(a[0], (3, 5), (0,)),
            jnp.full((3, 5), b),
        ),
        MATRIX,
        floats(),
    ),
    "reshape": (lambda a: (a.reshape(1, 5, 1, 3), a[0].reshape(3, 1)), MATRIX),
    "squeeze": (lambda a: lax.squeeze(a, (0, 2)), floats(1, 5, 1)),
    "transpose": (lambda a: (a.T, lax.transpose(a[None], (2, 0, 1))), MATRIX),
    "reduce_sum": (lambda a: (a.sum(), a.sum(0), a.sum(1)), normal(5, 3)),
    "reduce_sum of integers": (lambda a: a.sum(0, dtype=jnp.int32), integers(5, 3)),
    "reduce_max": (lambda a: (a.max(), a.max(0), a.max(1)), -MATRIX),
    "reduce_max of integers": (lambda a: a.max(0), -abs(integers(5, 3)) - 1),
    "reduce_and": (lambda a: (a.all(), a.all(0), a.all(1)), MATRIX > 0.3),
    "reduce_or": (lambda a: (a.any(), a.any(0), a.any(1)), MATRIX > 0.7),
    "slice": (lambda a: (a[1:4, 2:], a[:2], a[:, :3], a[4, 1]), MATRIX),
    "slice of flags": (lambda a: a[1:4, 2:], flags(5, 3)),
    "pad": (
        lambda a: (jnp.pad(a, ((1, 2), (0, 1))), lax.pad(a, np.float32(2), ((3, 0, 0),) * 2)),
        MATRIX,
    ),
    "pad that cuts": (lambda a: lax.pad(a, np.float32(2), ((-1, 2, 0), (1, -2, 0))), MATRIX),
    "pad that moves": (lambda a: lax.pad(a, np.float32(2), ((-1, 1, 0), (2, -2, 0))), MATRIX),
    "pad of flags": (lambda a: lax.pad(a, np.bool_(True), ((1, 2, 0), (0, 1, 0))), flags(5, 3)),
    "concatenate": (
        lambda a, b: (jnp.concatenate([a, b[:2]]), jnp.concatenate([a, b, a[:, :1]], 1)),
        MATRIX,
        OTHER,
    ),
    "concatenate of flags": (lambda a: jnp.concatenate([a, ~a[:2]]), flags(5, 3)),
    "stack": (lambda a, b: (jnp.stack([a, b, a]), jnp.stack([a[0], b[0]], 1)), MATRIX, OTHER),
    "unstack": (lambda a: (jnp.unstack(a), jnp.unstack(a, axis=1)), MATRIX),
    "split": (lambda a: (jnp.split(a, [2]), jnp.split(a, [1, 2], 1)), MATRIX),
    "dot_general": (batched_products, normal(5, 3), normal(2, 3, seed=1)),
    "dot_general of several": (
        lambda a, b: (jnp.einsum("nij,nkj->nik", a, b), jnp.einsum("nij,nj->ni", a, b[:, 0])),
        normal(3, 5, 3),
        normal(3, 2, 3, seed=1),
    ),
    "dot_general of integers": (lambda a: (a @ a.T, a[0] @ a.T), integers(5, 3)),
    "filtrax_product": (derivatives.multiply, normal(5, 3), normal(3, 2)),
    "filtrax_root_sum": (derivatives.root_sum.bind, *of_rows(5, 7, 1)),
    "filtrax_root_sum of few": (derivatives.root_sum.bind, *of_rows(1, 2, rows=3)),
    "filtrax_root_sum of zero rows": (derivatives.root_sum.bind, *of_rows(5, 2, hidden=(0, 3))),
    "filtrax_array_update": (derivatives.array_update.bind, *masked_update()),
    "filtrax_array_update with a mask": (derivatives.array_update.bind, *masked_update([1])),
    "filtrax_array_update without readings": (
        derivatives.array_update.bind,
        *masked_update([0, 1, 2]),
    ),
    "filtrax_inverse": (derivatives.invert, triangles(5, 5)),
    "filtrax_log_determinant": (
        lambda factor: linalg.log_determinant(factor, linalg.inverse(factor)),
        triangles(5, 5),
    ),
    "filtrax_canonical": (linalg.canonical, triangles(5, 5)),
    "filtrax_cholesky": (linalg.cholesky, covariances(5, 5)),
    "filtrax_square_root": (linalg.square_root, covariances(5, 5)),
    "filtrax_product of several": of_each(derivatives.multiply, normal(3, 5, 3), normal(3, 3, 2)),
    "filtrax_root_sum of several": of_each(
        derivatives.root_sum.bind, normal(3, 3, 2), normal(3, 3, 5)
    ),
    "filtrax_array_update of several": of_each(
        derivatives.array_update.bind, normal(3, 2, 2), normal(3, 2, 5), normal(3, 3, 5)
    ),
    "filtrax_inverse of several": of_each(derivatives.invert, triangles(3, 5, 5)),
    "filtrax_log_determinant of several": of_each(
        lambda factor: linalg.log_determinant(factor, factor), triangles(3, 5, 5)
    ),
    "filtrax_canonical of several": of_each(linalg.canonical, triangles(3, 5, 5)),
    "filtrax_cholesky of several": of_each(linalg.cholesky, covariances(3, 5, 5)),
    "filtrax_square_root of several": of_each(linalg.square_root, covariances(3, 5, 5)),
}
"""Functions of one sequence and their operands, by the rule that they need."""


@pytest.mark.parametrize("name", CASES)
def test_rules_are_the_operations_that_they_stand_for(name):
    # Rejects a rule of another operation, and one that leaves more than zeros in the padding.
    function, *operands = CASES[name]
    equations = kernels.all_equations(jaxpr_of(function, operands)[1])
    assert name.split()[0] in {equation.primitive.name for equation in equations}
    assert_rules_hold(function, *operands)


def test_every_rule_has_its_cases():
    # Rejects a rule that is added without a test.
    assert {name.split()[0] for name in CASES} | NEW == {*RULES}


@pytest.mark.parametrize("name", CASES)
def test_rules_are_programs_of_a_gpu(name, kernels_in):
    # Rejects a rule of operations that Triton does not have, so that a loop would be none.
    function, *operands = CASES[name]
    assert kernels_in(kernel_of(function, *operands), *operands) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 10])
def test_factors_inverses_and_products_of_every_size_are_numpys(size):
    # Rejects padding that leaks into a result, and a loop over columns that ends too early.
    symmetric = covariances(size, size)

    def all_of(matrix):
        factor = derivatives.cholesky.bind(matrix)[0]
        inverse = linalg.inverse(factor)
        product = linalg.product(inverse, matrix)
        return factor, inverse, product, linalg.log_determinant(factor, inverse)

    results = [tile[:, :size, :size] for tile in by_rules(all_of, symmetric)[:3]]
    exact = symmetric.astype(float)
    factor = np.linalg.cholesky(exact)
    expected = factor, np.linalg.inv(factor), np.linalg.inv(factor) @ exact
    assert_alike(results, [array.astype(np.float32) for array in expected], 5e-5)
    assert (np.triu(results[0], 1) == 0).all()
    determinant = by_rules(all_of, symmetric)[3]
    np.testing.assert_allclose(determinant, np.linalg.slogdet(exact)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_orthogonal_transformations_of_every_size(rows):
    # Rejects rows that are not orthonormal, and a row that is taken from those above it.
    parts = of_rows(rows, 2, 5, rows=rows)
    lower, *basis = by_rules(derivatives.root_sum.bind, *parts)
    lower, basis = lower[:, :rows, :rows], np.concatenate([q[:, :rows] for q in basis], -1)
    whole = np.concatenate([padded(part)[:, :rows] for part in parts], -1)
    np.testing.assert_allclose(lower @ basis, whole, atol=2e-6)
    np.testing.assert_allclose(
        basis @ basis.swapaxes(1, 2), np.broadcast_to(np.eye(rows), lower.shape), atol=1e-5
    )
    assert (np.triu(lower, 1) == 0).all()
    assert (np.diagonal(lower, axis1=1, axis2=2) > 0).all()


def test_rows_that_depend_on_others_are_zero():
    # Rejects a division by the length of a row of which nothing is left.
    part = normal(4, 6)
    part[:, 2] = 0
    part[:, 1] = 2 * part[:, 0]
    lower, basis = by_rules(derivatives.root_sum.bind, part)
    np.testing.assert_allclose(lower @ basis[:, :, :6], part, atol=2e-6)
    assert not lower[:, 2].any()
    assert not lower[:, :, 2].any()
    assert not basis[:, 2].any()
    assert np.isfinite(lower).all()


@pytest.mark.parametrize("size", [3, 4])
def test_roots_of_singular_and_indefinite_matrices(size):
    # Rejects padding that makes a matrix regular, or one sequence that spoils its neighbours.
    operand = singular(size, size)
    [root] = in_one_kernel(linalg.square_root, operand)
    assert_alike([root[:2]], [jax.vmap(linalg.square_root)(jnp.asarray(operand[:2]))])
    np.testing.assert_allclose(root[2] @ root[2].T, operand[2], rtol=1e-5)
    beside, alone = (
        by_rules(linalg.square_root, array)[0][:2] for array in (operand, operand[[0, 1, 0]])
    )
    np.testing.assert_array_equal(beside, alone)
    operand[0, 0, 0] = -1  # indefinite
    finite = lambda matrix: jnp.isfinite(linalg.square_root(matrix)).all()  # noqa: E731
    np.testing.assert_array_equal(*in_one_kernel(finite, operand), [False, True, True])


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_in_kernels_are_exact_to_rounding(name):
    # Rejects a quarter of a turn in too few digits, and polynomials of too few terms.
    rng = np.random.default_rng(0)
    near = np.pi / 2 * np.arange(-40, 41)
    angles = np.concatenate([rng.uniform(-1e4, 1e4, 4000), rng.normal(size=4000), near, [0.0]])
    angles = angles.astype(np.float32)
    result = np.asarray(by_rules(getattr(jnp, name), angles)[0])
    exact = getattr(np, name)(angles.astype(np.float64))
    assert np.abs(result - exact).max() < 1.5e-7
    small = np.abs(angles) < 20
    # Half of it where sums and products are one operation, as on a GPU.
    assert (np.abs(result - exact) <= 1.1e-6 * np.abs(exact))[small].all()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_angles_in_kernels_are_those_of_neighbours(name):
    # Rejects a count of quarters that does not fit, and what follows from that: sines above one.
    angles = np.random.default_rng(0).uniform(1e4, 1e7, 2000).astype(np.float32)
    angles = np.concatenate([angles, np.float32([1e9, -1e15, 3e38])])
    result = np.asarray(by_rules(getattr(jnp, name), angles)[0])
    exact = getattr(np, name)(angles.astype(np.float64))
    assert (np.abs(result - exact) <= np.spacing(np.abs(angles)).astype(np.float64)).all()
    assert np.abs(result).max() < 1.001


def test_sines_in_kernels_say_what_is_no_number():
    # Rejects the sine of infinity as that of zero, by which the mistake would not be seen.
    angles = np.asarray([np.nan, np.inf, -np.inf], np.float32)
    for function in (jnp.sin, jnp.cos):
        assert np.isnan(by_rules(function, angles)[0]).all()


def test_differences_of_angles_are_few_operations():
    # Rejects remainders: with them a prediction by sigma points takes Triton minutes to compile.
    traced = jax.make_jaxpr(POSE.difference)(jnp.zeros(3), jnp.zeros(3))
    assert len(traced.eqns) <= 20
    assert "rem" not in str(traced)


def test_angles_are_wrapped_as_outside_of_kernels():
    # Rejects a rule of an angle that lets it leave half a turn to either side.
    angles = 9 * np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    wrapped = np.asarray(by_rules(POSE.wrap, angles)[0])[:, :3]
    turns = (wrapped - jax.vmap(POSE.wrap)(jnp.asarray(angles))) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-5)
    assert (np.abs(wrapped[:, 2]) <= np.pi + 1e-5).all()


@pytest.mark.parametrize("part", [None, Part(0, 1, 2), Part(1, 2, 1)])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("stepwise", [True, False])
def test_places_are_those_of_the_numbers_and_no_others(part, batched, stepwise):
    # Rejects places beyond the last sequence, which an interpreted kernel may read and write.
    count, length, shape, tile = 5, 3, (3, 5), 4
    numbers = np.arange(count * length * 15).reshape(count, length, *shape)
    numbers = numbers if stepwise else np.arange(count * 15).reshape(count, 1, *shape)
    entries = [slice(None)] * 2
    if part is not None:
        entries[part.axis] = slice(part.start, part.start + part.size)
    for first, index in [(0, 0), (4, 2)]:
        step = (jnp.int32(index), length) if stepwise else None
        where, inside = tiles.place(jnp.int32(first), tile, count, shape, batched, part, step)
        where, inside = np.broadcast_arrays(where, inside)
        sequences = slice(first, first + tile) if batched else slice(1)
        expected = numbers[sequences, index if stepwise else 0, *entries]
        np.testing.assert_array_equal(where[inside], expected.ravel())


@pytest.mark.parametrize("products", [False, True], ids=["tables", "products"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool])
def test_entries_move_along_an_axis(products, dtype, monkeypatch):
    # Rejects a shift to the wrong side, and entries that come from the padding.
    if products:
        monkeypatch.setattr(limits, "FEWEST_TERMS", 1)
        monkeypatch.setattr(limits, "SHORTEST_SIDE", 1)
    rng = np.random.default_rng(0)
    for axis, old, new, shift in [(1, 5, 3, 1), (2, 3, 7, -2), (1, 4, 4, 1), (2, 2, 5, 0)]:
        shape = (1, old, 6) if axis == 1 else (1, 6, old)
        array = rng.integers(1, 9, shape).astype(dtype)
        tile = tiles.moved(jnp.asarray(padded(array)), axis, shift, old, new)
        assert tile.dtype == dtype
        expected = np.zeros((*shape[:axis], widened(new), *shape[axis + 1 :]), dtype)
        for j in range(new):
            if 0 <= j + shift < old:
                expected.swapaxes(0, axis)[j] = array.swapaxes(0, axis)[j + shift]
        result = np.asarray(tile)[tuple(slice(size) for size in expected.shape)]
        np.testing.assert_array_equal(result, expected)
        assert np.asarray(tile).astype(float).sum() == expected.astype(float).sum()


def test_a_row_for_all_rows_does_not_reach_into_the_padding():
    # Rejects sums over rows that do not exist, from which a row was taken all the same.
    def spread(matrix):
        centred = lax.sub(matrix, matrix[:1])
        return centred.sum(0), (matrix * matrix[:1]).sum()

    assert_rules_hold(spread, normal(5, 3))


def test_what_was_not_seen_may_be_anything():
    # Rejects a mask that multiplies, as zero times what is not a number is none.
    seen, readings = flags(3), normal(3)
    hidden = np.where(seen, readings, np.float32(np.nan))

    def update(readings, seen, matrix):
        residual = jnp.where(seen, readings, 0.0)
        return linalg.product(jnp.where(seen[:, None], matrix, 0.0), matrix.T, residual)

    results = in_one_kernel(update, hidden, seen, normal(3, 3))
    assert_alike(results, of_batch(update, (readings, seen, normal(3, 3))))


PARTS = {
    "numbers": (lambda a, b: 2 * jnp.concatenate([a, b]) + 1, True),
    "two alike": (lambda a, b: jnp.concatenate([a, b]) * jnp.concatenate([b[:1], a, b[1:]]), False),
    "two in the same parts": (
        lambda a, b: jnp.concatenate([a, b]) * jnp.concatenate([-a, b]),
        True,
    ),
    "columns": (lambda a, b: (jnp.concatenate([a, a], 1) > 0.5).astype(a.dtype), True),
    "an array of one number": (
        lambda a, b: jnp.where(jnp.concatenate([a, b]) > 0.5, a[0, 0], 2.0),
        False,
    ),
    "transposed": (lambda a, b: jnp.concatenate([a, b]).T, True),
    "rows of a product": (lambda a, b: jnp.concatenate([a, b]) @ a.T, True),
    "columns of a product": (lambda a, b: b @ jnp.concatenate([a, b]).T, True),
    "terms of a product": (
        lambda a, b: jnp.concatenate([a, b]).T @ jnp.concatenate([a, -b]),
        False,
    ),
    "terms of one side": (
        lambda a, b: jnp.concatenate([a, b]).T @ jnp.full((7, 2), a[0, 0]),
        False,
    ),
    "split as joined": (lambda a, b: jnp.split(jnp.concatenate([a, b]), [5])[1], False),
    "split elsewhere": (lambda a, b: jnp.split(jnp.concatenate([a, b]), [4])[1], False),
    "split across": (lambda a, b: jnp.split(jnp.concatenate([a, b]), [1], 1)[1], False),
    "sliced as joined": (lambda a, b: jnp.concatenate([a, b])[5:], False),
    "sliced elsewhere": (lambda a, b: jnp.concatenate([a, b])[4:, :2], False),
    "a row for all": (lambda a, b: jnp.concatenate([a, b]) - a[:1], False),
    "a column for all": (lambda a, b: jnp.concatenate([a, b], 0) * a[0, 0], True),
    "a stack": (lambda a, b: -jnp.stack([a[0], b[0], a[1]]), True),
    "no rows": (lambda a, b: jnp.concatenate([a, b[:0], b]), True),
    "summed": (lambda a, b: jnp.concatenate([a, b]).sum(0), False),
}
"""Operations on tiles in a row, and whether their results are such a row again."""


@pytest.mark.parametrize("name", PARTS)
def test_operations_on_parts(name):
    # Rejects parts in the wrong order, and an operation on neighbours that is done part by part.
    function, stays_in_parts = PARTS[name]
    operands, kinds = (floats(5, 3), floats(2, 3, seed=1)), []
    assert_rules_hold(function, *operands)

    def value(*operands):
        [result] = values_of(function, operands)
        kinds.append(type(result))
        return tile_of(result)

    jax.eval_shape(value, *operands)
    assert (kinds == [Joined]) == stays_in_parts


def test_rows_of_tiles_stay_apart_where_they_can():
    # Rejects points that are made one tile to be moved and observed, with a table of all of them.
    def of_points(matrix):
        points = jnp.concatenate([matrix[:1], 1 + matrix, 2 * matrix])
        moved = jnp.sin(points) @ matrix.T
        _, plus, minus = jnp.split(moved, [1, 11])
        return plus - minus, moved[11:], points.T @ moved

    matrix = normal(10, 10)
    assert largest_in(of_points, matrix)[0] <= 16 * 16
    assert_alike(in_one_kernel(of_points, matrix), of_batch(of_points, [matrix]))


def largest_in(function, *operands):
    consts, jaxpr = jaxpr_of(function, operands)
    return kernels.largest_result(jaxpr, Loop(len(consts) + len(operands), 0, 1))


def test_parts_of_operands_and_of_results_are_loaded_and_stored_one_by_one():
    # Rejects a part at the wrong place, padding that overwrites its neighbour, and tables.
    def taken(matrix):
        centre, plus, minus = jnp.split(matrix, [1, 11])
        left, right = jnp.split(matrix, [3], 1)
        return (
            jnp.concatenate([centre, plus + centre, minus - centre]),
            jnp.concatenate([right, left], 1),
            jnp.stack([plus[0], minus[9]], 1),
        )

    def function(matrix):
        _, plus, minus = jnp.split(matrix, [1, 11])
        return *taken(matrix), 2 * jnp.concatenate([minus, plus])

    matrix = normal(21, 10)
    assert largest_in(taken, matrix) == (256, False)
    assert_alike(in_one_kernel(function, matrix), of_batch(function, [matrix]), 1e-6)


@pytest.mark.parametrize("count", [1, 3, 300])
@pytest.mark.parametrize("programs", [1, 64])
def test_every_sequence_is_computed_however_they_are_dealt_out(count, programs, monkeypatch):
    # Rejects a last program that reads or writes beyond the batch, or leaves some of it out.
    monkeypatch.setattr(limits, "FEWEST_PROGRAMS", programs)
    matrix = np.random.default_rng(0).normal(size=(count, 3, 3)).astype(np.float32)
    function = lambda matrix: matrix[1:, :2] + matrix[0].sum()  # noqa: E731
    assert_alike(in_one_kernel(function, matrix), of_batch(function, [matrix]))


@pytest.mark.parametrize("sizes", [(9, 9, 9), (16, 10, 33), (40, 40, 40)])
def test_products_of_large_matrices_are_products_to_triton(sizes):
    # Rejects operands in the wrong order, padding that leaks in, and tables of all terms.
    rows, inner, columns = sizes
    left, right = normal(rows, inner), normal(columns, inner, seed=1)

    def function(left, right):
        shifted = jnp.concatenate([left[1:], left[:9]]), jnp.pad(left, ((0, 0), (2, 0)))
        return linalg.product(left, right.T), left @ right.T, jnp.split(left, [5], 1), shifted

    largest, has_products = largest_in(function, left, right)
    assert has_products
    assert largest <= 64 * 64
    results = in_one_kernel(function, left, right)
    assert_alike(results, of_batch(function, (left, right)), 1e-5)


LARGE = np.ones((COUNT, 40, 40), np.float32)
REFUSED = {
    "float64": (linalg.cholesky, covariances(3, 3).astype(float)),
    "no sort": (jnp.sort, MATRIX),
    "reshape no more": (jnp.ravel, MATRIX),
    "no strides": (lambda a: a[::2], MATRIX),
    "262144 numbers": (lambda a: (a[:, :, None] * a[None]).sum(1), LARGE),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_kernels_cannot_do_is_refused(message):
    # Rejects a kernel that fails later, when it is compiled, or that fills all registers.
    function, operand = REFUSED[message]
    with pytest.raises(NoKernelError, match=message):
        in_one_kernel(function, operand)


def test_an_array_with_more_numbers_than_can_be_counted_is_refused(monkeypatch):
    # Rejects places that overflow 32 bits.
    monkeypatch.setattr(limits, "MOST_PLACES", MATRIX.size - 1)
    with pytest.raises(NoKernelError, match="too many numbers"):
        in_one_kernel(lambda a: a + 1.0, MATRIX)
