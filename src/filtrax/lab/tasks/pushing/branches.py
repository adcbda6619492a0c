"""The three branches of the pushing task's network (Kloss et al. 2021, pushing appendix).

Sizes and layers are those of the reference code. For smaller images, one kernel is smaller, and
pooling is skipped if its output would be too small.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.lab.tasks.pushing.layers import Convolution, dense, max_pool, resize
from filtrax.networks import ChannelNorm, Perceptron

ROTATION_FEATURES, CONTACT_FEATURES = 64, 128

ROTATION_UNIT = 30.0
"""The unit of rotations in the network's output, in degrees."""

Pixel = Float[Array, " 2"]


class PositionBranch(eqx.Module):
    """Scores that pixels belong to the object, at about half the size of the image."""

    down: tuple[Convolution, ...]
    up: tuple[Convolution, ...]
    norms: tuple[ChannelNorm, ...]
    image_size: tuple[int, int] = eqx.field(static=True)

    def __init__(self, image_size: tuple[int, int]):
        self.down = (Convolution(7, 6, 8), Convolution(5, 8, 16), Convolution(3, 16, 32))
        coarsest = _coarsest(self.down, image_size)
        # 13 in the reference, but not more than covers the whole shorter side.
        reach = min(13, 2 * min(coarsest) + 1)
        depths = ((reach, 32, 16), (3, 16, 8), (3, 8, 1))
        self.up = tuple(Convolution(*depth, transposed=True) for depth in depths)
        self.norms = tuple(ChannelNorm(channels) for channels in (8, 16, 32, 16, 8))
        self.image_size = image_size

    def __call__(self, image: Float[Array, "h w 6"]) -> Float[Array, "rows columns"]:
        # ReLU after pooling is equivalent and faster.
        first = self.norms[0](jax.nn.relu(max_pool(self.down[0](image), 2, "SAME")))
        second = self.norms[1](jax.nn.relu(max_pool(self.down[1](first), 2, "SAME")))
        third = self.norms[2](jax.nn.relu(max_pool(self.down[2](second), 4, "SAME")))
        rows, columns, _ = second.shape
        rough = resize(jax.nn.relu(self.up[0](third)), (rows, columns))
        fine = jax.nn.relu(self.up[1](self.norms[3](rough + second)))
        half = (self.image_size[0] // 2, self.image_size[1] // 2)
        return self.up[2](self.norms[4](resize(fine, half)))[:, :, 0]

    @property
    def logits_size(self) -> tuple[int, int]:
        """Height and width of the scores."""
        height, width = self.image_size
        return self.up[2].size_after((height // 2, width // 2))

    def mean_pixel(self, logits: Float[Array, "rows columns"]) -> Pixel:
        """Returns the mean of all pixels, weighted by the softmax of the scores at full size."""
        height, width = self.image_size
        scores = resize(logits[:, :, None], self.image_size)[:, :, 0]
        weights = jax.nn.softmax(scores.ravel()).reshape(height, width)
        columns, rows = (np.arange(n) + 0.5 - n / 2 for n in (width, height))
        # Sums instead of matrix products, which GPUs round to a tenth of a pixel.
        along = (weights.sum(0) * columns.astype(weights.dtype)).sum()
        return jnp.stack([along, (weights.sum(1) * rows.astype(weights.dtype)).sum()])


class RotationBranch(eqx.Module):
    """The rotation of the object between two glimpses, from their difference."""

    convolutions: tuple[Convolution, ...]
    norms: tuple[ChannelNorm, ...]
    dense: Perceptron
    angle: Perceptron

    def __init__(self, size: int):
        self.convolutions = (Convolution(3, 3, 32), Convolution(3, 32, 64))
        self.norms = (ChannelNorm(32), ChannelNorm(64))
        left = _pooled(_pooled(size - 2) - 2)
        _check_glimpse("rotation_glimpse", size, left)
        self.dense = dense(left**2 * 64, 128, ROTATION_FEATURES)
        self.angle = dense(ROTATION_FEATURES, 1)

    def __call__(self, difference: Float[Array, "g g 3"]) -> tuple[Float[Array, " 64"], Scalar]:
        """Returns the encoding, and the rotation in degrees."""
        signal = difference
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            signal = max_pool(norm(jax.nn.relu(convolution(signal))), 2, "VALID")
        encoding = jax.nn.relu(self.dense(_flat(signal, self.dense)))
        return encoding, ROTATION_UNIT * self.angle(encoding)[0]


class ContactBranch(eqx.Module):
    """Contact point, normal, and probability of contact, from a glimpse around the pusher's tip.

    It returns the encoding, two vectors in pixels (from the tip to the contact, and along the
    normal), and the probability of contact during the coming push.
    """

    convolutions: tuple[Convolution, ...]
    norms: tuple[ChannelNorm, ...]
    dense: Perceptron
    offset: Perceptron
    normal: Perceptron
    contact: Perceptron
    pooled: tuple[bool, bool] = eqx.field(static=True)

    def __init__(self, size: int):
        depths = ((6, 8), (8, 16), (16, 32))
        self.convolutions = tuple(Convolution(3, *depth) for depth in depths)
        self.norms = tuple(ChannelNorm(outputs) for _, outputs in depths)
        left, pooled = size, []
        for _ in range(2):
            left -= 2
            # Skip pooling if the next convolution would have no window.
            pooled.append(_pooled(left) >= 3)
            left = _pooled(left) if pooled[-1] else left
        _check_glimpse("contact_glimpse", size, left - 2)
        self.pooled = (pooled[0], pooled[1])
        inputs = (left - 2) ** 2 * 32 + 4
        self.dense = dense(inputs, CONTACT_FEATURES)
        self.offset = dense(CONTACT_FEATURES, 64, 2)
        self.normal = dense(CONTACT_FEATURES, 64, 2)
        self.contact = dense(inputs, 1)

    def __call__(
        self, window: Float[Array, "g g 6"], action: Float[Array, " 4"]
    ) -> tuple[Float[Array, " 128"], Pixel, Pixel, Scalar]:
        signal = window
        for convolution, norm, pooled in zip(
            self.convolutions, self.norms, (*self.pooled, False), strict=True
        ):
            signal = convolution(signal)
            signal = max_pool(signal, 2, "VALID") if pooled else signal
            signal = norm(jax.nn.relu(signal))
        signal = jnp.concatenate([_flat(signal, self.dense), action])
        encoding = jax.nn.relu(self.dense(signal))
        contact = jax.nn.sigmoid(self.contact(signal)[0])
        return encoding, self.offset(encoding), self.normal(encoding), contact


def _flat(signal: Array, network: Perceptron) -> Float[Array, " n"]:
    """Flattens the output of convolutions, and casts it to the dtype of dense layers."""
    return signal.ravel().astype(network.layers[0].weight.dtype)


def _pooled(size: int) -> int:
    """Returns the size after pooling with windows of 3 pixels and stride 2."""
    return (size - 3) // 2 + 1


def _coarsest(convolutions: tuple[Convolution, ...], image_size: tuple[int, int]):
    """Returns height and width of the smallest map of the position branch."""
    left = image_size
    for convolution, stride in zip(convolutions, (2, 2, 4), strict=True):
        left = convolution.size_after(left)
        if min(left) < 1:
            raise ValueError(
                "Images must have at least 23 x 23 pixels for the convolutions of the sensor, "
                f"got {image_size[0]} x {image_size[1]}."
            )
        left = (math.ceil(left[0] / stride), math.ceil(left[1] / stride))
    return left


def _check_glimpse(name: str, size: int, left: int) -> None:
    if left < 1:
        raise ValueError(
            f"`{name}` must be larger, so that its convolutions leave something: got {size} pixels."
        )
