"""The encoder that learns nothing: the motion that optical flow tells, and how far to trust it."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Context, Key, Reading
from filtrax.tasks.kitti import flow
from filtrax.tasks.kitti.encoders import OWN_CONTEXT
from filtrax.tasks.kitti.recordings.drives import MEAN_STEP

FRAMES_AT_ONCE = 256
"""That are looked at together: the hypotheses about their depths take some megabytes each."""


class Feature(NamedTuple):
    """How a number is brought to the order of one: (number - `usual`) / `unit`.

    `sign` is that of the number in a mirrored image, where left is right.
    """

    unit: float
    usual: float = 0.0
    sign: float = 1.0


FEATURES = {
    "speed": Feature(10.0),
    "rate": Feature(10.0, sign=-1.0),
    "pitch": Feature(0.004),
    "roll": Feature(0.004, sign=-1.0),
    "drift": Feature(0.002, sign=-1.0),
    "tilt": Feature(0.004, 0.005),
    "log std of the distance": Feature(0.3, -4.8),
    "log std of the turn": Feature(0.2, -9.3),
    "road": Feature(0.025, 0.18),
    "free": Feature(0.035, 0.63),
    "remaining": Feature(0.03, 0.26),
}
"""What is known of two images (`flow.Estimate`); about mean and spread on the roads of KITTI.

Speed and rate come first, and in the units of networks, so that they are a measurement.
"""


class FlowEncoder(eqx.Module):
    """Encodes the motion between the images of two times, and what tells how sure it is.

    Readings and context are those of `KittiEncoder`. Gray is the mean of the colours. The time
    between two images is taken to be the mean one, from which KITTI's differ by some thousandths.

    There is nothing to learn in it: features are computed once, before training. Mirrored images
    are not looked at. A mirrored motion is told from the images as they are, which is exact,
    although the centre of the lens is not the middle of the image.
    """

    frames_at_once: ClassVar[int] = FRAMES_AT_ONCE
    own_context: ClassVar[tuple[str, ...]] = OWN_CONTEXT

    def __call__(
        self, reading: Reading, context: Context, *, key: Key
    ) -> Float[Array, " features"]:
        del key
        frames = jnp.asarray(context["frames"])
        gray = [frames[reading + i].astype(jnp.float32).mean(-1) for i in (0, 1)]
        return features(flow.estimate(*gray), jnp.asarray(context["mirrored"]))


def features(estimate: flow.Estimate, mirrored: Bool[Array, ""]) -> Float[Array, " features"]:
    """The numbers of an estimate, or of its mirror image, in the order of `FEATURES`."""
    numbers = [
        *flow.velocities(estimate.motion, MEAN_STEP),
        *estimate.motion[2:],
        *jnp.log(estimate.stds[:2]),
        estimate.road,
        estimate.free,
        estimate.remaining,
    ]
    dtype = jnp.result_type(float)
    unit, usual, sign = (np.asarray(part, dtype) for part in zip(*FEATURES.values(), strict=True))
    scaled = (jnp.stack(numbers).astype(dtype) - usual) / unit
    return jnp.where(mirrored, sign * scaled, scaled)
