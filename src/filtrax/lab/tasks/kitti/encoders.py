"""From the frames of a window to features: what the sensors of the KITTI task look at."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.kitti.matching import MatchingNetwork
from filtrax.lab.tasks.kitti.network import MotionNetwork

MEAN_COLOR = (89.0, 94.0, 93.0)
"""Red, green and blue of KITTI's images, on average, as the reference code has them."""

PIXEL_SCALE = 64.0
"""What the network divides brightness by; the paper's sees numbers up to 255 as they are.

The first layer could undo it, so that no other functions are learned. But weights for such numbers
are so small that a learning rate at which all other layers learn well is too large for them.
"""


FRAMES_AT_ONCE = 1280
"""That are read at a time outside of training, to save memory: each takes some megabytes."""

OWN_CONTEXT = ("frames", "mirrored")
"""What nothing but the encoder reads, so that it need not be kept once there are features."""


class KittiEncoder(eqx.Module):
    """Encodes the image of a time, and its difference from the one before.

    A reading is the number of a step within its sequence. The images of all times, beginning with
    the one before the first step, are `frames` of the context; `mirrored` says whether they are
    to be flipped.
    """

    frames_at_once: ClassVar[int] = FRAMES_AT_ONCE
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


class MatchingEncoder(eqx.Module):
    """Encodes how cells of the image of a time have moved since the one before.

    Readings and context are those of `KittiEncoder`.
    """

    frames_at_once: ClassVar[int] = FRAMES_AT_ONCE
    own_context: ClassVar[tuple[str, ...]] = OWN_CONTEXT
    network: MatchingNetwork

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs
        before, present = two_frames(reading, context, self.network.log_sharpness.dtype)
        return self.network(before, present, key=key)


def two_frames(reading: Reading, context: Context, dtype: Any) -> tuple[Array, Array]:
    """The image before a reading, and the one of its time, as the context has them.

    In training they may be distorted (`filtrax.lab.tasks.kitti.augment`).
    """
    frames = jnp.asarray(context["frames"])
    images = [frames[reading + i].astype(dtype) for i in (0, 1)]
    distortion = context.get("distortion")
    if distortion is not None:
        images = [distortion(image, reading + i) for i, image in enumerate(images)]
    before, present = (jnp.where(context["mirrored"], im[:, ::-1], im) for im in images)
    return before, present


def _mean_pixel(channels: int) -> tuple[float, ...]:
    """The mean colour, or its mean for gray images."""
    return MEAN_COLOR if channels == 3 else (sum(MEAN_COLOR) / 3,) * channels
