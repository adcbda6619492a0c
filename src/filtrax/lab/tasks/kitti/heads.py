"""Networks of features, some of whose inputs are brought into another form first."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.networks import Perceptron


class Shifted(eqx.Module):
    """A network whose last inputs are moved by fixed numbers."""

    network: Perceptron
    offset: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        rest, last = jnp.split(inputs, [inputs.size - len(self.offset)])
        return self.network(jnp.concatenate([rest, last + np.asarray(self.offset, last.dtype)]))


class Relative(eqx.Module):
    """A network whose last inputs are told by how far they differ from the first ones.

    The difference is divided by `unit`.
    """

    network: Perceptron
    unit: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        size = len(self.unit)
        rest, last = jnp.split(inputs, [inputs.size - size])
        unit = np.asarray(self.unit, inputs.dtype)
        return self.network(jnp.concatenate([rest, (last - rest[:size]) / unit]))


class Corrected(eqx.Module):
    """The first features as they are, plus what a network of all of them adds: f + network(f).

    Where its last layer starts at zero, so does what it adds.
    """

    network: Perceptron

    def __call__(self, features: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        correction = self.network(features)
        return features[: correction.size] + correction
