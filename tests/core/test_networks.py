"""Networks against NumPy, and how they start."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax import networks
from filtrax.networks import ChannelNorm, ConvolutionalNetwork, KeypointNetwork, Perceptron


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


@pytest.mark.parametrize("block", networks.BLOCKS)
@pytest.mark.parametrize(
    ("shape", "size", "stride"),
    [
        ((12, 10, 3), 5, 2),
        ((12, 12, 2), 7, 4),
        ((9, 11, 4), 5, 2),
        ((9, 12, 2), 5, (1, 2)),
        ((7, 8, 2), 3, 1),
        ((3, 3, 1), 3, 1),
    ],
)
def test_blocks_do_not_change_a_convolution(shape, size, stride, block):
    # Under a map over images and kernels, as an ensemble on several data sets has it.
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(2, 3, *shape)))
    kernels = jnp.asarray(rng.normal(size=(2, size, size, shape[-1], 3)))

    def values_and_gradients(convolve):
        def score(image, kernel):
            output = convolve(image, kernel, stride)
            return (output**2).sum(), output

        both = jax.value_and_grad(score, (0, 1), has_aux=True)
        return jax.jit(jax.vmap(jax.vmap(both, (0, None))))(images, kernels)

    plain = values_and_gradients(networks._plain_convolution)
    widened = functools.partial(networks._widened_convolution, block=block)
    for other in (widened, networks.convolve):
        for ours, theirs in zip(
            jax.tree.leaves(values_and_gradients(other)), jax.tree.leaves(plain), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "stride", "block"),
    [
        ((7, 7, 6, 8), 1, (2, 4)),
        ((5, 5, 16, 16), (1, 2), (2, 2)),
        ((3, 3, 3, 32), 1, (2, 2)),
        ((3, 3, 32, 64), 1, (1, 1)),
    ],
)
def test_few_channels_make_large_blocks(kernel, stride, block):
    assert networks._best_block(kernel, networks._both_axes(stride)) == block


@pytest.mark.parametrize(
    ("platform", "size", "channels"), [("cuda", 12, 16), ("cuda", 13, 16), ("cpu", 12, 2)]
)
def test_a_gpu_computes_blocks(platform, size, channels):
    # Rejects a choice made by the machine that traces, and both branches in one program.
    convolve = jax.jit(lambda image, kernel: networks.convolve(image, kernel, 2))
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((size, size, 3), (7, 7, 3, 2))]
    program = jax.export.export(convolve, platforms=[platform])(*shapes).mlir_module()
    assert program.count("stablehlo.convolution") == 1
    assert ("stride = [2, 2]" in program) == (platform == "cpu")
    (result,) = re.findall(r"stablehlo.convolution.* -> tensor<1x\d+x\d+x(\d+)xf32>", program)
    assert int(result) == channels


def test_a_layer_has_the_type_of_its_image_and_its_parameters_full_gradients():
    # Rejects a bias or a kernel that makes float32 of what should take half the memory.
    rng = np.random.default_rng(0)
    image, kernel, bias = (jnp.asarray(rng.normal(size=s)) for s in ((9, 8, 3), (3, 3, 3, 4), (4,)))

    def layer(parameters, image):
        output = networks.convolved(image, *parameters, 1)
        return output.astype(float).mean(), output

    both = jax.jit(jax.value_and_grad(layer, has_aux=True))
    (_, exact), gradient = both((kernel, bias), image)
    (_, rounded), rough = both((kernel, bias), image.astype("bfloat16"))
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(float), exact, atol=0.02 * np.abs(exact).max())
    for ours, theirs in zip(rough, gradient, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=0.02 * np.abs(theirs).max())


def test_a_norm_of_rounded_channels_is_exact_but_for_its_result():
    # Rejects means and variances with eight digits: a mean of 300 would be off by one.
    image = jnp.asarray(300.0 + 2 * np.arange(8.0)).reshape(1, 1, 8).astype("bfloat16")
    found = ChannelNorm(8)(image)
    exact = ChannelNorm(8)(image.astype(float))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(float), exact, rtol=1 / 256)


def keypoints_by_numpy(network, image):
    """Loops over cells, for images whose height and width are multiples of four."""
    height, width = (n // 4 for n in image.shape[:2])
    kernels, biases = (
        [np.asarray(leaf) for leaf in part] for part in (network.kernels, network.biases)
    )
    wide = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    signal = np.zeros((height, width, kernels[0].shape[-1]))
    for i, j in np.ndindex(height, width):
        patch = wide[4 * i : 4 * i + 8, 4 * j : 4 * j + 8]
        signal[i, j] = np.maximum(np.einsum("abc,abcd->d", patch, kernels[0]) + biases[0], 0)
    wide = np.pad(signal, ((1, 1), (1, 1), (0, 0)))
    signal = np.zeros((height, width, kernels[1].shape[-1]))
    for i, j in np.ndindex(height, width):
        patch = wide[i : i + 3, j : j + 3]
        signal[i, j] = np.maximum(np.einsum("abc,abcd->d", patch, kernels[1]) + biases[1], 0)
    (last,) = network.cells.layers
    scores, votes = [], []
    for i, j in np.ndindex(height, width):
        output = np.asarray(last.weight) @ signal[i, j] + np.asarray(last.bias)
        middle = np.asarray([8 * j + 4, 8 * i + 4]) / (4 * np.asarray([width, height])) - 1
        scores.append(output[:2])
        away = output[2:].reshape(2, 2) * 16 / (4 * np.asarray([width, height]))
        votes.append(middle + away)
    weights = np.exp(scores) / np.exp(scores).sum(0)
    points = np.einsum("cp,cpd->pd", weights, votes)
    spreads = np.sqrt(np.einsum("cp,cpd->pd", weights, (np.asarray(votes) - points) ** 2) + 1e-4)
    evidence = np.log(np.exp(scores).mean(0)) / 4
    found = np.concatenate([points.ravel(), spreads.ravel(), evidence])
    (dense,) = network.dense.layers
    units = np.maximum(np.asarray(dense.weight) @ found + np.asarray(dense.bias), 0)
    return np.concatenate([points[0], spreads[0], evidence, units])


def test_a_keypoint_network_is_a_weighted_vote_of_cells(key):
    # Rejects swapped axes, cells that are off their place, and votes in other units.
    network = KeypointNetwork(3, num_features=11, channels=(5, 6), num_points=2, key=key)
    image = np.random.default_rng(0).normal(size=(16, 24, 3))
    found = eqx.filter_jit(network)(jnp.asarray(image))
    np.testing.assert_allclose(found, keypoints_by_numpy(network, image), rtol=1e-10)


def test_a_point_moves_with_what_is_seen_and_needs_no_multiple_of_four(key):
    network = KeypointNetwork(1, num_features=8, channels=(3, 3), num_points=1, key=key)
    # A network that looks for the brightest cell.
    bright = [jnp.zeros_like(kernel) for kernel in network.kernels]
    bright[0] = bright[0].at[2:6, 2:6].set(1.0)
    bright[1] = bright[1].at[1, 1].set(1.0)
    weight = jnp.zeros_like(network.cells.layers[0].weight).at[0].set(1.0)
    network = eqx.tree_at(
        lambda n: (*n.kernels, n.cells.layers[0].weight), network, (*bright, weight)
    )
    image = jnp.zeros((18, 22, 1)).at[8:12, 4:8].set(1.0)
    moved = jnp.zeros((18, 22, 1)).at[16:18, 20:22].set(1.0)
    points = jnp.stack([eqx.filter_jit(network)(picture)[:2] for picture in (image, moved)])
    expected = np.asarray([[6 / 11 - 1, 10 / 9 - 1], [22 / 11 - 1, 18 / 9 - 1]])
    np.testing.assert_allclose(points, expected, atol=0.02)
