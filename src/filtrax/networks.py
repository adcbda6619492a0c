"""Networks without any knowledge of filtering."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax.arrays import Key

CELL = 4
"""Height and width, in pixels, of the cells in which points are looked for."""

SMALLEST_SPREAD = 0.01
"""Of a point; the root of smaller variances would have an ever larger gradient."""


EPSILON = 1e-3
"""What the layer norm adds to variances, as in the paper's code."""


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
            image = _max_pool(jax.nn.relu(convolved(image, kernel, bias, self.stride)))
        return jax.nn.relu(self.dense(image.ravel()))


class ChannelNorm(eqx.Module):
    """Layer norm over the channels of each pixel, with a gain and an offset for each channel.

    It computes with the precision of its parameters, and returns the type of the image.
    """

    gain: Float[Array, " channels"]
    offset: Float[Array, " channels"]

    def __init__(self, channels: int):
        self.gain, self.offset = jnp.ones(channels), jnp.zeros(channels)

    def __call__(self, image: Float[Array, "h w channels"]) -> Float[Array, "h w channels"]:
        exact = image.astype(self.gain.dtype)
        centred = exact - exact.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + EPSILON)
        return (normal * self.gain[None, None, :] + self.offset[None, None, :]).astype(image.dtype)


class KeypointNetwork(eqx.Module):
    """Points that are found in an image, how certain they are, and what follows from both.

    Convolutions give each cell of 4 × 4 pixels, for each of several points, a score and a vote for
    where the point is. A softmax of the scores over all cells weights the votes: their mean is
    the point, their standard deviation its spread, and the logarithm of the mean exponential of
    the scores its evidence. So a point is as exact as the votes, wherever it is. Without votes
    this is the spatial softmax of Levine et al. (2016) and Finn et al. (2016).

    The output holds the coordinates of the first point, from -1 to 1 across the image; its
    spread along both axes; the evidence of every point; and units of a dense layer with ReLU
    that sees coordinates, spread and evidence of all points.

    **Arguments:**

    - `depth`: channels of the images, which may have any size.
    - `num_features`: the size of the output.
    - `channels`: of the convolutions.
    - `num_points`: how many points are looked for.
    """

    kernels: tuple[Float[Array, "k k inputs outputs"], ...]
    biases: tuple[Float[Array, " outputs"], ...]
    cells: Perceptron
    dense: Perceptron
    num_points: int = eqx.field(static=True)

    def __init__(
        self,
        depth: int,
        *,
        num_features: int,
        channels: Sequence[int] = (16, 16, 16),
        num_points: int = 4,
        key: Key,
    ):
        cells_key, dense_key, *keys = jr.split(key, 2 + len(channels))
        start = jax.nn.initializers.glorot_normal()
        sizes = [2 * CELL, *[3] * (len(channels) - 1)]
        depths = itertools.pairwise((depth, *channels))
        self.kernels = tuple(
            start(k, (size, size, *both)) for k, size, both in zip(keys, sizes, depths, strict=True)
        )
        self.biases = tuple(jnp.full(outputs, 1e-3) for outputs in channels)
        self.cells = Perceptron((channels[-1], 3 * num_points), key=cells_key)
        rest = num_features - 4 - num_points
        self.dense = Perceptron((5 * num_points, rest), key=dense_key)
        self.num_points = num_points

    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, " outputs"]:
        scores, votes = self._scores_and_votes(image)
        weights = jax.nn.softmax(scores, 0)[:, :, None]
        points = (weights * votes).sum(0)
        variances = (weights * (votes - points[None]) ** 2).sum(0)
        spreads = jnp.sqrt(variances + SMALLEST_SPREAD**2)
        evidence = 0.25 * (jax.nn.logsumexp(scores, 0) - math.log(scores.shape[0]))
        found = jnp.concatenate([points.ravel(), spreads.ravel(), evidence])
        units = jax.nn.relu(self.dense(found))
        return jnp.concatenate([points[0], spreads[0], evidence, units])

    def _scores_and_votes(
        self, image: Float[Array, "h w c"]
    ) -> tuple[Float[Array, "cells points"], Float[Array, "cells points 2"]]:
        """Of each cell for each point; votes are coordinates."""
        height, width, _ = image.shape
        # Half a cell on each side, so that the windows of the first kernel are about their cells.
        edges = [(CELL // 2, CELL // 2 + -size % CELL) for size in (height, width)]
        padded = jnp.pad(image, (*edges, (0, 0)))
        signal = jax.nn.relu(convolved(padded, self.kernels[0], self.biases[0], CELL))
        for kernel, bias in zip(self.kernels[1:], self.biases[1:], strict=True):
            padded = jnp.pad(signal, ((1, 1), (1, 1), (0, 0)))
            signal = jax.nn.relu(convolved(padded, kernel, bias, 1))
        output = jax.vmap(self.cells)(signal.reshape(-1, signal.shape[-1]))
        offsets = output[:, self.num_points :].reshape(-1, self.num_points, 2)
        # A vote of one means a disc's width away, two cells, and not the width of the image.
        reach = np.asarray([2 * 2 * CELL / width, 2 * 2 * CELL / height], image.dtype)
        middles = jnp.asarray(_cell_middles(height, width), image.dtype)
        return output[:, : self.num_points], middles[:, None, :] + reach[None, None, :] * offsets


def _cell_middles(height: int, width: int) -> np.ndarray:
    """Where the middles of all cells are, as (x, y) from -1 to 1 across the image."""
    y, x = ((2 * CELL * np.arange(-(-n // CELL)) + CELL) / n - 1 for n in (height, width))
    return np.stack([np.tile(x, y.size), np.repeat(y, x.size)], -1)


Stride = int | tuple[int, int]
"""Of a convolution: the same along both axes, or one for the rows and one for the columns."""

BLOCKS = ((1, 1), (1, 2), (2, 2), (2, 4))
"""Of pixels of a convolution's output, which a GPU may compute as one pixel with more channels."""

MANY_CHANNELS = 128
"""So many channels of an output keep a GPU busy: `benchmarks/convolutions.py` measures it."""


Precision = Literal["full", "bfloat16"]
"""Of images and of what convolutions make of them: that of the parameters, or 8 binary digits, of
which a GPU moves half as many bytes. All that follows the convolutions has full precision."""


def with_precision(image: Array, precision: Precision) -> Array:
    """An image as convolutions are to see it."""
    return image if precision == "full" else image.astype(precision)


def convolved(image: Array, kernel: Array, bias: Array, stride: Stride) -> Array:
    """What a layer of a network makes of an image, in the type of the image."""
    kernel, bias = kernel.astype(image.dtype), bias.astype(image.dtype)
    return convolve(image, kernel, stride) + bias[None, None, :]


def convolve(image: Array, kernel: Array, stride: Stride) -> Array:
    """An unpadded convolution of (height, width, channels)."""
    # A CPU is fastest with what it is told; a GPU has few fast programs for strides, and hardly
    # any for a handful of channels. The choice is made when a program is lowered.
    plain = functools.partial(_plain_convolution, stride=stride)
    block = _best_block(kernel.shape, _both_axes(stride))
    widened = functools.partial(_widened_convolution, stride=stride, block=block)
    return jax.lax.platform_dependent(image, kernel, cuda=widened, rocm=widened, default=plain)


def _plain_convolution(image: Array, kernel: Array, stride: Stride) -> Array:
    return jax.lax.conv_general_dilated(
        image[None],
        kernel,
        _both_axes(stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]


def _widened_convolution(
    image: Array, kernel: Array, stride: Stride, block: tuple[int, int]
) -> Array:
    """The same without a stride and with more channels.

    A block of a × b pixels of the output becomes one pixel, and what they advance by in the image,
    a s × b t pixels, becomes one there. Each pixel of the block has a copy of the kernel, where it
    lies in the window that all of them see. What is missing of images and windows is filled with
    zeros.
    """
    strides, size = _both_axes(stride), kernel.shape[:2]
    step = [b * s for b, s in zip(block, strides, strict=True)]
    window = _window(size, strides, block)
    left = [(n - k) // s + 1 for n, k, s in zip(image.shape, size, strides, strict=False)]
    count = [-(-n // b) for n, b in zip(left, block, strict=True)]
    places = [(i * strides[0], j * strides[1]) for i in range(block[0]) for j in range(block[1])]
    copies = [_padded(kernel, place, window) for place in places]
    seen = [(n - 1) * a + w for n, a, w in zip(count, step, window, strict=True)]
    image = _padded(image[: seen[0], : seen[1]], (0, 0), seen)
    wide = _plain_convolution(_fold(image, step), _fold(jnp.concatenate(copies, -1), step), 1)
    return _unfold(wide, block)[: left[0], : left[1]]


def _best_block(shape: Sequence[int], strides: tuple[int, int]) -> tuple[int, int]:
    """The block for which a GPU takes least time.

    That goes with the operations for each pixel, over the part of the GPU that is busy.
    """
    outputs = shape[-1]
    if 2 * outputs >= MANY_CHANNELS:
        return BLOCKS[0]

    def cost(block: tuple[int, int]) -> float:
        busy = min(outputs * math.prod(block), MANY_CHANNELS)
        return math.prod(_window(shape, strides, block)) / busy

    return min(BLOCKS, key=cost)


def _window(
    size: Sequence[int], strides: tuple[int, int], block: tuple[int, int]
) -> tuple[int, ...]:
    """What a block of the output sees of an image, in whole steps of the block."""
    reach = [k + (b - 1) * s for k, b, s in zip(size, block, strides, strict=False)]
    steps = [b * s for b, s in zip(block, strides, strict=True)]
    return tuple(-(-n // step) * step for n, step in zip(reach, steps, strict=True))


def _padded(array: Array, place: tuple[int, int], size: Sequence[int]) -> Array:
    """An array at a place in another one of zeros, whose first two axes have a size."""
    pairs = zip(array.shape, place, size, strict=False)
    edges = [(before, after - n - before) for n, before, after in pairs]
    return jnp.pad(array, [*edges, *[(0, 0)] * (array.ndim - 2)])


def _both_axes(stride: Stride) -> tuple[int, int]:
    return (stride, stride) if isinstance(stride, int) else stride


def _fold(blocks: Array, size: Sequence[int]) -> Array:
    """(height, width, channels, ...) to (height / a, width / b, a b channels, ...)."""
    rows, columns = size
    height, width, depth, *rest = blocks.shape
    split = blocks.reshape(height // rows, rows, width // columns, columns, depth, *rest)
    folded = (height // rows, width // columns, rows * columns * depth, *rest)
    return split.swapaxes(1, 2).reshape(folded)


def _unfold(image: Array, size: tuple[int, int]) -> Array:
    """(height, width, a b channels) to (a height, b width, channels)."""
    rows, columns = size
    height, width, _ = image.shape
    split = image.reshape(height, width, rows, columns, -1).swapaxes(1, 2)
    return split.reshape(height * rows, width * columns, -1)


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
