"""Layers of the networks for images of the table."""

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, UInt8

from filtrax._types import Key
from filtrax.linalg import imprecise
from filtrax.networks import Perceptron, convolved

FIRST_BIAS = 1e-3

Network = TypeVar("Network")
Map = Float[Array, "_ _ _"]
"""An array of shape (height, width, channels)."""


class Convolution(eqx.Module):
    """An unpadded convolution, or its transpose without a stride, which enlarges the image.

    The kernel is zero until `draw_weights` replaces it.
    """

    kernel: Float[Array, "k k inputs outputs"]
    bias: Float[Array, " outputs"]
    stride: int = eqx.field(static=True)
    transposed: bool = eqx.field(static=True)

    def __init__(
        self, size: int, inputs: int, outputs: int, *, stride: int = 1, transposed: bool = False
    ):
        self.kernel = jnp.zeros((size, size, inputs, outputs))
        self.bias = jnp.full(outputs, FIRST_BIAS)
        self.stride, self.transposed = stride, transposed

    @imprecise
    def __call__(self, image: Map) -> Map:
        if self.transposed:
            # The kernel is flipped, which makes no difference for learned ones.
            edge = self.kernel.shape[0] - 1
            image = jnp.pad(image, ((edge, edge), (edge, edge), (0, 0)))
        return convolved(image, self.kernel, self.bias, self.stride)

    def size_after(self, size: Sequence[int]) -> tuple[int, int]:
        """Returns height and width of the output; less than one if the input is too small."""
        reach = self.kernel.shape[0] - 1
        change = reach if self.transposed else -reach
        height, width = ((n + change - 1) // self.stride + 1 for n in size)
        return height, width


Layer = Convolution | eqx.nn.Linear


def dense(*sizes: int) -> Perceptron:
    """Makes dense layers whose weights are zero until `draw_weights` replaces them."""
    shapes = eqx.filter_eval_shape(lambda: Perceptron(sizes, key=jr.key(0)))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def draw_weights(network: Network, *, key: Key) -> Network:
    """Draws Glorot-normal kernels, and sets biases to 1e-3, as in the paper.

    All numbers are drawn at once, because separate draws take long to compile.
    """
    parts, structure = jax.tree.flatten(network, is_leaf=_is_layer)
    sizes = [_kernel(part).size if _is_layer(part) else 0 for part in parts]
    ends = np.cumsum(sizes)
    # Divide by the standard deviation of a normal variable truncated at 2.
    numbers = jr.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),)) / 0.87962566103423978
    drawn = [
        _with_weights(part, some) if _is_layer(part) else part
        for part, some in zip(parts, jnp.split(numbers, ends[:-1]), strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def with_small_output(network: Perceptron, factor: float) -> Perceptron:
    """Multiplies the last layer of a perceptron by a factor, and sets its bias to zero.

    With a small factor, the initial output is close to zero.
    """
    last = network.layers[-1]
    numbers = (factor * last.weight, jnp.zeros(last.out_features))
    return eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, numbers)


def _is_layer(part: Any) -> bool:
    return isinstance(part, Layer)


def _kernel(layer: Layer) -> Any:
    return layer.kernel if isinstance(layer, Convolution) else layer.weight


def _with_weights(layer: Layer, numbers: Float[Array, " n"]) -> Layer:
    """Scales weights to Glorot's √(2 / (inputs + outputs)), with fans times the kernel's window."""
    kernel = _kernel(layer)
    window = math.prod(kernel.shape[:-2])
    spread = math.sqrt(2 / (window * sum(kernel.shape[-2:])))
    places = lambda layer: (_kernel(layer), layer.bias)  # noqa: E731
    bias = jnp.full(kernel.shape[-1 if isinstance(layer, Convolution) else 0], FIRST_BIAS)
    return eqx.tree_at(places, layer, (spread * numbers.reshape(kernel.shape), bias))


def max_pool(image: Map, stride: int, padding: str) -> Map:
    """Pools the maximum of windows that overlap by one pixel, such as 3 pixels with stride 2.

    Padding is "SAME" or "VALID", as in TensorFlow.
    """
    size, steps = (stride + 1, stride + 1), (stride, stride)
    pads = jax.lax.padtype_to_pads(image.shape[:2], size, steps, padding)
    image = jnp.pad(image, (*pads, (0, 0)), constant_values=-jnp.inf)
    height, width = ((n - 1) // stride * stride + 1 for n in image.shape[:2])
    return _largest(_largest(image[:height, :width], stride, 0), stride, 1)


# The gradient of `reduce_window` is slow on all platforms. This custom gradient is faster than the
# one that JAX derives, and compiles in half the time.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _largest(image: Map, stride: int, axis: int) -> Map:
    """Returns the maximum along an axis in windows of `stride` + 1 pixels."""
    return _largest_and_where(image, stride, axis)[0]


def _largest_and_where(image: Map, stride: int, axis: int) -> tuple[Map, UInt8[Array, "..."]]:
    """Returns the maximum, and its index in the window (the first of equal ones)."""
    length, shape = image.shape[axis], list(image.shape)
    shape[axis : axis + 1] = [length // stride, stride]
    blocks = jax.lax.slice_in_dim(image, 0, length - 1, axis=axis).reshape(shape)
    after = jax.lax.slice_in_dim(image, stride, length, stride, axis)
    largest = jax.lax.index_in_dim(blocks, 0, axis + 1, keepdims=False)
    where = jnp.zeros(after.shape, jnp.uint8)
    for i in range(1, stride + 1):
        last = i == stride  # the first pixel of the next window
        other = after if last else jax.lax.index_in_dim(blocks, i, axis + 1, keepdims=False)
        larger = other > largest
        largest = jnp.where(larger, other, largest)
        where = jnp.where(larger, jnp.uint8(i), where)
    return largest, where


def _to_largest(stride: int, axis: int, where: UInt8[Array, "..."], gradient: Map) -> tuple[Map]:
    """Returns the cotangent of the image: each maximum's cotangent goes to its pixel."""
    parts = [jnp.where(where == i, gradient, 0.0) for i in range(stride + 1)]
    shape = list(gradient.shape)
    shape[axis] *= stride
    blocks = jnp.stack(parts[:-1], axis + 1).reshape(shape)
    zero, edges = jnp.zeros((), gradient.dtype), [(0, 0, 0)] * 3
    alone = jax.lax.pad(blocks, zero, [*edges[:axis], (0, 1, 0), *edges[axis + 1 :]])
    spaced = [*edges[:axis], (stride, 0, stride - 1), *edges[axis + 1 :]]
    return (alone + jax.lax.pad(parts[-1], zero, spaced),)


_largest.defvjp(_largest_and_where, _to_largest)


@imprecise
def resize(image: Map, size: tuple[int, int]) -> Map:
    """Resizes an image by linear interpolation between the centres of pixels."""
    height, width, _ = image.shape
    rows, columns = (_weights(n, m) for n, m in ((height, size[0]), (width, size[1])))
    image = jnp.einsum("ih,hwc->iwc", rows.astype(image.dtype), image)
    return jnp.einsum("jw,iwc->ijc", columns.astype(image.dtype), image)


def _weights(inputs: int, outputs: int) -> np.ndarray:
    """Returns the matrix of linear interpolation along one axis."""
    places = np.clip((np.arange(outputs) + 0.5) * inputs / outputs - 0.5, 0, inputs - 1)
    return np.maximum(1 - np.abs(places[:, None] - np.arange(inputs)), 0)
