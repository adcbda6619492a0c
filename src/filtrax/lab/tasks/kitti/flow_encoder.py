"""The encoder that learns nothing: the motion that optical flow tells, and how far to trust it."""

import hashlib
import itertools
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.kitti import flow
from filtrax.lab.tasks.kitti.encoders import OWN_CONTEXT
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.trajectory import Trajectory

FRAMES_AT_ONCE = 256
"""That are looked at together: the hypotheses about their depths take some megabytes each."""

PAIRS_AT_ONCE = 32
"""That are looked at together where a whole data set is."""


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
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs, key
        frames = jnp.asarray(context["frames"])
        pair = jnp.stack([frames[reading], frames[reading + 1]])
        return features(_estimate(pair), jnp.asarray(context["mirrored"]))

    def encode_all(self, data: Trajectory) -> Float[Array, "b t features"]:
        """The features of all readings of a data set.

        Windows of a drive overlap, some are the mirror images of others, and stages of a training
        see the same ones: each pair of images is looked at once.
        """
        frames = np.asarray(data.context["frames"])
        pairs = [list(itertools.pairwise(map(_name, window))) for window in frames]
        places = {pair: (b, t) for b, window in enumerate(pairs) for t, pair in enumerate(window)}
        new = [
            (pair, frames[b, t : t + 2]) for pair, (b, t) in places.items() if pair not in _known
        ]
        for first in range(0, len(new), PAIRS_AT_ONCE):
            names, images = zip(*new[first : first + PAIRS_AT_ONCE], strict=True)
            # The last pair is repeated, so that one program is for all.
            full = [*images, *images[-1:] * (PAIRS_AT_ONCE - len(images))]
            _known.update(zip(names, np.asarray(_looked_at(np.stack(full))), strict=False))
        found = np.asarray([[_known[pair] for pair in window] for window in pairs])
        found = np.take_along_axis(found, np.asarray(data.readings)[..., None], axis=1)
        mirrored = np.asarray(data.context["mirrored"])[:, None, None]
        return jnp.asarray(np.where(mirrored, _signs(found.dtype) * found, found))


_known: dict[tuple[str, str], np.ndarray] = {}
"""Features of the pairs of images that were looked at in this process, by the images' names."""


def _name(frame: UInt8[np.ndarray, "h w c"]) -> str:
    """A hash of an image: of its size, and of its bytes."""
    return hashlib.blake2b(frame.tobytes(), digest_size=16).hexdigest() + str(frame.shape)


@jax.jit
def _looked_at(pairs: UInt8[Array, "n 2 h w c"]) -> Float[Array, "n features"]:
    return jax.vmap(lambda pair: features(_estimate(pair), jnp.asarray(False)))(pairs)


def _estimate(pair: UInt8[Array, "2 h w c"]) -> flow.Estimate:
    before, present = pair.astype(jnp.float32).mean(-1)
    return flow.estimate(before, present)


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
    unit, usual, _ = (np.asarray(part, dtype) for part in zip(*FEATURES.values(), strict=True))
    scaled = (jnp.stack(numbers).astype(dtype) - usual) / unit
    return jnp.where(mirrored, _signs(dtype) * scaled, scaled)


def _signs(dtype: Any) -> Float[np.ndarray, " features"]:
    return np.asarray([feature.sign for feature in FEATURES.values()], dtype)
