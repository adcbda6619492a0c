"""Networks of features with transformed inputs or outputs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.networks import Perceptron


class Shifted(eqx.Module):
    """A network with a fixed `offset` that is added to its last inputs."""

    network: Perceptron
    offset: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        rest, last = jnp.split(inputs, [inputs.size - len(self.offset)])
        return self.network(jnp.concatenate([rest, last + np.asarray(self.offset, last.dtype)]))


class Relative(eqx.Module):
    """A network whose last inputs are replaced by their differences from the first ones.

    Differences are divided by `unit`.
    """

    network: Perceptron
    unit: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        size = len(self.unit)
        rest, last = jnp.split(inputs, [inputs.size - size])
        unit = np.asarray(self.unit, inputs.dtype)
        return self.network(jnp.concatenate([rest, (last - rest[:size]) / unit]))


class Corrected(eqx.Module):
    """Adds a correction, a network of all features, to the first features: f + network(f).

    A last layer of zeros makes the initial correction zero.
    """

    network: Perceptron

    def __call__(self, features: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        correction = self.network(features)
        return features[: correction.size] + correction
