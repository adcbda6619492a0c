"""Noise models: exact starts, floors that hold, factors that belong to their covariances."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from filtrax import Features, Space, StateHead, constant_noise, heteroscedastic_noise
from filtrax.networks import Perceptron
from filtrax.noise import FeatureHead, FixedNoise
from filtrax.training.parts import trainable
from strategies import arrays, covariances

STD = [0.7, 2.0, 1e-3]
CORRELATED = np.asarray([[2.0, 0.6, -0.3], [0.6, 1.5, 0.2], [-0.3, 0.2, 0.9]])
FLOORS = (0.0, 1e-7, (0.0, 0.3, 0.0), (0.1, 0.3, 1e-4))


def with_bias(noise, bias):
    in_units = jnp.asarray(bias, noise.bias.dtype) / noise.unit
    return eqx.tree_at(lambda n: n.bias, noise, in_units)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("floor", [0.0, 1e-7, (0.0, 0.4, 1e-6)])
def test_the_start_value_is_reached(floor, dtype):
    # Rejects a start to which the floor is added, and softplus or exp that only come close.
    std, full = jnp.asarray(STD, dtype), jnp.asarray(CORRELATED, dtype)
    features = jnp.asarray([3.0, -2.0], dtype)
    rounding = 8 * np.finfo(dtype).eps
    three, six = (lambda _, size=size: jnp.zeros(size, dtype) for size in (3, 6))
    for noise in (constant_noise(std, floor), heteroscedastic_noise(three, std, floor)):
        start = np.diag(np.asarray(std, float) ** 2)
        np.testing.assert_allclose(noise.covariance(features), start, rtol=rounding)
    for noise in (constant_noise(full, floor), heteroscedastic_noise(six, full, floor)):
        np.testing.assert_allclose(noise.covariance(features), CORRELATED, atol=2 * rounding)


def test_a_network_with_a_zero_last_layer_starts_at_the_start_value(key):
    head = Perceptron((2, 4, 3), final_std=0.0, key=key)
    noise = heteroscedastic_noise(head, [0.7, 2.0, 1e-3])
    np.testing.assert_array_equal(noise(jnp.asarray([3.0, -2.0])), np.diag([0.7, 2.0, 1e-3]))


def test_standard_deviations_without_a_floor_are_kept_to_the_last_bit():
    std = jnp.asarray([0.1, 0.3, 1e-30, 7e20])
    np.testing.assert_array_equal(constant_noise(std)(), np.diag(std))


@given(covariances(3))
def test_any_covariance_can_be_a_start_singular_ones_too(covariance):
    stds = np.sqrt(np.diagonal(covariance))
    # The square of a smaller number is zero, or has few digits, while its product with another has.
    assume(not ((stds > 0) & (stds < 1e-150)).any() and not covariance[stds == 0].any())
    rounding = 32 * np.finfo(float).eps * np.outer(stds, stds)
    assert (np.abs(constant_noise(covariance).covariance() - covariance) <= rounding).all()


@given(arrays(6, -1e3, 1e3), arrays(6, -1e3, 1e3), st.sampled_from(FLOORS))
def test_the_floor_holds_whatever_the_parameters_and_the_head_say(bias, output, floor):
    floors = np.broadcast_to(floor, 3)
    std, full = np.full(3, 10.0), 100.0 * np.eye(3)
    diagonal = with_bias(heteroscedastic_noise(lambda o: o[:3], std, floor), bias[:3])
    correlated = with_bias(heteroscedastic_noise(lambda o: o, full, floor), bias)
    variances = np.diagonal(diagonal.covariance(jnp.asarray(output)))
    # A variance is the square of a rounded square root.
    assert (variances >= floors * (1 - 2 * np.finfo(float).eps)).all()
    covariance = np.asarray(correlated.covariance(jnp.asarray(output)))
    np.testing.assert_allclose(covariance, covariance.T)
    smallest = np.linalg.eigvalsh(covariance - np.diag(floors)).min()
    assert smallest >= -1e-15 * max(1.0, np.abs(covariance).max())


@given(arrays(6), st.sampled_from(FLOORS), st.integers(0, 7))
def test_the_factor_squared_is_the_covariance(entries, floor, zeros):
    # Rejects a factor that forgets the floor or that is only right where nothing is zero.
    entries[: [0, 1, 2, 3, 4, 5, 6, 6][zeros]] = 0.0
    entries = jnp.asarray(entries)
    for start, output in ((np.full(3, 1.0), entries[:3]), (np.eye(3), entries)):
        constant = with_bias(constant_noise(start, floor), output)
        learned = with_bias(heteroscedastic_noise(lambda o: o, start, floor), 0 * output)
        for noise in (constant, learned):
            factor, covariance = np.asarray(noise(output)), np.asarray(noise.covariance(output))
            stds = np.sqrt(np.diagonal(covariance))
            rounding = 48 * np.finfo(float).eps * np.outer(stds, stds)
            assert (np.abs(factor @ factor.T - covariance) <= rounding).all()


@pytest.mark.parametrize("floor", FLOORS)
def test_full_noise_with_zero_off_diagonals_equals_diagonal_noise(floor):
    std = np.asarray([0.7, 2.0, 0.1])
    diagonal, full = constant_noise(std, floor), constant_noise(np.diag(std**2), floor)
    np.testing.assert_allclose(full.covariance(), diagonal.covariance(), rtol=1e-14)
    np.testing.assert_allclose(full(), diagonal(), rtol=1e-14)


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("start", [np.full(3, 1.0), np.eye(3)], ids=["diagonal", "full"])
def test_gradients_are_finite_at_zero_standard_deviation(start, floor):
    # Rejects √((o + b)²), whose derivative at zero is not a number.
    noise = constant_noise(start, floor)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))

    def scored(bias):
        moved = with_bias(noise, bias)
        return (weights * (moved() + moved.covariance())).sum()

    assert jnp.isfinite(jax.grad(scored)(jnp.zeros_like(noise.bias))).all()


def test_a_standard_deviation_of_zero_without_a_floor_can_be_trained():
    noise = constant_noise([0.0, 1.0])
    gradient = jax.grad(lambda b: jnp.trace(with_bias(noise, b)()))(noise.bias)
    np.testing.assert_array_equal(gradient, 1.0)


@pytest.mark.parametrize("start", [[30.0, 0.1], np.diag([900.0, 0.01])], ids=["diagonal", "full"])
def test_a_step_of_an_optimizer_changes_noise_in_proportion_to_its_start(start):
    # Rejects offsets in natural units, of which 30 px would need a hundred times as many steps.
    noise = constant_noise(start)
    parameters, rest = eqx.partition(noise, trainable(None, noise, ("model",))[1])
    gradient = jax.grad(lambda p: jnp.trace(eqx.combine(p, rest).covariance()))(parameters)
    adam = jax.tree.map(lambda g: -0.01 * jnp.sign(g), gradient)  # its first step
    moved = eqx.combine(eqx.apply_updates(parameters, adam), rest)
    np.testing.assert_allclose(np.diagonal(moved()), [29.7, 0.099], rtol=1e-6)


def test_the_head_is_added_before_squaring_and_fills_the_triangle_row_by_row():
    outputs = jnp.asarray([0.1, -0.2, 0.3, 0.4, -0.5, 0.6])
    diagonal = heteroscedastic_noise(lambda o: o[:3], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(diagonal(outputs), np.diag([1.1, 1.8, 3.3]))
    full = heteroscedastic_noise(lambda o: o, np.diag([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(full(outputs), [[1.1, 0, 0], [-0.2, 2.3, 0], [0.4, -0.5, 3.6]])


def test_a_state_head_sees_scaled_states_and_gives_natural_units():
    features = Features(Space(("x", "y")), scale={"x": 10.0, "y": 2.0})
    state, inputs = jnp.asarray([30.0, 4.0]), jnp.asarray([1.0])
    diagonal = heteroscedastic_noise(StateHead(lambda f: f[:2], features), [1.0, 1.0])
    np.testing.assert_allclose(diagonal(state, inputs), np.diag([31.0, 5.0]))
    full = heteroscedastic_noise(StateHead(lambda f: f, features), np.eye(2))
    np.testing.assert_allclose(full(state, inputs), [[31.0, 0.0], [4.0, 3.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["diagonal", "full", "full next to a larger component"])
def test_a_start_at_its_floor_up_to_rounding_is_not_under_it(shape, dtype):
    # 0.7² is 0.48999999999999994 in floating-point numbers; who writes 0.49 means the same.
    std = jnp.asarray([0.7], dtype)
    start, floor, expected = {
        "diagonal": (std, 0.49, [0.49]),
        "full": (jnp.diag(std**2), 0.49, [0.49]),
        "full next to a larger component": (
            jnp.diag(jnp.append(std, jnp.asarray(1.0, dtype)) ** 2),
            (0.49, 0.0),
            [0.49, 1.0],
        ),
    }[shape]
    variances = np.diagonal(constant_noise(start, floor).covariance())
    np.testing.assert_allclose(variances, expected, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("start", "floor", "message"),
    [
        ([1.0, 0.1], 0.02, "`start` must not be under its floor"),
        ([[1.0, 0.99], [0.99, 1.0]], 0.1, "`start` must not be under its floor"),
        ([[1.0, 2.0], [2.0, 1.0]], 0.0, "`start` must be positive semi-definite"),
        ([[1.0, 0.5], [0.1, 1.0]], 0.0, "`start` must be symmetric"),
        ([[1.0, 0.5]], 0.0, "`start` must be a square matrix"),
        ([[1.0, float("nan")], [float("nan"), 1.0]], 0.0, "`start` must be finite"),
        ([1.0, -0.1], 0.0, "finite and not negative"),
        ([1.0, float("inf")], 0.0, "finite and not negative"),
        (1.0, 0.0, "`start` must be a vector of standard deviations or a covariance matrix"),
        ([1.0, 1.0], -0.1, "`floor` must be finite and not negative"),
        ([1.0, 1.0], (0.1, 0.1, 0.1), "`floor`"),
    ],
)
def test_a_start_that_cannot_be_raises(start, floor, message):
    with pytest.raises(ValueError, match=message):
        constant_noise(start, floor)


@pytest.mark.parametrize("start", [np.ones(3), np.eye(3)], ids=["diagonal", "full"])
def test_a_head_of_the_wrong_size_raises_and_names_both_sizes(start):
    noise = heteroscedastic_noise(lambda o: o, start)
    with pytest.raises(ValueError, match=r"noise head.*\(4,\)"):
        noise.covariance(jnp.zeros(4))


def test_fixed_noise_is_the_noise_without_a_gradient():
    # Rejects noise that is trained after all: nothing would stop the bandwidth of a kernel.
    noise = constant_noise(CORRELATED, 0.1)
    fixed = FixedNoise(noise)
    assert fixed.size == 3
    np.testing.assert_array_equal(fixed(), noise())
    np.testing.assert_array_equal(fixed.covariance(), noise.covariance())
    gradient = eqx.filter_grad(lambda n: n().sum() + n.covariance().sum())(fixed)
    np.testing.assert_array_equal(gradient.noise.bias, 0)


def test_a_feature_head_gives_numbers_in_natural_units():
    # Rejects the scale of the column for an entry of the lower triangle.
    units = Features(Space(("x", "y")), scale={"x": 10.0, "y": 100.0})
    features = jnp.asarray([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(FeatureHead(lambda f: f[:2], units)(features), [10, 200])
    np.testing.assert_array_equal(FeatureHead(lambda f: f, units)(features), [10, 200, 300])


@pytest.mark.parametrize("entries", [2, 3])
def test_a_head_without_units_of_components_gives_natural_ones(entries):
    """Rejects a head of states without names, for whom one scale is that of all entries."""
    start = jnp.ones(2) if entries == 2 else jnp.eye(2)
    network = Perceptron((2, entries), final_std=0.0, key=jax.random.key(0))
    head = StateHead(network, Features(scale=2.0))
    noise = heteroscedastic_noise(head, start)
    np.testing.assert_allclose(noise.covariance(jnp.zeros(2), None), np.eye(2), rtol=1e-12)
    raised = eqx.tree_at(lambda n: n.head.network.layers[-1].bias, noise, jnp.ones(entries))
    expected = [9.0, 9.0] if entries == 2 else [9.0, 13.0]
    np.testing.assert_allclose(np.diag(raised.covariance(jnp.zeros(2), None)), expected)
