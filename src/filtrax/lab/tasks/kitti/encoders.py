"""Encoders of the KITTI task's sensors, from the frames of a window to features."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.kitti.matching import MatchingNetwork
from filtrax.lab.tasks.kitti.network import MotionNetwork
from filtrax.sensors import AbstractEncoder

MEAN_COLOR = (89.0, 94.0, 93.0)
"""The mean red, green and blue of KITTI's images, as in the reference code."""

PIXEL_SCALE = 64.0
"""The divisor of brightness in network inputs; the paper's network sees numbers up to 255.

The first layer could undo it, so the network represents the same functions. But weights for large
inputs are so small that a learning rate that suits all other layers is too large for them.
"""


FRAMES_AT_ONCE = 1280
"""The number of frames to encode at once outside of training; each takes some megabytes."""

OWN_CONTEXT = ("frames", "mirrored")
"""Entries of the context that only encoders read; they are dropped once features are computed."""


class KittiEncoder(AbstractEncoder):
    """Encodes an image, and its difference from the previous one.

    A reading is the index of a step in its window. The context has `frames`, the images of all
    times starting with the one before the first step, and `mirrored`, True if they are to be
    flipped.
    """

    frames_at_once: ClassVar[int | None] = FRAMES_AT_ONCE
    sequential_members: ClassVar[bool] = True
    own_context: ClassVar[tuple[str, ...]] = OWN_CONTEXT
    network: MotionNetwork

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs
        dtype = self.network.biases[0].dtype
        before, present = two_frames(reading, context, dtype)
        centred = present - np.asarray(_mean_pixel(present.shape[-1]), dtype)[None, None, :]
        image = jnp.concatenate([centred, present - before], -1) / PIXEL_SCALE
        return self.network(image, key=key)


class MatchingEncoder(AbstractEncoder):
    """Encodes the motion of an image's cells since the previous image.

    Readings and context are those of `KittiEncoder`.
    """

    frames_at_once: ClassVar[int | None] = FRAMES_AT_ONCE
    own_context: ClassVar[tuple[str, ...]] = OWN_CONTEXT
    network: MatchingNetwork

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs
        before, present = two_frames(reading, context, self.network.log_sharpness.dtype)
        return self.network(before, present, key=key)


def two_frames(reading: Reading, context: Context, dtype: Any) -> tuple[Array, Array]:
    """Returns the image before a reading, and the one of its time.

    They are mirrored if the context says so, and distorted if it has a `Distortion`
    (`filtrax.lab.tasks.kitti.augment`), as in training.
    """
    frames = jnp.asarray(context["frames"])
    images = [frames[reading + i].astype(dtype) for i in (0, 1)]
    distortion = context.get("distortion")
    if distortion is not None:
        images = [distortion(image, reading + i) for i, image in enumerate(images)]
    before, present = (jnp.where(context["mirrored"], im[:, ::-1], im) for im in images)
    return before, present


def _mean_pixel(channels: int) -> tuple[float, ...]:
    """Returns the mean colour, or the mean brightness for gray images."""
    return MEAN_COLOR if channels == 3 else (sum(MEAN_COLOR) / 3,) * channels
