"""Loops as one operation against `lax.scan`, and their kernels, interpreted, against both."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from jax.extend.core import subjaxprs
from jax.interpreters.partial_eval import dce_jaxpr
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import filtrax
from filtrax import accelerate, linalg
from filtrax.accelerate import kernels, limits, loops
from filtrax.accelerate.hoisting import MOVES
from filtrax.filters import filter_trajectory
from systems import as_float32, beacon_model, beacon_trajectory, switching_beacon_model

LENGTH, COUNT = 4, 3


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
    """A matrix, and first vectors, inputs and masks of some sequences."""
    rng = np.random.default_rng(0)
    floats = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    seen = jnp.asarray(rng.random((COUNT, LENGTH)) < 0.7)
    return floats(3, 3), floats(COUNT, 3), floats(COUNT, LENGTH, 3), seen


def of_sequence(scan, matrix, first, pushes, seen):
    return scan(step_of(matrix), (first, jnp.zeros((), first.dtype)), (pushes, seen))


def as_loop(step, first, inputs, *, keep=True):
    return loops.as_loop(step, first, inputs, keep=keep)(first, inputs)


def without_more(step, first, inputs):
    """Keeps nothing for a backward pass but what is carried."""
    return as_loop(step, first, inputs, keep=False)


def as_hooked(step, first, inputs):
    """As `run` asks for it."""
    otherwise = lambda first, inputs: lax.scan(step, first, inputs)  # noqa: E731
    return accelerate.scan(step, first, inputs, otherwise, keep=True)


def total_of(scan, axes=(None, 0, 0, 0)):
    """A function of a batch, whose sequences share what has no axis."""

    def total(*operands):
        (vectors, totals), others = jax.vmap(functools.partial(of_sequence, scan), axes)(*operands)
        return jnp.sin(vectors).sum() + totals.sum() + jnp.cos(others["moved"]).sum()

    return total


DERIVATIVES = {
    "value": lambda f: f,
    "gradient": lambda f: jax.grad(f, argnums=(0, 1, 2)),
    "forward": lambda f: jax.jacfwd(f, argnums=(0, 1)),
    "forward over reverse": lambda f: jax.hessian(f, argnums=(0, 1)),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f, argnums=1), argnums=(0, 2)),
}


def assert_alike(results, expected, tolerance=2e-5):
    def compare(result, right):
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(result, right, rtol=tolerance, atol=tolerance * scale)

    jax.tree.map(compare, results, expected)


def loops_in(jaxpr):
    own = [equation for equation in jaxpr.eqns if equation.primitive is loops.operation]
    return own + [loop for inner in subjaxprs(jaxpr) for loop in loops_in(inner)]


def used_loops(function, *operands):
    """The loops that are left once nothing is computed in vain."""
    return loops_in(dce_jaxpr(jax.make_jaxpr(function)(*operands).jaxpr, True)[0])


def names_in(loop):
    return [equation.primitive.name for equation in kernels.all_equations(loop.params["jaxpr"])]


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("ours", [as_loop, without_more])
def test_values_and_derivatives_are_those_of_a_scan(name, ours):
    # Rejects shared operands whose gradient is that of the last step, or of one sequence.
    derivative = DERIVATIVES[name]
    results, expected = (
        jax.jit(derivative(total_of(scan)))(*arguments()) for scan in (ours, lax.scan)
    )
    assert_alike(results, expected)


@pytest.mark.parametrize("name", ["value", "gradient", "forward"])
@pytest.mark.parametrize("fewest_programs", [1, limits.FEWEST_PROGRAMS])
def test_kernels_have_the_values_of_a_scan(name, fewest_programs, interpreted, monkeypatch):
    """Rejects places of another sequence or step.

    With few programs, each has several sequences, and the last one too many.
    """
    monkeypatch.setattr(limits, "FEWEST_PROGRAMS", fewest_programs)
    derivative = DERIVATIVES[name]
    results, expected = (
        jax.jit(derivative(total_of(scan)))(*arguments()) for scan in (as_loop, lax.scan)
    )
    assert_alike(results, expected)
    programs = 2 if fewest_programs == 1 else COUNT
    assert interpreted[0] == programs
    assert len(interpreted) == (1 if name == "value" else 2)


@pytest.mark.parametrize("axes", [(0, None, 0, 0), (None, 1, None, 0), (0, 0, 1, None)])
def test_batches_share_what_has_no_axis(axes):
    # Rejects a copy of what is shared for each sequence, and a gradient that is summed twice.
    matrix, firsts, pushes, seen = arguments()
    batches = jnp.stack([matrix, 2 * matrix, -matrix]), firsts, pushes, seen
    operands = [
        batch[0] if axis is None else jnp.moveaxis(batch, 0, axis)
        for batch, axis in zip(batches, axes, strict=True)
    ]
    if axes[0] is None:
        operands[0] = matrix
    gradients = [jax.grad(total_of(scan, axes), (0, 1, 2)) for scan in (as_loop, lax.scan)]
    assert_alike(*(jax.jit(gradient)(*operands) for gradient in gradients))
    [loop] = used_loops(total_of(as_loop, axes), *operands)
    assert sum(loop.params["batched"]) < len(loop.params["batched"])
    assert loop.params["size"] == COUNT


def test_a_loop_in_two_maps_is_one():
    # Rejects a map in a map that becomes one kernel for each sequence of one of them.
    matrix, *others = arguments()
    scales = jnp.asarray([1.0, 2.0], jnp.float32)

    def ends(scan):
        inner = jax.vmap(functools.partial(of_sequence, scan), (None, 0, 0, 0))
        return jax.vmap(lambda scale: inner(scale * matrix, *others))

    assert_alike(ends(as_loop)(scales), ends(lax.scan)(scales))
    [loop] = loops_in(jax.make_jaxpr(ends(as_loop))(scales).jaxpr)
    assert loop.params["size"] == 2 * COUNT


def test_a_gradient_is_a_loop_and_one_in_reverse():
    # Rejects a backward pass of several loops, or one that starts from the first step.
    forward, backward = used_loops(jax.grad(total_of(as_loop)), *arguments())
    assert [loop.params["loop"].reverse for loop in (forward, backward)] == [False, True]
    assert [variable.aval.shape for variable in backward.outvars][-1] == (COUNT, 3, 3)


def test_what_nobody_asks_for_is_not_written():
    # Rejects loops that write diagnostics of each step for nobody.
    def total(*operands):
        (vectors, _), _ = jax.vmap(functools.partial(of_sequence, as_loop), (None, 0, 0, 0))(
            *operands
        )
        return jnp.sin(vectors).sum()

    [loop] = used_loops(total, *arguments())
    assert [variable.aval.shape for variable in loop.outvars] == [(COUNT, 3), (COUNT,)]
    forward, _ = used_loops(jax.grad(total), *arguments())
    assert (COUNT, LENGTH, 3) in [variable.aval.shape for variable in forward.outvars]
    with_moved, _ = used_loops(jax.grad(total_of(as_loop)), *arguments())
    assert len(forward.outvars) < len(with_moved.outvars)


@pytest.mark.parametrize(("ours", "products"), [(as_loop, 2), (without_more, 3)])
def test_what_is_kept_is_not_computed_again(ours, products):
    """Rejects a backward pass that computes a product again, or keeps what nobody wants kept.

    The gradient of a product takes two, and its value is needed for that of what follows.
    """
    _, backward = used_loops(jax.grad(total_of(ours), argnums=(0, 1)), *arguments())
    assert names_in(backward).count("filtrax_product") == products


def test_what_does_not_depend_on_the_belief_is_computed_before_the_loop(interpreted):
    # Rejects random numbers, logarithms of inputs and sums of parameters in each step.
    matrix, [first, *_], [pushes, *_], _ = arguments()
    keys = jr.split(jr.key(0), LENGTH)

    def step(carry, inputs):
        push, key = inputs
        noise = jr.normal(key, push.shape, push.dtype)
        moved = linalg.product(jnp.sort(matrix), carry) + noise * jnp.log(push**2)
        return moved, (moved.sum(), noise, 2.0, jnp.arange(3))

    [loop] = loops_in(jax.make_jaxpr(functools.partial(as_loop, step))(first, (pushes, keys)).jaxpr)
    assert {*names_in(loop)} <= {"filtrax_product", "add", "mul", "reduce_sum"} | MOVES
    results = jax.jit(functools.partial(as_loop, step))(first, (pushes, keys))
    expected = lax.scan(step, first, (pushes, keys))
    assert_alike(results, expected)
    dtypes = [[leaf.dtype for leaf in jax.tree.leaves(tree)] for tree in (results, expected)]
    assert dtypes[0] == dtypes[1]
    assert interpreted == [1]


def refused_step(case, step):
    """The step with something that is no part of a kernel."""

    def changed(carry, inputs):
        carry, results = step(carry, inputs)
        if case == "a sort":
            results = jnp.sort(results["moved"])
        if case == "a print of what is carried":
            jax.debug.print("{}", carry[0])
        if case == "another type":
            results = carry[0].astype(jnp.float16)
        return carry, results

    return changed


LIMITS = {
    "many parameters": ("MOST_PARAMETERS", 8),
    "many operations": ("MOST_OPERATIONS", 5),
    "many inputs": ("MOST_INPUTS", 3),
    "large results": ("LARGEST_RESULT", 15),
}


@pytest.mark.parametrize(
    "case",
    [*LIMITS, "double precision", "a sort", "a print of what is carried", "another type"],
)
def test_what_is_no_small_kernel_stays_a_scan(case, monkeypatch):
    # Rejects kernels that take minutes to compile, fill all registers, or leave something out.
    matrix, [first, *_], [pushes, *_], [seen, *_] = arguments()
    if case in LIMITS:
        monkeypatch.setattr(limits, *LIMITS[case])
    if case == "double precision":
        matrix, first, pushes = (array.astype(float) for array in (matrix, first, pushes))
    start = first, jnp.zeros((), first.dtype)
    step = refused_step(case, step_of(matrix))
    assert loops.as_loop(step, start, (pushes, seen)) is None


@pytest.mark.parametrize("change", ["type", "shape"])
def test_a_belief_is_float32_of_one_shape(change):
    # Rejects integers in registers that are float32, and a belief that grows.
    first = {"type": jnp.zeros(3, jnp.int32), "shape": jnp.zeros(3, jnp.float32)}[change]

    def step(carry, inputs):
        moved = carry + inputs.astype(carry.dtype)
        return (moved if change == "type" else jnp.append(moved, 1.0).astype(jnp.float32)), None

    assert loops.as_loop(step, first, jnp.ones((LENGTH, 3), jnp.float32)) is None


def test_limits_admit_what_is_at_them(monkeypatch):
    # Rejects limits that are one too low, or tests of refusals that are of something else.
    matrix, [first, *_], [pushes, *_], [seen, *_] = arguments()
    monkeypatch.setattr(limits, "MOST_PARAMETERS", 9)
    monkeypatch.setattr(limits, "MOST_INPUTS", 4)
    start = first, jnp.zeros((), first.dtype)
    assert loops.as_loop(step_of(matrix), start, (pushes, seen)) is not None


def test_a_gradient_is_two_kernels_on_a_gpu(with_gpu, kernels_in):
    # Rejects kernels whose operations Triton does not have, and kernels of what is not used.
    assert kernels_in(jax.value_and_grad(total_of(as_hooked)), *arguments()) == 2


def test_a_program_for_several_devices_has_no_kernels(with_gpu, kernels_in):
    # Rejects a kernel that the compiler cannot divide: each device would compute all sequences.
    mesh = AbstractMesh((COUNT,), ("devices",), axis_types=(AxisType.Auto,))

    def divided(array, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    matrix, *batches = arguments()
    operands = divided(matrix), *(divided(batch, "devices") for batch in batches)
    with pytest.warns(UserWarning, match="divides the program among several devices"):
        assert kernels_in(jax.value_and_grad(total_of(as_hooked)), *operands) == 0


FILTERS = {
    "ekf": filtrax.ExtendedKalmanFilter(),
    "iterated_ekf": filtrax.ExtendedKalmanFilter(iterations=2),
    "ukf": filtrax.UnscentedKalmanFilter(),
    "ukf_paper": filtrax.UnscentedKalmanFilter(redraw=False),
    "mcukf": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=12),
    "imm": filtrax.IMMFilter(),
}


def some_of(names):
    """The filters with these names, and the others where tests may run long."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.long) for name in FILTERS]


