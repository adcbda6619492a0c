"""Likelihoods: how well a particle explains a measurement."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Inputs, Observation, Scalar
from filtrax.linalg import gaussian_log_density
from filtrax.networks import Features
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace


class AbstractLikelihood(eqx.Module):
    """Scores an expected observation against a measurement."""

    @abc.abstractmethod
    def __call__(
        self,
        expected: Observation,
        measurement: Measurement,
        inputs: Inputs,
        space: AbstractSpace,
    ) -> Scalar:
        """A log density of the measurement, up to a number that all particles share.

        It is zero where nothing was observed.
        """


class GaussianLikelihood(AbstractLikelihood):
    """ln N(z - h(x); 0, R) of the components that were observed."""

    def __call__(
        self,
        expected: Observation,
        measurement: Measurement,
        inputs: Inputs,
        space: AbstractSpace,
    ) -> Scalar:
        del inputs
        residual = space.difference(measurement.value, expected)
        return gaussian_log_density(residual, measurement.factor, measurement.seen())


class LearnedLikelihood(AbstractLikelihood):
    """A network that sees the measurement's features and a particle's expected observation.

    Its output is a log density ratio and is added to the log weights as it is (Jonschkowski et
    al. 2018; Kloss et al. 2021, section 3.4). It scores a measurement as a whole and cannot
    leave out a component of it.
    """

    network: Callable[[Float[Array, " features"]], Float[Array, " 1"]]
    expected: Features = Features()
    """The features of an expected observation."""

    def __call__(
        self,
        expected: Observation,
        measurement: Measurement,
        inputs: Inputs,
        space: AbstractSpace,
    ) -> Scalar:
        del inputs, space
        if jnp.ndim(measurement.observed) > 0:
            raise ValueError(
                "A learned likelihood scores whole measurements: it cannot be used with a mask "
                "per component. Mask whole steps, or use the Gaussian likelihood."
            )
        features = [jnp.ravel(leaf) for leaf in jax.tree.leaves(measurement.features)]
        if not features:
            raise ValueError(
                "A learned likelihood needs the features of a measurement, but the sensor gave "
                "none. Use a `NetworkSensor`, or a sensor that fills `Measurement.features`."
            )
        score = self.network(jnp.concatenate([*features, self.expected.scaled(expected)]))
        return jnp.where(measurement.observed, jnp.squeeze(score), 0.0)
