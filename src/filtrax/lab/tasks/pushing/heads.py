"""Heads on the features of an image: noise, and encodings for likelihood and recurrent network.

Layers are those of the reference code of Kloss et al. (2021). Last layers of noise start close to
zero, so that the initial noise is that of the settings; the reference makes some earlier layers
small, too, which slows down learning. The variance floor of 1e-3 is effective here; in the
reference, an integer division removes it.
"""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Key, Observation
from filtrax.lab.tasks.pushing.branches import CONTACT_FEATURES, ROTATION_FEATURES
from filtrax.lab.tasks.pushing.layers import Convolution, dense, draw_weights, with_small_output
from filtrax.lab.tasks.pushing.network import ImageFeatures
from filtrax.likelihoods import LearnedLikelihood
from filtrax.networks import Features, Perceptron
from filtrax.noise import AbstractNoise, constant_noise, head_size, heteroscedastic_noise

VARIANCE_FLOOR = 1e-3
"""The smallest variance of all components, in squares of their units."""

SMALL = 5e-3
"""The initial factor on the last layers of noise."""

LIKELIHOOD_SIZES = (16, 8, 40)
RECURRENT_SIZES = (32, 16, 80)
"""Sizes of the parts of an encoding, from scores, rotation and contact."""


class ScoreLayers(eqx.Module):
    """Two convolutions and dense layers on the scores of the object's position."""

    convolutions: tuple[Convolution, Convolution]
    dense: Perceptron

    def __init__(self, shape: tuple[int, int], second_stride: int, *sizes: int):
        first = Convolution(5, 1, 16, stride=2)
        second = Convolution(3, 16, 32, stride=second_stride)
        height, width = second.size_after(first.size_after(shape))
        self.convolutions = (first, second)
        self.dense = dense(height * width * 32, *sizes)

    def __call__(self, logits: Float[Array, "h w"]) -> Float[Array, " outputs"]:
        signal = logits[:, :, None]
        for convolution in self.convolutions:
            signal = jax.nn.relu(convolution(signal))
        return self.dense(signal.ravel())


class DiagonalHead(eqx.Module):
    """The head of noise with independent components; each branch has those of its observation."""

    position: ScoreLayers
    rotation: Perceptron
    contact: Perceptron
    units: Features

    def __init__(self, shape: tuple[int, int], units: Features, *, key: Key):
        parts = (
            ScoreLayers(shape, 2, 64, 2),
            dense(ROTATION_FEATURES, 1),
            dense(CONTACT_FEATURES, 64, 32, 5),
        )
        position, rotation, contact = draw_weights(parts, key=key)
        small = with_small_output(position.dense, SMALL)
        self.position = eqx.tree_at(lambda p: p.dense, position, small)
        self.rotation = with_small_output(rotation, SMALL)
        self.contact = with_small_output(contact, SMALL)
        self.units = units

    def __call__(self, features: ImageFeatures) -> Float[Array, " 8"]:
        position = self.position(features.logits)
        rotation = self.rotation(features.rotation)
        contact = self.contact(features.contact)
        return self.units.unscaled(jnp.concatenate([position, rotation, contact]))


class FullHead(eqx.Module):
    """The head of noise with correlated components, which sees all branches at once."""

    encoding: "Encoding"
    joint: Perceptron
    units: Features

    def __init__(self, shape: tuple[int, int], units: Features, *, key: Key):
        entries = units.size * (units.size + 1) // 2
        encoding = Encoding(shape, 2, (8, 8, 32), contact_layer=64)
        self.encoding, joint = draw_weights((encoding, dense(48, 64, entries)), key=key)
        self.joint, self.units = with_small_output(joint, SMALL), units

    def __call__(self, features: ImageFeatures) -> Float[Array, " entries"]:
        row, _ = np.tril_indices(self.units.size)
        output = self.joint(self.encoding(features))
        return output * np.asarray(self.units.scale, output.dtype)[row]


class Encoding(eqx.Module):
    """An encoding of features as a vector: ReLU layers on scores, rotation and contact."""

    position: ScoreLayers
    rotation: Perceptron
    contact: Perceptron

    def __init__(
        self,
        shape: tuple[int, int],
        second_stride: int,
        sizes: Sequence[int],
        *,
        contact_layer: int = 128,
    ):
        self.position = ScoreLayers(shape, second_stride, sizes[0])
        self.rotation = dense(ROTATION_FEATURES, sizes[1])
        self.contact = dense(CONTACT_FEATURES, contact_layer, sizes[2])

    def __call__(self, features: ImageFeatures) -> Float[Array, " encoding"]:
        parts = (
            self.position(features.logits),
            self.rotation(features.rotation),
            self.contact(features.contact),
        )
        return jax.nn.relu(jnp.concatenate(parts))


def observed_value(features: ImageFeatures) -> Observation:
    """Returns the observation that is part of the features."""
    return features.value


def sensor_noise(
    dependence: Literal["constant", "heteroscedastic"],
    start: Any,
    shape: tuple[int, int],
    units: Features,
    *,
    key: Key,
) -> AbstractNoise:
    """Makes the noise of the sensor.

    **Arguments:**

    - `dependence`: independent of features ("constant"), or with a network ("heteroscedastic").
    - `start`: standard deviations, or a covariance matrix for noise with correlations.
    - `shape`: the shape of the scores (`PositionBranch.logits_size`).
    - `units`: the units of observations.
    """
    if dependence == "constant":
        return constant_noise(start, VARIANCE_FLOOR)
    build = DiagonalHead if head_size(start) == units.size else FullHead
    return heteroscedastic_noise(build(shape, units, key=key), start, VARIANCE_FLOOR)


def likelihood_encoding(shape: tuple[int, int], *, key: Key) -> Encoding:
    """Makes the encoding of an image for a learned likelihood, of size 64."""
    return draw_weights(Encoding(shape, 1, LIKELIHOOD_SIZES), key=key)


def recurrent_encoding(shape: tuple[int, int], *, key: Key) -> Encoding:
    """Makes the encoding of an image for a recurrent network, of size 128."""
    return draw_weights(Encoding(shape, 1, RECURRENT_SIZES), key=key)


def no_encoding(features: ImageFeatures) -> None:
    """Returns no encoding, for filters that use only value and covariance."""
    del features


def learned_likelihood(units: Features, *, key: Key) -> LearnedLikelihood:
    """Makes the learned likelihood of an encoding, a log density ratio.

    The reference adds a sigmoid of the output to log weights, so that weights change by at most a
    factor of e per step relative to each other.
    """
    network = dense(sum(LIKELIHOOD_SIZES) + units.size, 128, 128, 1)
    return LearnedLikelihood(draw_weights(network, key=key), units)
