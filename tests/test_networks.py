"""Networks against NumPy, and how they start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.networks import ConvolutionalNetwork, Perceptron


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


def numpy_convolution(image, kernel, bias, stride):
    """Unpadded, with ReLU and 2×2 max-pooling that takes what there is at the end."""
    size = kernel.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in image.shape[:2])
    output = np.zeros((rows, columns, kernel.shape[3]))
    for i in range(rows):
        for j in range(columns):
            patch = image[i * stride : i * stride + size, j * stride : j * stride + size]
            output[i, j] = np.maximum(np.einsum("abc,abcd->d", patch, kernel) + bias, 0)
    pooled = np.zeros((-(-rows // 2), -(-columns // 2), kernel.shape[3]))
    for i in range(pooled.shape[0]):
        for j in range(pooled.shape[1]):
            pooled[i, j] = output[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((0, 1))
    return pooled


@pytest.mark.parametrize("shape", [(21, 16, 3), (19, 23, 1)])
def test_a_convolutional_network_equals_numpy_also_for_odd_images(shape, key):
    # Rejects padding with zeros on the wrong side, and flipped kernels or axes.
    network = ConvolutionalNetwork(
        shape, channels=(2, 3), kernel_size=3, stride=2, sizes=(5, 4), key=key
    )
    rng = np.random.default_rng(0)
    biases = tuple(jnp.asarray(rng.normal(size=b.shape)) for b in network.biases)
    network = eqx.tree_at(lambda n: n.biases, network, biases)
    image = rng.normal(size=shape)
    signal = image
    for kernel, bias in zip(network.kernels, network.biases, strict=True):
        signal = numpy_convolution(signal, np.asarray(kernel), np.asarray(bias), 2)
    signal = signal.ravel()
    for layer in network.dense.layers:
        signal = np.maximum(np.asarray(layer.weight) @ signal + np.asarray(layer.bias), 0)

    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def apply(network):
        output = network(jnp.asarray(image))
        return output.sum(), output

    (_, ours), gradient = apply(network)
    np.testing.assert_allclose(ours, signal, rtol=1e-10)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_images_that_are_too_small_for_the_convolutions_are_refused(key):
    build = lambda n: ConvolutionalNetwork(  # noqa: E731
        (n, n, 3), channels=(4, 8), kernel_size=9, stride=2, sizes=(2,), key=key
    )
    with pytest.raises(ValueError, match=r"\(40, 40, 3\) are too small for 2 convolutions"):
        build(40)
    jax.eval_shape(lambda: build(41).kernels)
