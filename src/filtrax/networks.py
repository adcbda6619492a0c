"""Networks, and the features of states and observations that they see."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._types import Context, Key, bound
from filtrax.linalg import imprecise
from filtrax.spaces import AbstractSpace, Euclidean, Space

CELL = 4
"""Height and width of the cells of a `KeypointNetwork`, in pixels."""

SMALLEST_SPREAD = 0.01
"""The smallest spread of a keypoint: below it, the gradient of the square root grows without bound.
"""

EPSILON = 1e-3
"""Added to variances by the layer norm, as in the paper's code."""


class Features(eqx.Module):
    """Turns states or observations into features for a network, and its outputs into natural units.

    ```python
    pose = Space(("x", "y", "heading"), angles=("heading",))
    Features(pose, scale={"x": 10.0}, unseen=("y",), directions=("heading",))
    ```

    **Arguments:**

    - `space`: the space of the vectors.
    - `scale`: what a component is divided by: one number, a mapping from names, or, in a space
      without names, a number for each component.
    - `unseen`: the names of components that are not seen, like a position in a world that is the
      same everywhere.
    - `directions`: the names of angles that are seen as cosine and sine.
    """

    space: AbstractSpace
    scale: float | tuple[float, ...] = eqx.field(static=True)
    unseen: tuple[str, ...] = eqx.field(static=True)
    directions: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        space: AbstractSpace = Euclidean(),
        *,
        scale: float | Mapping[str, float] | Sequence[float] = 1.0,
        unseen: Sequence[str] = (),
        directions: Sequence[str] = (),
    ):
        names = getattr(space, "names", ())
        named = {"unseen": unseen, "directions": directions}
        if isinstance(scale, Mapping):
            named["scale"] = tuple(scale)
            scale = tuple(float(scale.get(name, 1.0)) for name in names)
        for argument, components in named.items():
            unknown = [name for name in components if name not in names]
            check_known(f"`{argument}` must name components of the space", unknown, names)
        periods = dict(zip(names, getattr(space, "periods", ()), strict=True))
        angles = [name for name in names if periods[name] is not None]
        others = [name for name in directions if name not in angles]
        check_known("`directions` must name angles of the space", others, angles)
        numbers = np.asarray(scale, float)
        if not (numbers > 0).all():
            raise ValueError(f"`scale` must be positive, got {scale}.")
        if space.size is not None:
            numbers = np.broadcast_to(numbers, (space.size,))
        self.space = space
        self.scale = float(numbers) if numbers.ndim == 0 else tuple(map(float, numbers))
        self.unseen, self.directions = tuple(unseen), tuple(directions)

    def bind(self, context: Context) -> "Features":
        """The features for one sequence, in the space that its context says."""
        space = bound(self.space, context)
        if space is self.space:
            return self
        return eqx.tree_at(
            lambda features: features.space, self, space, is_leaf=lambda x: x is self.space
        )

    @property
    def size(self) -> int:
        """The number of features of a vector."""
        if self.space.size is None:
            raise ValueError("Features of a `Euclidean` space have no `size`: give them a `Space`.")
        directions = [name for name in self.directions if name not in self.unseen]
        return self.space.size - len(set(self.unseen)) + len(directions)

    def __call__(self, vector: Float[Array, " x"], *others: Any) -> Float[Array, " features"]:
        """The features of a vector, followed by all entries of other trees, like inputs.

        Features are the scaled components in their order, without unseen ones and directions, then
        the cosines and then the sines of all directions.
        """
        entries = [jnp.ravel(leaf) for leaf in jax.tree.leaves(others)]
        return jnp.concatenate([*self._seen(vector), *entries])

    def scaled(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """A vector in the units of the network."""
        return vector / np.asarray(self.scale, vector.dtype)

    def unscaled(self, output: Float[Array, " x"]) -> Float[Array, " x"]:
        """The output of a network in natural units."""
        return output * np.asarray(self.scale, output.dtype)

    def _seen(self, vector: Array) -> list[Array]:
        hidden = {*self.unseen, *self.directions}
        if not hidden:
            return [self.scaled(vector)]
        assert isinstance(self.space, Space)
        names = self.space.names
        shown = np.asarray([j for j, name in enumerate(names) if name not in hidden], int)
        turned = self.space.index(*(name for name in self.directions if name not in self.unseen))
        _, periods = self.space.circular(vector.dtype)
        angles = (vector * (2 * math.pi / periods))[np.asarray(turned, int)]
        return [self.scaled(vector)[shown], jnp.cos(angles), jnp.sin(angles)]


class Fast(eqx.Module):
    """A network that multiplies matrices with the usual precision of its device; see `fast`."""

    network: Callable[..., Any]

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return imprecise(self.network)(*arguments, **options)


def fast(network: Callable[..., Any]) -> Fast:
    """Lets a network inside a filter multiply matrices with the usual precision of its device.

    A filter computes in full precision, its process and observation included. A network that is
    wrapped by `fast` multiplies with ten bits on a GPU, unless `jax_default_matmul_precision` says
    otherwise. Networks of this module do so without being wrapped.
    """
    return Fast(network)


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

    @imprecise
    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            features = jax.nn.relu(layer(features))
        return self.layers[-1](features)


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

    @imprecise
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
    """Keypoints of an image, with their spread and evidence.

    Convolutions give each cell of 4 × 4 pixels, for each of several points, a score and a vote for
    where the point is. A softmax of the scores over all cells weights the votes: their mean is
    the point, their standard deviation its spread, and the logarithm of the mean exponential of
    the scores its evidence. A point is therefore as precise as the votes, anywhere in the image.
    Without votes this is the spatial softmax of Levine et al. (2016) and Finn et al. (2016).

    The output holds the coordinates of the first point, from -1 to 1 across the image; its
    spread along both axes; the evidence of every point; and units of a dense layer with ReLU
    that sees coordinates, spread and evidence of all points.

    **Arguments:**

    - `depth`: the number of channels of the images, which may have any size.
    - `num_features`: the size of the output.
    - `channels`: the output channels of each convolution.
    - `num_points`: the number of points.
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
            start(k, (size, size, inputs, outputs))
            for k, size, (inputs, outputs) in zip(keys, sizes, depths, strict=True)
        )
        self.biases = tuple(jnp.full(outputs, 1e-3) for outputs in channels)
        self.cells = Perceptron((channels[-1], 3 * num_points), key=cells_key)
        num_units = num_features - 4 - num_points
        self.dense = Perceptron((5 * num_points, num_units), key=dense_key)
        self.num_points = num_points

    @imprecise
    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, " outputs"]:
        scores, votes = self._scores_and_votes(image)
        weights = jax.nn.softmax(scores, 0)[:, :, None]
        points = (weights * votes).sum(0)
        variances = (weights * (votes - points[None]) ** 2).sum(0)
        spreads = jnp.sqrt(variances + SMALLEST_SPREAD**2)
        evidence = 0.25 * (jax.nn.logsumexp(scores, 0) - math.log(scores.shape[0]))
        keypoints = jnp.concatenate([points.ravel(), spreads.ravel(), evidence])
        units = jax.nn.relu(self.dense(keypoints))
        return jnp.concatenate([points[0], spreads[0], evidence, units])

    def _scores_and_votes(
        self, image: Float[Array, "h w c"]
    ) -> tuple[Float[Array, "cells points"], Float[Array, "cells points 2"]]:
        """Scores and votes of each cell for each point; a vote is a place in the image."""
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
        # The unit of a vote is two cells on each side, not the width of the image.
        reach = np.asarray([2 * 2 * CELL / width, 2 * 2 * CELL / height], image.dtype)
        centres = jnp.asarray(_cell_centres(height, width), image.dtype)
        return output[:, : self.num_points], centres[:, None, :] + reach[None, None, :] * offsets


def _cell_centres(height: int, width: int) -> np.ndarray:
    """The centres of all cells, as (x, y) from -1 to 1 across the image."""
    y, x = ((2 * CELL * np.arange(-(-n // CELL)) + CELL) / n - 1 for n in (height, width))
    return np.stack([np.tile(x, y.size), np.repeat(y, x.size)], -1)


Stride = int | tuple[int, int]
"""The stride of a convolution along both axes, or along rows and along columns."""

BLOCKS = ((1, 1), (1, 2), (2, 2), (2, 4))
"""Blocks of output pixels that a GPU may compute as one pixel with more channels."""

MANY_CHANNELS = 128
"""The number of output channels that keeps a GPU busy, as `benchmarks/convolutions.py` measures."""

Precision = Literal["full", "bfloat16"]
"""The precision of images and convolutions: that of the parameters, or the 8 binary digits of
bfloat16, which take half the memory. Layers after the convolutions have full precision."""


def with_precision(image: Array, precision: Precision) -> Array:
    """Casts an image to the precision that convolutions have."""
    return image if precision == "full" else image.astype(precision)


def convolved(image: Array, kernel: Array, bias: Array, stride: Stride) -> Array:
    """A convolution and a bias, in the dtype of the image."""
    kernel, bias = kernel.astype(image.dtype), bias.astype(image.dtype)
    return convolve(image, kernel, stride) + bias[None, None, :]


def convolve(image: Array, kernel: Array, stride: Stride) -> Array:
    """An unpadded convolution of (height, width, channels)."""
    # A CPU computes the plain form fastest. A GPU has few fast programs for strides, and hardly any
    # for a handful of channels. The choice is made while the program is lowered.
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
    """The same convolution without a stride and with more channels.

    A block of a × b output pixels becomes one pixel, and so do the a s × b t image pixels by which
    a block advances. Each pixel of the block has a copy of the kernel, at its own place in the
    window that the whole block sees. Images and windows are padded with zeros.
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
    """The block that takes a GPU least time: operations per pixel over its busy share."""
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
    """The window of the image that a block of the output sees, in whole steps of the block."""
    reach = [k + (b - 1) * s for k, b, s in zip(size, block, strides, strict=False)]
    steps = [b * s for b, s in zip(block, strides, strict=True)]
    return tuple(-(-n // step) * step for n, step in zip(reach, steps, strict=True))


def _padded(array: Array, place: tuple[int, int], size: Sequence[int]) -> Array:
    """Pads the first two axes of an array with zeros to a size, with the array at a place."""
    pairs = zip(array.shape, place, size, strict=False)
    edges = [(before, after - n - before) for n, before, after in pairs]
    return jnp.pad(array, [*edges, *[(0, 0)] * (array.ndim - 2)])


def _both_axes(stride: Stride) -> tuple[int, int]:
    return (stride, stride) if isinstance(stride, int) else stride


def _fold(blocks: Array, size: Sequence[int]) -> Array:
    """Reshapes (height, width, channels, ...) to (height / a, width / b, a b channels, ...)."""
    rows, columns = size
    height, width, depth, *others = blocks.shape
    split = blocks.reshape(height // rows, rows, width // columns, columns, depth, *others)
    folded = (height // rows, width // columns, rows * columns * depth, *others)
    return split.swapaxes(1, 2).reshape(folded)


def _unfold(image: Array, size: tuple[int, int]) -> Array:
    """Reshapes (height, width, a b channels) to (a height, b width, channels)."""
    rows, columns = size
    height, width, _ = image.shape
    split = image.reshape(height, width, rows, columns, -1).swapaxes(1, 2)
    return split.reshape(height * rows, width * columns, -1)


def _max_pool(image: Array) -> Array:
    """The maximum of each 2×2 pixels."""
    # The gradient of a windowed reduction is slow on every platform.
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
