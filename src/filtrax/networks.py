"""Networks without any knowledge of filtering."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax.arrays import Key


class Perceptron(eqx.Module):
    """Fully connected layers with ReLU between them and a linear output.

    Kernels start Glorot-normal and biases at 1e-3, as in the paper. `final_std` sets the
    standard deviation of the last kernel instead (and its bias to zero), so that a head can
    start at, or close to, zero output.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, sizes: Sequence[int], *, final_std: float | None = None, key: Key):
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                f"`sizes` must hold the input size, hidden sizes and output size, all positive: "
                f"got {tuple(sizes)}."
            )
        self.layers = _layers(tuple(sizes), final_std, key)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.relu(layer(inputs))
        return self.layers[-1](inputs)


class ConvolutionalNetwork(eqx.Module):
    """Convolutions with ReLU and 2×2 max-pooling, then fully connected layers with ReLU.

    Convolutions are unpadded; pooling pads an odd image at its end. Images are (height, width,
    channels).

    **Arguments:**

    - `shape`: of the images.
    - `channels`, `kernel_size`, `stride`: one entry of `channels` per convolution; all have the
      same kernel size and stride.
    - `sizes`: of the fully connected layers; the last one is the size of the output.
    """

    kernels: tuple[Float[Array, "k k inputs outputs"], ...]
    biases: tuple[Float[Array, " outputs"], ...]
    dense: Perceptron
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        channels: Sequence[int],
        kernel_size: int,
        stride: int,
        sizes: Sequence[int],
        key: Key,
    ):
        height, width, depth = shape
        dense_key, *keys = jr.split(key, len(channels) + 1)
        kernels, biases = [], []
        for outputs, k in zip(channels, keys, strict=True):
            if min(height, width) < kernel_size:
                raise ValueError(
                    f"Images of shape {shape} are too small for {len(channels)} convolutions "
                    f"with kernels of size {kernel_size} and stride {stride}."
                )
            start = jax.nn.initializers.glorot_normal()
            kernels.append(start(k, (kernel_size, kernel_size, depth, outputs)))
            biases.append(jnp.full(outputs, 1e-3))
            height, width = (-(-((n - kernel_size) // stride + 1) // 2) for n in (height, width))
            depth = outputs
        self.kernels, self.biases, self.stride = tuple(kernels), tuple(biases), stride
        self.dense = Perceptron((height * width * depth, *sizes), key=dense_key)

    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, " outputs"]:
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            image = _convolve(image, kernel, self.stride) + bias[None, None, :]
            image = _max_pool(jax.nn.relu(image))
        return jax.nn.relu(self.dense(image.ravel()))


def _convolve(image: Array, kernel: Array, stride: int) -> Array:
    return jax.lax.conv_general_dilated(
        image[None],
        kernel,
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]


def _max_pool(image: Array) -> Array:
    """The largest of each 2×2 pixels."""
    # Not a windowed reduction, whose gradient is slow on every platform.
    height, width, depth = image.shape
    odd = ((0, height % 2), (0, width % 2), (0, 0))
    image = jnp.pad(image, odd, constant_values=-jnp.inf)
    return image.reshape(-(-height // 2), 2, -(-width // 2), 2, depth).max((1, 3))


@eqx.filter_jit  # compiled as one program, because a network is made of many small draws
def _layers(sizes: tuple[int, ...], final_std: float | None, key: Key) -> tuple[eqx.nn.Linear, ...]:
    pairs = list(itertools.pairwise(sizes))
    starts = [(jax.nn.initializers.glorot_normal(), 1e-3)] * len(pairs)
    if final_std is not None:
        starts[-1] = (jax.nn.initializers.normal(final_std), 0.0)
    layers = []
    for (inputs, outputs), (kernel, bias), k in zip(
        pairs, starts, jr.split(key, len(pairs)), strict=True
    ):
        layer = eqx.nn.Linear(inputs, outputs, key=k)
        start = (kernel(k, layer.weight.shape), jnp.full(outputs, bias))
        layers.append(eqx.tree_at(lambda linear: (linear.weight, linear.bias), layer, start))
    return tuple(layers)
