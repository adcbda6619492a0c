"""Loops as one operation against `lax.scan`, and their kernels, interpreted, against both."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from jax.extend.core import subjaxprs
from jax.interpreters import mlir
from jax.interpreters.partial_eval import dce_jaxpr

import filtrax
from filtrax import fusion, linalg, loops, small_kernels
from filtrax.filters import filter_trajectory
from systems import beacon_model, beacon_trajectory

pytestmark = pytest.mark.usefixtures("on_gpu")

LENGTH, COUNT = 4, 3


@pytest.fixture
def interpreted():
    """Computes loops by interpreted kernels, and counts them."""
    lengths = []

    def kernel(*operands, jaxpr, loop, batched, size):
        lengths.append(loop.length)
        count = 1 if size is None else size
        found = small_kernels.run_kernel(
            jaxpr, batched, count, *operands, loop=loop, interpret=True
        )
        return [each[0] for each in found] if size is None else found

    mlir.register_lowering(loops.operation, mlir.lower_fun(kernel, multiple_results=True))
    yield lengths
    mlir.register_lowering(loops.operation, mlir.lower_fun(loops._inline, multiple_results=True))


def step_of(matrix):
    """A step that is linear in nothing, and closes over a matrix."""

    def step(carry, inputs):
        vector, total = carry
        push, seen = inputs
        moved = jnp.tanh(linalg.product(matrix, vector)) + jnp.where(seen, push, 0.5 * vector)
        total = total + jnp.log(1 + (moved * push).sum() ** 2)
        return (moved, total), {"moved": moved * total, "seen": seen}

    return step


def arguments():
    rng = np.random.default_rng(0)
    floats = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    seen = jnp.asarray(rng.random((COUNT, LENGTH)) < 0.7)
    return floats(3, 3), floats(COUNT, 3), floats(COUNT, LENGTH, 3), seen


def by_scan(step, first, inputs):
    return lax.scan(step, first, inputs)


def without_more(step, first, inputs):
    """Keeps nothing for a backward pass but what is carried."""
    return loops.scan_in_one(step, first, inputs, keeps=False)


def total_of(scan):
    """Of a batch whose sequences share a matrix."""

    def total(matrix, firsts, pushes, seen):
        def one(first, pushes, seen):
            start = first, jnp.zeros((), first.dtype)
            (vector, total), others = scan(step_of(matrix), start, (pushes, seen))
            return jnp.sin(vector).sum() + total + jnp.cos(others["moved"]).sum()

        return jax.vmap(one)(firsts, pushes, seen).sum()

    return total


DERIVATIVES = {
    "value": lambda f: f,
    "gradient": lambda f: jax.grad(f, argnums=(0, 1, 2)),
    "forward": lambda f: jax.jacfwd(f, argnums=(0, 1)),
    "hessian": lambda f: jax.hessian(f, argnums=0),
}


def assert_alike(found, expected, tolerance=2e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))
        ),
        found,
        expected,
    )


def loops_in(jaxpr):
    own = [each for each in jaxpr.eqns if each.primitive is loops.operation]
    return own + [each for sub in subjaxprs(jaxpr) for each in loops_in(sub)]


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("ours", [loops.scan_in_one, without_more])
def test_values_and_derivatives_are_those_of_a_scan(name, ours):
    # Rejects shared operands whose gradient is that of the last step, or of one sequence.
    found, expected = (
        jax.jit(DERIVATIVES[name](total_of(scan)))(*arguments()) for scan in (ours, by_scan)
    )
    assert_alike(found, expected)


@pytest.mark.parametrize("name", ["value", "gradient"])
@pytest.mark.parametrize("fewest_programs", [1, small_kernels.FEWEST_PROGRAMS])
def test_kernels_have_the_values_of_a_scan(name, fewest_programs, interpreted, monkeypatch):
    # With few programs, each has several sequences, and the last one too many.
    monkeypatch.setattr(small_kernels, "FEWEST_PROGRAMS", fewest_programs)
    found, expected = (
        jax.jit(DERIVATIVES[name](total_of(scan)))(*arguments())
        for scan in (loops.scan_in_one, by_scan)
    )
    assert_alike(found, expected)
    assert len(interpreted) == (1 if name == "value" else 2)


def test_a_loop_in_two_maps_is_one():
    matrix, firsts, pushes, seen = arguments()
    matrices = jnp.stack([matrix, 2 * matrix])

    def ends(scan):
        def one(matrix, first, pushes, seen):
            start = first, jnp.zeros((), first.dtype)
            return scan(step_of(matrix), start, (pushes, seen))

        inner = jax.vmap(one, (None, 0, 0, 0))
        return jax.vmap(lambda matrix: inner(matrix, firsts, pushes, seen))

    assert_alike(ends(loops.scan_in_one)(matrices), ends(by_scan)(matrices))
    [loop] = loops_in(jax.make_jaxpr(ends(loops.scan_in_one))(matrices).jaxpr)
    assert loop.params["size"] == 2 * COUNT


def test_a_gradient_is_a_loop_and_one_in_reverse_without_what_is_not_used():
    # Rejects loops that write diagnostics nobody asked for.
    gradient = jax.grad(lambda *all_of: total_of(loops.scan_in_one)(*all_of))
    used, _ = dce_jaxpr(jax.make_jaxpr(gradient)(*arguments()).jaxpr, True)
    forward, backward = loops_in(used)
    assert [each.params["loop"].reverse for each in (forward, backward)] == [False, True]
    assert (COUNT, LENGTH) not in [v.aval.shape for v in forward.outvars if v.aval.dtype == bool]
    assert [v.aval.shape for v in backward.outvars][-1] == (COUNT, 3, 3)


@pytest.mark.parametrize(("ours", "products"), [(loops.scan_in_one, 2), (without_more, 3)])
def test_what_is_kept_is_not_computed_again(ours, products):
    # The gradient of a product takes two, and its value is needed for that of what follows.
    gradient = jax.grad(total_of(ours), argnums=(0, 1))
    used, _ = dce_jaxpr(jax.make_jaxpr(gradient)(*arguments()).jaxpr, True)
    _, backward = loops_in(used)
    names = [each.primitive.name for each in small_kernels.all_equations(backward.params["jaxpr"])]
    assert names.count("filtrax_product") == products


def double(first):
    return first.astype(jnp.float64)


@pytest.mark.parametrize(
    "case",
    ["a CPU", "double precision", "a sort", "many parameters", "many operations"],
)
def test_what_is_no_small_kernel_stays_a_scan(case, monkeypatch):
    matrix, [first, *_], [pushes, *_], [seen, *_] = arguments()
    if case == "a CPU":
        monkeypatch.setattr(fusion, "for_gpu", lambda: False)
    if case == "double precision":
        matrix, first, pushes = map(double, (matrix, first, pushes))
    if case == "many parameters":
        monkeypatch.setattr(loops, "MOST_PARAMETERS", 8)
    if case == "many operations":
        monkeypatch.setattr(loops, "MOST_OPERATIONS", 5)

    def step(carry, inputs):
        carry, found = step_of(matrix)(carry, inputs)
        return carry, jnp.sort(found["moved"]) if case == "a sort" else found

    start = first, jnp.zeros((), first.dtype)
    assert loops.scan_in_one(step, start, (pushes, seen)) is None


def single(tree):
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, tree
    )


FILTERS = {
    "ekf": filtrax.ExtendedKalmanFilter(),
    "iterated_ekf": filtrax.ExtendedKalmanFilter(iterations=2),
    "ukf": filtrax.UnscentedKalmanFilter(),
    "ukf_paper": filtrax.UnscentedKalmanFilter(redraw=False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_have_the_values_and_gradients_that_they_have_without(name, monkeypatch):
    # The beacons' model has angles, controls, missing readings and nonlinear functions.
    monkeypatch.setattr(loops, "MOST_OPERATIONS", 1000)
    trajectories = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(single(beacon_trajectory(3, i)) for i in range(2))
    )
    seen = jnp.asarray([[[1, 1], [1, 0], [0, 0]], [[1, 1], [1, 1], [0, 1]]], bool)
    trajectories = eqx.tree_at(
        lambda t: t.observed, trajectories, seen, is_leaf=lambda leaf: leaf is None
    )

    def loss(model):
        def one(trajectory):
            beliefs, info = filter_trajectory(FILTERS[name], model, trajectory, key=jr.key(0))
            return beliefs.mean.sum() + beliefs.covariance.sum() + info.log_likelihood.sum()

        return jax.vmap(one)(trajectories).sum()

    model = single(beacon_model())
    assert len(loops_in(eqx.filter_make_jaxpr(loss)(model)[0].jaxpr)) == 1
    found = eqx.filter_jit(eqx.filter_value_and_grad(loss))(model)
    monkeypatch.setattr(fusion, "for_gpu", lambda: False)
    jax.clear_caches()
    expected = eqx.filter_jit(eqx.filter_value_and_grad(loss))(model)
    assert_alike(found, expected, 2e-4)
