"""The reference of the disc task: the true noise, and a sensor that reads the target's pixel.

Learned filters are compared with a filter that has both and the true process.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from filtrax._types import Context, Inputs, Key, Observation, State
from filtrax.lab.tasks.disc.images import CANVAS, visible_pixels
from filtrax.lab.tasks.disc.physics import ZONES
from filtrax.noise import AbstractNoise, FixedNoise
from filtrax.sensors import Measurement

if TYPE_CHECKING:
    from filtrax.lab.tasks.disc.task import DiscTask

REFERENCE_STD = 0.3
"""The sensor's standard deviation; that of a uniform distribution over a pixel is 0.29."""


class ReferenceSensor(eqx.Module):
    """Reads the target's centre pixel; nothing is observed while all its pixels are hidden."""

    def __call__(
        self,
        reading: Int[Array, "discs 2"],
        inputs: Inputs,
        context: Context,
        *,
        key: Key | None = None,
    ) -> Measurement:
        del inputs, key
        value = pixel_middle(reading[0])
        factor = REFERENCE_STD * jnp.eye(2, dtype=value.dtype)
        seen = visible_pixels(reading, context["radii"], context["colors"]) > 0
        return Measurement(value, factor=factor, observed=seen)


def pixel_middle(pixel: Int[Array, " 2"]) -> Observation:
    """Returns the centre of all positions that are drawn at a pixel."""
    # Truncation towards zero brings (k, k + 1) to k, but (-k - 1, -k) to -k and (-1, 1) to 0.
    place = pixel.astype(jnp.result_type(float))
    return place + 0.5 * jnp.sign(place) - CANVAS / 2


class NoiseOfZones(AbstractNoise):
    """Noise that is constant within each zone; see `physics.ZONES`.

    All kinds of true noise have this form, so that models of different data sets have the same
    structure.
    """

    factors: Float[Array, "zones x x"]

    @property
    def size(self) -> int:
        return self.factors.shape[-1]

    def __call__(self, state: State, inputs: Inputs = None) -> Float[Array, "x x"]:
        del inputs
        distance = jnp.abs(state[:2]).max()
        limits = np.asarray([limit for limit, _ in ZONES[:-1]], state.dtype)
        inwards = (distance <= limits).sum()
        return self.factors[inwards]


def reference_noise(task: "DiscTask") -> FixedNoise:
    """Returns the true process noise of a task, which is never trained."""
    inside = [limit + 1 for limit, _ in ZONES]
    states = jnp.zeros((len(ZONES), task.state_space.size)).at[:, 0].set(jnp.asarray(inside))
    factors = jax.vmap(lambda state: task.process_noise(state, None))(states)
    return FixedNoise(NoiseOfZones(factors))
