"""The paper's network for the motion between two images (Kloss et al. 2021, KITTI appendix)."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._types import Key
from filtrax.linalg import imprecise
from filtrax.networks import ChannelNorm, Perceptron, Precision, convolved, with_precision

FEATURES = 128
"""The size of the encoding of an image."""

CHANNELS = 16
KERNELS = (7, 5, 5, 5)
STRIDES = ((1, 1), (1, 2), (1, 2), (2, 2))
"""Strides of the paper's convolutions, vertical and horizontal."""


class MotionNetwork(eqx.Module):
    """Unpadded convolutions with ReLU and layer norm, dropout, then dense layers with ReLU.

    A key is only needed for dropout in training, which `eqx.nn.inference_mode` disables.

    **Arguments:**

    - `shape`: height, width and channels of the images.
    - `dropout`: the fraction of the last convolution's output that is dropped.
    - `precision`: the precision of images and convolutions.
    """

    kernels: tuple[Float[Array, "k k inputs outputs"], ...]
    biases: tuple[Float[Array, " outputs"], ...]
    norms: tuple[ChannelNorm, ...]
    dropout: eqx.nn.Dropout
    dense: Perceptron
    precision: Precision = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        dropout: float,
        precision: Precision = "full",
        key: Key,
    ):
        dense_key, *keys = jr.split(key, len(KERNELS) + 1)
        height, width = size_after_convolutions(shape[:2])
        depths = (shape[2], *[CHANNELS] * (len(KERNELS) - 1))
        start = jax.nn.initializers.glorot_normal()
        self.kernels = tuple(
            start(k, (size, size, depth, CHANNELS))
            for k, size, depth in zip(keys, KERNELS, depths, strict=True)
        )
        self.biases = tuple(jnp.full(CHANNELS, 1e-3) for _ in KERNELS)
        self.norms = tuple(ChannelNorm(CHANNELS) for _ in KERNELS)
        self.dropout = eqx.nn.Dropout(dropout)
        sizes = (height * width * CHANNELS, FEATURES, FEATURES)
        self.dense = Perceptron(sizes, key=dense_key)
        self.precision = precision

    @imprecise
    def __call__(
        self, image: Float[Array, "h w c"], *, key: Key | None = None
    ) -> Float[Array, " features"]:
        layers = zip(self.kernels, self.biases, self.norms, STRIDES, strict=True)
        exact, image = image.dtype, with_precision(image, self.precision)
        for kernel, bias, norm, stride in layers:
            image = norm(jax.nn.relu(convolved(image, kernel, bias, stride)))
        return jax.nn.relu(self.dense(self.dropout(image.ravel().astype(exact), key=key)))


def size_after_convolutions(image_size: Sequence[int]) -> tuple[int, int]:
    """Returns height and width of the convolutions' output; raises if the image is too small."""
    left = [_after(size, axis) for axis, size in enumerate(image_size)]
    if min(left) < 1:
        smallest = [next(n for n in range(1, 1000) if _after(n, axis) > 0) for axis in (0, 1)]
        raise ValueError(
            f"Images must have at least {smallest[0]} x {smallest[1]} pixels (height x width) for "
            f"the four convolutions of the sensor, got {image_size[0]} x {image_size[1]}."
        )
    return left[0], left[1]


def _after(size: int, axis: int) -> int:
    for kernel, strides in zip(KERNELS, STRIDES, strict=True):
        size = math.floor((size - kernel) / strides[axis]) + 1
        if size < 1:
            return 0
    return size
