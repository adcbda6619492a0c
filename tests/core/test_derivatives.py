"""The rule of each primitive against JAX's derivatives of the plain formula.

Tangents of a square root are those of some square root of its square, so what is compared is made
of squares, or of the triangular root as `canonical` has it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

from filtrax import linalg
from filtrax.linalg import derivatives


def array(rng, *shape):
    return jnp.asarray(rng.normal(size=shape))


def squares(*factors):
    return sum(factor @ factor.T for factor in factors)


def covariance(factor):
    """A regular covariance for any square matrix."""
    return factor @ factor.T + 0.3 * jnp.eye(len(factor))


def update(*operands):
    X, Y, L = linalg.array_update(*operands)
    return squares(X), linalg.product(Y, linalg.inverse(X)), squares(L), linalg.product(Y, X.T)


def plain_update(*operands):
    noise, image, prior = operands
    S, across = squares(noise, image), prior @ image.T
    gain = jnp.linalg.solve(S, across.T).T
    return S, gain, squares(prior) - gain @ S @ gain.T, across


def sizes(*shapes):
    return lambda rng: tuple(array(rng, *shape) for shape in shapes)


def triangle(factor):
    """A lower triangular matrix with a positive diagonal."""
    return jnp.tril(factor, -1) + jnp.diag(1.0 + jnp.diagonal(factor) ** 2)


def log_determinant(*parts):
    root = linalg.root_sum(*parts)
    return linalg.log_determinant(root, linalg.inverse(root))


def slogdet(*parts):
    return jnp.linalg.slogdet(squares(*parts))[1]


def quadratic(*arguments):
    *parts, vector = arguments
    return (linalg.product(linalg.inverse(linalg.root_sum(*parts)), vector) ** 2).sum()


def plain_quadratic(*arguments):
    *parts, vector = arguments
    return vector @ jnp.linalg.solve(squares(*parts), vector)


def plain_cholesky(matrix):
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


ROOTS = {
    "number": sizes((1, 1)),
    "square": sizes((4, 4)),
    "wide": sizes((3, 7)),
    "wide and square": sizes((3, 3), (3, 5), (3, 1)),
    "several": sizes((2, 1), (2, 1), (2, 1)),
    "large": sizes((9, 9), (9, 2)),
}
UPDATES = {
    "numbers": sizes((1, 1), (1, 1), (1, 1)),
    "square": sizes((2, 2), (2, 4), (4, 4)),
    "wide": sizes((2, 3), (2, 5), (3, 5)),
    "much noise": sizes((3, 7), (3, 2), (2, 2)),
    "many observed": sizes((5, 5), (5, 2), (2, 2)),
}


def cases():
    """Ours, the plain formula, and what makes arguments of a generator of random numbers."""
    for rows, inner, columns in ((1, 1, 1), (2, 3, 4), (9, 8, 10)):
        name, shapes = str(rows), sizes((rows, inner), (inner, columns))
        yield f"product {name}", (linalg.product, jnp.matmul, shapes)
    for name, make in ROOTS.items():
        ours = lambda *parts: squares(linalg.root_sum(*parts))  # noqa: E731
        yield f"root_sum {name}", (ours, squares, make)
        ours = lambda *parts: linalg.canonical(linalg.root_sum(*parts))  # noqa: E731
        plain = lambda *parts: plain_cholesky(squares(*parts))  # noqa: E731
        yield f"canonical {name}", (ours, plain, make)
        yield f"log_determinant {name}", (log_determinant, slogdet, make)
        size = make(np.random.default_rng(0))[0].shape[0]
        both = lambda rng, make=make, size=size: (*make(rng), array(rng, size))  # noqa: E731
        yield f"inverse in a quadratic form {name}", (quadratic, plain_quadratic, both)
    for name, make in UPDATES.items():
        yield f"array_update {name}", (update, plain_update, make)
    for size in (1, 2, 4, 5, 9):
        one = sizes((size, size))
        ours = lambda a: linalg.inverse(triangle(a))  # noqa: E731
        yield f"inverse {size}", (ours, lambda a: jnp.linalg.inv(triangle(a)), one)
        plain = lambda a: plain_cholesky(covariance(a))  # noqa: E731
        yield f"cholesky {size}", (lambda a: linalg.cholesky(covariance(a)), plain, one)
        yield f"square_root {size}", (lambda a: linalg.square_root(covariance(a)), plain, one)
    for size in (1, 2, 7):
        yield f"log_sum {size}", (linalg.log_sum, jax.nn.logsumexp, sizes((size,)))


CASES = dict(cases())
of_each_rule = pytest.mark.parametrize("name", CASES)
of_each_primitive = pytest.mark.parametrize(
    "name",
    [
        *("product 2", "root_sum wide and square", "canonical square", "log_determinant wide"),
        *("inverse 4", "array_update much noise", "cholesky 4", "square_root 5", "log_sum 7"),
    ],
)


def scored(function):
    """A number that depends on all entries of all results, and not linearly."""

    def score(*arguments):
        leaves = jax.tree.leaves(function(*arguments))
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
        weights = jnp.asarray(np.random.default_rng(7).normal(size=flat.shape), flat.dtype)
        return jnp.sin(weights * flat).sum()

    return score


def assert_close(found, expected, tolerance=1e-9):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = max(1.0, float(jnp.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def arguments_of(make, seed=0):
    return make(np.random.default_rng(seed))


def compare(ours, plain, arguments, derivative, tolerance=1e-9):
    every = tuple(range(len(arguments)))
    found, expected = (jax.jit(derivative(f, every))(*arguments) for f in (ours, plain))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    assert_close(found, expected, tolerance)


@of_each_rule
def test_values_and_first_derivatives_in_both_modes(name):
    """Rejects a term that is left out, one of a wrong sign, and a triangle that is forgotten."""
    ours, plain, make = CASES[name]
    arguments = arguments_of(make)
    assert_close(jax.jit(ours)(*arguments), plain(*arguments))
    compare(scored(ours), scored(plain), arguments, jax.grad)
    compare(ours, plain, arguments, jax.jacfwd)


@of_each_rule
def test_each_argument_has_its_own_derivative(name):
    """Where the others are constants, their terms are left out; what remains must be whole."""
    ours, plain, make = CASES[name]
    arguments = arguments_of(make, 1)
    for which in range(len(arguments)):
        found, expected = (jax.jit(jax.grad(scored(f), which))(*arguments) for f in (ours, plain))
        assert_close(found, expected)


@of_each_primitive
@pytest.mark.parametrize(
    "order",
    [
        lambda f, n: jax.jacfwd(jax.grad(f, n), n),
        lambda f, n: jax.jacrev(jax.grad(f, n), n),
        lambda f, n: jax.jacfwd(jax.jacfwd(f, n), n),
    ],
    ids=["forward over reverse", "reverse over reverse", "forward over forward"],
)
def test_second_derivatives(name, order):
    """Rejects a rule that holds once: its own results need tangents for the next order."""
    ours, plain, make = CASES[name]
    compare(scored(ours), scored(plain), arguments_of(make, 2), order, 1e-8)


@of_each_primitive
def test_batches_have_the_derivatives_of_single_ones(name):
    """Batches, batches of batches, and batches in which some arguments have no part."""
    ours, plain, make = CASES[name]
    batch = [arguments_of(make, seed) for seed in range(6)]
    stacked = [jnp.stack(leaves) for leaves in zip(*batch, strict=True)]
    every = tuple(range(len(stacked)))
    found, alone = (jax.value_and_grad(scored(f), every) for f in (ours, plain))
    expected = jax.jit(jax.vmap(alone))(*stacked)
    assert_close(jax.jit(jax.vmap(found))(*stacked), expected)
    nested = [leaf.reshape(2, 3, *leaf.shape[1:]).swapaxes(0, 1) for leaf in stacked]
    twice = jax.jit(jax.vmap(jax.vmap(found), 1))(*nested)
    flat = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), twice)
    assert_close(flat, expected)
    for which in every:
        axes = tuple(0 if i == which else None for i in every)
        mixed = [leaf if i == which else leaf[0] for i, leaf in enumerate(stacked)]

        def total(*arguments, f, axes=axes):
            return jax.vmap(scored(f), axes)(*arguments).sum()

        gradients = (jax.grad(functools.partial(total, f=f), every) for f in (ours, plain))
        assert_close(*(jax.jit(gradient)(*mixed) for gradient in gradients))


@of_each_primitive
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_loops_that_compute_steps_again_have_the_same_derivatives(name, policy):
    ours, plain, make = CASES[name]
    draws = [arguments_of(make, seed) for seed in range(3)]
    stacked = [jnp.stack(leaves) for leaves in zip(*draws, strict=True)]

    def total(*arguments, f, again):
        def step(carry, known):
            moved = scored(f)(*(leaf * (1.0 + 0.1 * carry) for leaf in known))
            return jnp.tanh(0.5 * carry + moved), moved

        step = jax.checkpoint(step, prevent_cse=False, policy=policy) if again else step
        carry, each = jax.lax.scan(step, jnp.asarray(0.3), arguments)
        return carry + each.sum()

    every = tuple(range(len(stacked)))
    for derivative in (jax.grad, jax.jacfwd):
        looped = derivative(functools.partial(total, f=ours, again=True), every)
        expected = derivative(functools.partial(total, f=plain, again=False), every)
        assert_close(jax.jit(looped)(*stacked), jax.jit(expected)(*stacked))


def of_rank(rng, rank, rows, columns):
    return array(rng, rows, rank) @ array(rng, rank, columns)


SINGULAR = {
    "of rank one": lambda rng: of_rank(rng, 1, 4, 4),
    "of rank two": lambda rng: of_rank(rng, 2, 4, 6),
    "high": lambda rng: array(rng, 4, 2),
    "with a zero row": lambda rng: array(rng, 4, 4).at[1].set(0.0),
    "with zero rows at both ends": lambda rng: array(rng, 4, 5).at[np.asarray([0, 3])].set(0.0),
    "with equal rows": lambda rng: array(rng, 4, 4).at[2].set(1.0).at[1].set(1.0),
    "zero": lambda rng: jnp.zeros((4, 4)),
}


@pytest.mark.parametrize("kind", SINGULAR)
def test_singular_sums_have_the_derivatives_of_the_formula(kind):
    """Rejects an inverse in a rule, or a square root of zero."""
    rng = np.random.default_rng(0)
    parts = SINGULAR[kind](rng), 0.5 * SINGULAR[kind](np.random.default_rng(0))
    ours = lambda *parts: squares(linalg.root_sum(*parts))  # noqa: E731
    for several in (parts[:1], parts):
        compare(scored(ours), scored(squares), several, jax.grad)
        compare(ours, squares, several, jax.jacfwd)
        # Also of what is made of the sum: with another part it is regular.
        more = (*several, array(rng, 4, 4))
        compare(log_determinant, slogdet, more, jax.grad)
    batch = jax.vmap(jax.grad(scored(ours)))(jnp.stack([parts[0], array(rng, *parts[0].shape)]))
    assert_close(batch[0], jax.grad(scored(squares))(parts[0]))


@pytest.mark.parametrize("kind", SINGULAR)
def test_singular_priors_have_the_derivatives_of_the_formula(kind):
    """Of a prior without a density S and the gain are regular, and the posterior is singular."""
    rng = np.random.default_rng(1)
    matrix, prior = array(rng, 2, 4), SINGULAR[kind](rng)
    arguments = array(rng, 2, 3), matrix, prior

    def of(function):
        return lambda noise, matrix, prior: function(noise, matrix @ prior, prior)

    compare(scored(of(update)), scored(of(plain_update)), arguments, jax.grad)
    compare(of(update), of(plain_update), arguments, jax.jacfwd)


MASKS = {"some": [True, False, True], "last": [False, False, True], "first": [True, False, False]}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("second", [False, True], ids=["first", "second derivatives"])
def test_what_is_masked_has_no_part_in_any_derivative(name, second):
    """Zero rows with ones on the diagonal, as an update has them, against the seen rows alone."""
    seen = np.asarray(MASKS[name])
    rng = np.random.default_rng(2)
    noise, matrix, prior = array(rng, 3, 3), array(rng, 3, 4), array(rng, 4, 5)
    d = array(rng, 3)

    def results(X, Y, L, d):
        inverted = linalg.inverse(X)
        terms = (linalg.product(inverted, d) ** 2).sum() + linalg.log_determinant(X, inverted)
        return terms, linalg.product(Y, linalg.product(inverted, d)), squares(L)

    def masked(noise, matrix, prior, d):
        hide = lambda rows: jnp.where(seen[:, None], rows, 0.0)  # noqa: E731
        X, Y, L = linalg.array_update(hide(noise), hide(matrix @ prior), prior)
        return results(linalg.with_ones(X, jnp.asarray(seen)), Y, L, jnp.where(seen, d, 0.0))

    def deleted(noise, matrix, prior, d):
        noise, matrix, d = noise[seen], matrix[seen], d[seen]
        S = squares(noise, matrix @ prior)
        gain = jnp.linalg.solve(S, matrix @ prior @ prior.T).T
        terms = d @ jnp.linalg.solve(S, d) + jnp.linalg.slogdet(S)[1]
        return terms, gain @ d, squares(prior) - gain @ S @ gain.T

    arguments = noise, matrix, prior, d
    if second:
        order = lambda f, n: jax.jacfwd(jax.grad(f, n), n)  # noqa: E731
        compare(scored(masked), scored(deleted), arguments, order, 1e-8)
    else:
        compare(scored(masked), scored(deleted), arguments, jax.grad)
        compare(masked, deleted, arguments, jax.jacfwd)


def test_components_that_never_vary_have_no_part_in_second_derivatives():
    """Zero rows that stay zero: the rest is a smaller sum of its own."""
    rng = np.random.default_rng(3)
    kept = np.asarray([0, 2, 3])
    arguments = array(rng, 3, 3), array(rng, 3, 2)

    def whole(*parts):
        wide = [jnp.zeros((5, part.shape[1])).at[kept].set(part) for part in parts]
        return squares(linalg.root_sum(*wide))[np.ix_(kept, kept)]

    order = lambda f, n: jax.jacfwd(jax.grad(f, n), n)  # noqa: E731
    compare(scored(whole), scored(squares), arguments, order, 1e-8)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_the_derivative_of_a_root_of_a_covariance_without_some_components(size):
    """Zero rows and columns, which a Cholesky factor does not exist with."""
    rng = np.random.default_rng(size)
    kept = np.asarray([i for i in range(size + 2) if i not in (1, size)][:size])
    factor = array(rng, size, size)

    def whole(factor):
        matrix = jnp.zeros((size + 2, size + 2)).at[np.ix_(kept, kept)].set(covariance(factor))
        return linalg.square_root(matrix)[np.ix_(kept, kept)]

    plain = lambda factor: plain_cholesky(covariance(factor))  # noqa: E731
    compare(scored(whole), scored(plain), (factor,), jax.grad)
    compare(whole, plain, (factor,), jax.jacfwd)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_square_of_a_root_of_a_singular_covariance_moves_with_it(rank):
    """Within the square root of a rounding, by which such a root is uncertain itself."""
    factor = of_rank(np.random.default_rng(rank), rank, 4, 4)
    ours = lambda a: squares(linalg.square_root(squares(a)))  # noqa: E731
    compare(scored(ours), scored(squares), (factor,), jax.grad, 1e-6)
    compare(ours, squares, (factor,), jax.jacfwd, 1e-6)


def test_sums_of_logarithms_of_which_some_are_of_zero():
    logarithms = jnp.asarray([-1.0, -jnp.inf, 2.0, 0.5, -jnp.inf])
    for derivative in (jax.grad, lambda f, n: jax.hessian(f, n)):
        compare(linalg.log_sum, jax.nn.logsumexp, (logarithms,), derivative)


def test_every_primitive_has_its_cases():
    """Rejects a rule that is added without a test."""
    names = {n for n, value in vars(derivatives).items() if isinstance(value, Primitive)}
    assert names == {name.split()[0] for name in CASES}