@functools.cache
def sequences():
    """Two sequences with angles and inputs, of which some readings are missing."""
    batch = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(as_float32(beacon_trajectory(3, i)) for i in range(2))
    )
    seen = jnp.asarray([[[1, 1], [1, 0], [0, 0]], [[1, 1], [1, 1], [0, 1]]], bool)
    changes = jnp.where(seen, batch.readings, jnp.nan), seen
    is_none = lambda leaf: leaf is None  # noqa: E731
    return eqx.tree_at(lambda t: (t.readings, t.observed), batch, changes, is_leaf=is_none)


def filtered(name):
    """A function of a model that depends on all beliefs of some sequences, and the model."""
    model = as_float32(switching_beacon_model() if name == "imm" else beacon_model())
    batch = sequences()

    def of_sequence(model, sequence):
        result = filter_trajectory(FILTERS[name], model, sequence, key=jr.key(0))
        total = result.log_likelihood
        for belief in (result.beliefs, getattr(result.beliefs, "components", None)):
            if hasattr(belief, "log_weights"):
                total += jnp.sin(jnp.exp(belief.log_weights)).sum()
            elif belief is not None:
                total += belief.mean.sum() + belief.covariance.sum()
        return total

    return lambda model: jax.vmap(of_sequence, (None, 0))(model, batch).sum(), model


