"""Perceptrons against NumPy, and how they start."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.networks import Perceptron


def test_a_perceptron_is_linear_maps_with_relu_between_them_and_none_at_the_end(key):
    network = Perceptron((3, 8, 8, 2), key=key)
    inputs = np.random.default_rng(0).normal(size=3)
    signal = inputs
    for layer in network.layers[:-1]:
        signal = np.maximum(np.asarray(layer.weight) @ signal + np.asarray(layer.bias), 0)
    last = network.layers[-1]
    expected = np.asarray(last.weight) @ signal + np.asarray(last.bias)
    np.testing.assert_allclose(network(jnp.asarray(inputs)), expected, rtol=1e-12)


def test_kernels_start_glorot_normal_and_biases_at_a_thousandth(key):
    network = Perceptron((300, 100, 200), key=key)
    for layer in network.layers:
        outputs, inputs = layer.weight.shape
        std = np.sqrt(2 / (inputs + outputs))
        # The variance of a sample variance is at most 2 σ⁴ / n for a truncated normal.
        bound = 5 * np.sqrt(2 / layer.weight.size)
        assert abs(np.asarray(layer.weight).var() / std**2 - 1) < bound
        np.testing.assert_array_equal(layer.bias, 1e-3)


def test_final_std_is_the_standard_deviation_of_the_last_kernel(key):
    network = Perceptron((300, 100, 200), final_std=0.03, key=key)
    last = network.layers[-1]
    bound = 5 * np.sqrt(2 / last.weight.size)
    assert abs(np.asarray(last.weight).var() / 0.03**2 - 1) < bound
    np.testing.assert_array_equal(last.bias, 0)


def test_a_final_std_of_zero_starts_at_zero_output_but_can_be_trained(key):
    # Rejects a head that is zero because an earlier layer is: it would have no gradient.
    network = Perceptron((3, 8, 2), final_std=0.0, key=key)
    inputs = jnp.asarray([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(network(inputs), 0)
    gradient = jax.grad(lambda n: n(inputs).sum())(network)
    assert jnp.abs(gradient.layers[-1].weight).max() > 0


def test_two_keys_give_two_networks():
    first, second = (Perceptron((3, 8, 2), key=jr.key(seed)) for seed in (0, 1))
    assert jnp.abs(first.layers[0].weight - second.layers[0].weight).max() > 0.01


@pytest.mark.parametrize("sizes", [(3,), (), (3, 0, 2)])
def test_sizes_without_meaning_raise(sizes, key):
    with pytest.raises(ValueError, match="`sizes` must hold"):
        Perceptron(sizes, key=key)
