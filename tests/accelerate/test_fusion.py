"""Fused operations against the functions that they are made of; a CPU computes them as written."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import subjaxprs
from jax.interpreters.partial_eval import dce_jaxpr

import filtrax
from filtrax import fusion, linalg
from filtrax.filters import filter_trajectory
from filtrax.accelerate.fusion import fused
from systems import beacon_model, beacon_prior, beacon_trajectory


def operations_in(jaxpr):
    """The equations of fused operations, not those inside of them."""
    own = [e for e in jaxpr.eqns if e.primitive is fusion.operation]
    if own:
        return own
    return [each for sub in subjaxprs(jaxpr) for each in operations_in(sub)]


def weighted(matrix, vector, scale):
    """Something of a matrix, a vector and a number, that is linear in none of them."""
    factor = linalg.cholesky(linalg.product(matrix, matrix.T) + jnp.eye(len(matrix)))
    white = linalg.solve_lower(factor, vector)
    return {"white": scale * white, "sum": jnp.log(white**2 + 1).sum()}


def arguments(*leading):
    rng = np.random.default_rng(0)
    shapes = ((3, 3), (3,), ())
    return [jnp.asarray(rng.normal(size=(*leading, *shape))) for shape in shapes]


def assert_alike(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected
    )


def test_a_cpu_traces_the_function_as_it_was_written():
    traced = [str(jax.make_jaxpr(f)(*arguments())) for f in (fused(weighted), weighted)]
    assert traced[0] == traced[1]


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, 0), (None, 1, None)])
def test_values_and_derivatives_of_batches(axes):
    # Rejects a shared operand that gets the gradient of one sequence, or the sum of all twice.
    batches, single = arguments(5), arguments()
    operands = [
        one if axis is None else jnp.moveaxis(many, 0, axis)
        for many, one, axis in zip(batches, single, axes, strict=True)
    ]

    def total(function):
        def wrapped(*operands):
            found = jax.vmap(function, axes)(*operands)
            return sum(jnp.sin(each).sum() for each in jax.tree.leaves(found))

        return wrapped

    derivatives = (
        lambda f: jax.value_and_grad(f, argnums=(0, 1, 2)),
        lambda f: jax.jacfwd(f, argnums=(0, 1, 2)),
        lambda f: jax.hessian(f, argnums=(0, 1)),
    )
    for derivative in derivatives:
        found, expected = (
            jax.jit(derivative(total(f)))(*operands) for f in (fused(weighted), weighted)
        )
        assert_alike(found, expected)


@pytest.mark.usefixtures("on_gpu")
def test_two_batches_are_one():
    # Rejects a map in a map that becomes one kernel for each sequence of one of them.
    matrices, vectors, scales = arguments(2)[0], arguments(4)[1], arguments(2, 4)[2]

    def nested(function):
        inner = jax.vmap(function, (None, 0, 0))
        return jax.vmap(lambda matrix, scale: inner(matrix, vectors, scale))

    found, expected = (nested(f)(matrices, scales) for f in (fused(weighted), weighted))
    assert_alike(found, expected)
    [operation] = operations_in(jax.make_jaxpr(nested(fused(weighted)))(matrices, scales).jaxpr)
    assert operation.params["size"] == 8


@pytest.mark.usefixtures("on_gpu")
def test_a_gradient_is_one_operation_forward_and_one_backward_without_what_is_not_used():
    # Rejects kernels that write diagnostics nobody asked for, each step.
    def total(matrix, vector, scale):
        return jax.vmap(fused(weighted), (0, 0, None))(matrix, vector, scale)["sum"].sum()

    traced = jax.make_jaxpr(jax.value_and_grad(total))(*arguments(3)[:2], arguments()[2])
    used, _ = dce_jaxpr(traced.jaxpr, True)
    forward, backward = operations_in(used)
    assert [each.aval.shape for each in forward.outvars] == [(3,)]
    assert [each.aval.shape for each in backward.outvars] == [(3, 3, 3)]
    assert arguments()[2].shape not in [each.aval.shape for each in forward.invars]


@pytest.mark.usefixtures("on_gpu")
def test_what_a_function_closes_over_is_differentiated():
    matrix, vector, scale = arguments()

    def total(inner):
        return lambda m: inner(lambda v: weighted(m, v, scale))(vector)["sum"]

    found, expected = (jax.jit(jax.grad(total(f)))(matrix) for f in (fused, lambda f: f))
    assert_alike(found, expected)


def in_parts(matrix, vector):
    """The second needs the first directly, and the third what others made of the first."""
    squared = fused(lambda matrix: linalg.product(matrix, matrix))(matrix)
    moved = fused(lambda squared: linalg.product(squared, vector))(squared)
    return fused(lambda x: linalg.product(x, moved))(jnp.cumsum(squared, 0)), squared


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(("dtype", "count"), [(jnp.float32, 2), (jnp.float64, 3)])
def test_operations_in_a_row_are_one_where_they_are_kernels(dtype, count):
    # Rejects an order in which something is needed before it is there.
    operands = [each.astype(dtype) for each in arguments()[:2]]
    together = lambda *operands: fusion.joined(lambda: in_parts(*operands))  # noqa: E731
    assert_alike(jax.jit(together)(*operands), in_parts(*operands))
    first, *others = operations_in(jax.make_jaxpr(together)(*operands).jaxpr)
    assert [len(first.outvars), 1 + len(others)] == [2 if count == 2 else 1, count]
    gradients = [
        jax.grad(lambda *all_of, f=f: jnp.sin(f(*all_of)[0]).sum(), argnums=(0, 1))(*operands)
        for f in (together, in_parts)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), *gradients)


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(("name", "count"), [("ekf", 1), ("iterated_ekf", 2), ("ukf", 3)])
def test_the_algebra_of_a_step_is_few_operations(name, count):
    # Rejects a prediction and an update that are kernels of their own.
    single = lambda tree: jax.tree.map(  # noqa: E731
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, tree
    )
    model, belief, control = single((beacon_model(), beacon_prior(), jnp.asarray([0.3, 0.15])))

    def step(belief, value):
        measurement = filtrax.Measurement(value, jnp.eye(2, dtype=jnp.float32))
        return FILTERS[name].step(model, belief, control, measurement, key=jr.key(0))

    value = jnp.asarray([6.0, -2.0], jnp.float32)
    operations = operations_in(jax.make_jaxpr(step)(belief, value).jaxpr)
    assert len(operations) == count


FILTERS = {
    "ekf": filtrax.ExtendedKalmanFilter(),
    "iterated_ekf": filtrax.ExtendedKalmanFilter(iterations=2),
    "ukf": filtrax.UnscentedKalmanFilter(),
    "ukf_paper": filtrax.UnscentedKalmanFilter(redraw=False),
}


VARIANTS = ("iterated_ekf", "ukf_paper")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in VARIANTS else []) for name in FILTERS],
)
def test_filters_have_the_values_and_gradients_that_they_have_without(name, monkeypatch):
    trajectories = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(beacon_trajectory(3, seed) for seed in range(2))
    )
    seen = jnp.asarray([[[1, 1], [1, 0], [0, 0]], [[1, 1], [1, 1], [0, 1]]], bool)
    trajectories = eqx.tree_at(
        lambda t: t.observed, trajectories, seen, is_leaf=lambda leaf: leaf is None
    )

    def loss(model):
        def one(trajectory):
            beliefs, info = filter_trajectory(
                FILTERS[name], model, trajectory, recompute=True, key=jr.key(0)
            )
            return beliefs.mean.sum() + beliefs.covariance.sum() + info.log_likelihood.sum()

        return jax.vmap(one)(trajectories).sum()

    expected = eqx.filter_jit(eqx.filter_value_and_grad(loss))(beacon_model())
    monkeypatch.setattr(fusion, "for_gpu", lambda: True)
    jax.clear_caches()
    traced = eqx.filter_make_jaxpr(loss)(beacon_model())[0]
    assert operations_in(traced.jaxpr)
    assert_alike(eqx.filter_jit(eqx.filter_value_and_grad(loss))(beacon_model()), expected)
    jax.clear_caches()
