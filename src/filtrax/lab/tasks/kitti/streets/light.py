"""Light along a drive: direction of the sun, clouds, and exposure of the cameras.

Light changes with the distance and not with time, so that the images of a standing car are equal.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

WAVES = (900.0, 410.0, 170.0)
"""The wavelengths of changes of light along the path, in metres."""


class Light(eqx.Module):
    """The light of a frame, with any leading axes.

    **Attributes:**

    - `sun`: the unit vector towards the sun in the plane of the road, x and z.
    - `direct`: the brightness of the sun on a surface that faces it.
    - `ambient`: the brightness of the sky on all surfaces.
    - `exposure`: the camera's factor on all brightness.
    """

    sun: Float[Array | np.ndarray, "*n 2"]
    direct: Float[Array | np.ndarray, "*n"]
    ambient: Float[Array | np.ndarray, "*n"]
    exposure: Float[Array | np.ndarray, "*n"]


def lights(poses: np.ndarray, seed: int) -> Light:
    """Draws the light at all frames of a drive."""
    steps = np.hypot(*np.diff(poses[:, [0, 2], 3], axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    rng = np.random.default_rng([seed, 1])
    sun = rng.uniform(0, 2 * np.pi) + 0.3 * _wave(along, rng)
    cloudy = np.clip(0.35 + 0.5 * _wave(along, rng), 0.0, 1.0)
    parts = (
        np.stack([np.sin(sun), np.cos(sun)], -1),
        2.1 * (1.0 - 0.85 * cloudy),
        0.3 + 0.35 * cloudy,
        np.exp2(0.45 * _wave(along, rng)),
    )
    return Light(*(part.astype(np.float32) for part in parts))


def _wave(along: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws a slow change along the path, mostly within (-1, 1)."""
    phases = rng.uniform(0, 2 * np.pi, len(WAVES))
    angles = 2 * np.pi * along[:, None] / np.asarray(WAVES) + phases
    return np.sin(angles).mean(-1) * 1.5
