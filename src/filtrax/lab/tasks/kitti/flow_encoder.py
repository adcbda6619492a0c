"""An encoder without learning: the motion from optical flow, and indicators of its accuracy."""

import hashlib
import itertools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.kitti import flow
from filtrax.lab.tasks.kitti.encoders import OWN_CONTEXT
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.sensors import AbstractSharedEncoder
from filtrax.trajectory import Trajectory

FRAMES_AT_ONCE = 256
"""The number of frames to encode at once; hypotheses about depths take some megabytes per frame."""

PAIRS_AT_ONCE = 32
"""The number of pairs to process at once for a whole data set."""


class Feature(NamedTuple):
    """The standardization of a number, (number - `usual`) / `unit`.

    `sign` is -1 if the number changes its sign in a mirrored image.
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
"""The features of two images (`flow.Estimate`), with about their mean and spread in KITTI.

Speed and rate come first, in the units of networks, and are a measurement by themselves.
"""


class FlowEncoder(AbstractSharedEncoder):
    """Encodes the motion between two consecutive images, and indicators of its accuracy.

    Readings and context are those of `KittiEncoder`. Gray is the mean of the colours. The time
    step is assumed to be the mean one, from which KITTI's steps differ by some thousandths.

    The encoder has no parameters, so features are computed once before training. For mirrored
    windows, the features of the original images are mirrored, which is exact although the centre
    of the lens is not the middle of the image.
    """

    frames_at_once: ClassVar[int | None] = FRAMES_AT_ONCE
    own_context: ClassVar[tuple[str, ...]] = OWN_CONTEXT

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs, key
        frames = jnp.asarray(context["frames"])
        pair = jnp.stack([frames[reading], frames[reading + 1]])
        return features(_estimate(pair), jnp.asarray(context["mirrored"]))

    def encode_all(self, data: Trajectory) -> Float[Array, "b t features"]:
        """Computes the features of all readings of a data set.

        Results are cached for the process: each pair of images is processed once, although windows
        overlap, are mirrored, and are used by several stages of training.
        """
        frames = np.asarray(data.context["frames"])
        pairs = [list(itertools.pairwise(map(_name, window))) for window in frames]
        places = {pair: (b, t) for b, window in enumerate(pairs) for t, pair in enumerate(window)}
        new = [
            (pair, frames[b, t : t + 2]) for pair, (b, t) in places.items() if pair not in _known
        ]
        for first in range(0, len(new), PAIRS_AT_ONCE):
            names, images = zip(*new[first : first + PAIRS_AT_ONCE], strict=True)
            # Pad with the last pair to a fixed shape, so that nothing recompiles.
            full = [*images, *images[-1:] * (PAIRS_AT_ONCE - len(images))]
            _known.update(zip(names, np.asarray(_looked_at(np.stack(full))), strict=False))
        found = np.asarray([[_known[pair] for pair in window] for window in pairs])
        found = np.take_along_axis(found, np.asarray(data.readings)[..., None], axis=1)
        mirrored = np.asarray(data.context["mirrored"])[:, None, None]
        return jnp.asarray(np.where(mirrored, _signs(found.dtype) * found, found))


_known: dict[tuple[str, str], np.ndarray] = {}
"""Cached features of pairs of images in this process, by the images' hashes."""


def _name(frame: UInt8[np.ndarray, "h w c"]) -> str:
    """Returns a hash of an image's bytes, with its shape."""
    return hashlib.blake2b(frame.tobytes(), digest_size=16).hexdigest() + str(frame.shape)


@jax.jit
def _looked_at(pairs: UInt8[Array, "n 2 h w c"]) -> Float[Array, "n features"]:
    return jax.vmap(lambda pair: features(_estimate(pair), jnp.asarray(False)))(pairs)


def _estimate(pair: UInt8[Array, "2 h w c"]) -> flow.Estimate:
    before, present = pair.astype(jnp.float32).mean(-1)
    return flow.estimate(before, present)


def features(estimate: flow.Estimate, mirrored: Bool[Array, ""]) -> Float[Array, " features"]:
    """Returns the features of an estimate, or of its mirror image, in the order of `FEATURES`."""
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
