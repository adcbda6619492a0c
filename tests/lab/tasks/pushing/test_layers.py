"""Layers against their definitions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.layers import (
    Convolution,
    dense,
    draw_weights,
    max_pool,
    resize,
    with_small_output,
)

IMAGE = np.random.default_rng(0).normal(size=(11, 14, 3))


@pytest.mark.parametrize(("stride", "padding"), [(2, "SAME"), (2, "VALID"), (4, "SAME")])
def test_pooling_is_a_windowed_reduction(stride, padding):
    # Rejects another padding, windows without overlap, and a gradient for another pixel.
    window, steps = (stride + 1, stride + 1, 1), (stride, stride, 1)

    def windowed(image):
        return jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, window, steps, padding)

    weights = np.random.default_rng(1).normal(size=jax.eval_shape(windowed, IMAGE).shape)
    results = [
        jax.jit(jax.value_and_grad(lambda image, pool=pool: (pool(image) * weights).sum()))(IMAGE)
        for pool in (windowed, lambda image: max_pool(image, stride, padding))
    ]
    for ours, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_the_gradient_of_pooling_goes_to_one_pixel_where_several_are_equal():
    total = lambda image: max_pool(image, 2, "VALID").sum()  # noqa: E731
    gradient = jax.jit(jax.grad(total))(jnp.ones((5, 5, 1)))
    assert gradient.sum() == 4
    assert gradient.max() == 1


def test_resizing_is_linear_between_the_centres_of_pixels():
    resized = jax.jit(resize, static_argnums=1)(IMAGE, (30, 17))
    np.testing.assert_allclose(resized, jax.image.resize(IMAGE, (30, 17, 3), "linear"), atol=1e-12)


@pytest.mark.parametrize(("stride", "transposed"), [(1, False), (2, False), (1, True)])
def test_convolutions_have_the_size_they_say(stride, transposed):
    convolution = Convolution(5, 3, 2, stride=stride, transposed=transposed)
    kernel = np.random.default_rng(2).normal(size=(5, 5, 3, 2))
    convolution = eqx.tree_at(lambda c: c.kernel, convolution, jnp.asarray(kernel))
    output = eqx.filter_jit(convolution)(jnp.asarray(IMAGE))
    assert output.shape[:2] == convolution.size_after(IMAGE.shape[:2])
    # The window that ends at (4, 6) of an image that may have zeros about it.
    padded = np.pad(IMAGE, ((4, 4), (4, 4), (0, 0))) if transposed else IMAGE
    patch = padded[2 : 2 + 5, 4 : 4 + 5]
    expected = np.einsum("abc,abcd->d", patch, kernel) + 1e-3
    np.testing.assert_allclose(output[2 // stride, 4 // stride], expected, atol=1e-12)


def test_weights_are_drawn_as_glorot_says():
    # Rejects numbers that are shared by layers, and spreads of another layer.
    network = (Convolution(5, 8, 16), dense(300, 40, 10))
    kernel, perceptron = draw_weights(network, key=jax.random.key(0))
    kernels = [kernel.kernel, *(layer.weight for layer in perceptron.layers)]
    for weights, (inputs, outputs) in zip(kernels, ((200, 400), (300, 40), (40, 10)), strict=True):
        std = np.sqrt(2 / (inputs + outputs))
        assert abs(np.std(weights) / std - 1) < 0.1
        assert np.abs(weights).max() < 2 * std / 0.87
    np.testing.assert_array_equal(perceptron.layers[0].bias, 1e-3)
    assert not np.isin(kernels[1].ravel()[:50], kernels[0].ravel()).any()
    small = with_small_output(perceptron, 0.01)
    np.testing.assert_allclose(small.layers[1].weight, 0.01 * kernels[2])
    np.testing.assert_array_equal(small.layers[1].bias, 0.0)
    np.testing.assert_array_equal(small.layers[0].weight, kernels[1])
