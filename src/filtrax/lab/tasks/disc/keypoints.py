"""Heads of a sensor with a `KeypointNetwork`, which finds the target as a point."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Key
from filtrax.linalg import root_sum
from filtrax.networks import Perceptron
from filtrax.noise import AbstractNoise, Head, constant_noise


class ProportionalNoise(AbstractNoise):
    """Noise whose head scales standard deviations instead of adding to them.

        C = L Lᵀ + diag(ε),   L = diag(b exp(o)) (I + N)

    where o are the first outputs of the head, and N is a strictly lower triangular matrix of the
    others, or zero if there are none. Standard deviations of visible and hidden points differ by a
    factor of a hundred. In logarithms, equal changes of the output scale both equally, and neither
    can become negative.
    """

    bias: Float[Array, " x"]
    floor: float = eqx.field(static=True)
    head: Head

    @property
    def size(self) -> int:
        return self.bias.size

    def __call__(self, *features: Any) -> Float[Array, "x x"]:
        triangle = self._triangle(features)
        if self.floor == 0:
            return triangle
        return root_sum(triangle, self.floor**0.5 * jnp.eye(self.size, dtype=triangle.dtype))

    def _triangle(self, features: Sequence[Any]) -> Float[Array, "x x"]:
        output = self.head(*features)
        mixing = jnp.eye(self.size, dtype=output.dtype)
        if output.size > self.size:
            mixing = mixing.at[np.tril_indices(self.size, -1)].set(output[self.size :])
        return (self.bias * jnp.exp(output[: self.size]))[:, None] * mixing


def proportional_noise(head: Head, std: Float[Array, " x"], floor: float) -> ProportionalNoise:
    """Makes noise with the given standard deviations at a zero head; the floor is a variance."""
    return ProportionalNoise(constant_noise(std, floor).offset, floor, head)


def keypoint_value(num_features: int, *, key: Key) -> Perceptron:
    """Makes the value head of a `KeypointNetwork`; initially it returns about the first point."""
    head = Perceptron((num_features, 2), final_std=1e-3, key=key)
    weight = head.layers[0].weight.at[:, :2].set(jnp.eye(2))
    return eqx.tree_at(lambda head: head.layers[0].weight, head, weight)