def with_and_without(function, *operands):
    """The results of a function, and those that it has without loops."""
    results = eqx.filter_jit(function)(*operands)
    with filtrax.acceleration(False):
        return results, eqx.filter_jit(function)(*operands)


@pytest.mark.parametrize("name", some_of(["ukf"]))
def test_filters_have_the_values_and_gradients_that_they_have_without(
    name, loops_on_cpu, monkeypatch
):
    # Rejects loops that read the wrong step's mask, and gradients that stop at the loop.
    monkeypatch.setattr(limits, "MOST_OPERATIONS", 1000)
    loss, model = filtered(name)
    results, expected = with_and_without(eqx.filter_value_and_grad(loss), model)
    assert_alike(results, expected)
    assert [loop.reverse for loop in loops_on_cpu] == [False, True]
    assert np.isfinite(expected[0])


@pytest.mark.parametrize("name", some_of(["ekf"]))
def test_filters_are_kernels_with_the_same_values_and_gradients(name, interpreted, monkeypatch):
    # Rejects rules that are right alone, and wrong in the step of a filter or in its transpose.
    monkeypatch.setattr(limits, "MOST_OPERATIONS", 1000)
    loss, model = filtered(name)
    results, expected = with_and_without(eqx.filter_value_and_grad(loss), model)
    assert_alike(results, expected, 5e-5)
    assert interpreted == [2, 2]


@pytest.mark.parametrize("name", some_of(["ukf", "ukf_paper"]))
def test_filters_are_kernels_with_the_same_values(name, interpreted, monkeypatch):
    # Rejects padding that leaks into a belief, and parts of points in the wrong order.
    monkeypatch.setattr(limits, "MOST_OPERATIONS", 1000)
    loss, model = filtered(name)
    assert_alike(*with_and_without(loss, model))
    assert interpreted == [2]


@pytest.mark.parametrize("name", some_of(["ukf"]))
def test_filters_are_kernels_of_a_gpu(name, with_gpu, kernels_in, monkeypatch):
    # Rejects a step that Triton has no program for, from which a loop would fall back.
    monkeypatch.setattr(limits, "MOST_OPERATIONS", 1000)
    loss, model = filtered(name)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    gradient = jax.value_and_grad(lambda arrays: loss(eqx.combine(arrays, rest)))
    assert kernels_in(gradient, arrays) == 2
