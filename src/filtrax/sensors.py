"""Sensors: from raw readings to measurements.

A sensor is any callable `sensor(reading, inputs, context, *, key) -> Measurement`. It runs outside
of the filter's loop, on all readings of a sequence at once.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float, PyTree

from filtrax._checks import check_shape, check_signature
from filtrax._readers import AbstractEncoder, AbstractReader, reader
from filtrax._readers import AbstractSharedEncoder as AbstractSharedEncoder
from filtrax._types import Context, Inputs, Key, Observation, Reading, Seen
from filtrax.linalg import square_root, squared
from filtrax.noise import AbstractNoise


class Measurement(eqx.Module):
    """An observation and its uncertainty, made of one reading by a sensor.

    **Arguments:**

    - `value`: the observation.
    - `covariance`, or `factor`: its uncertainty R, or a matrix F with F Fᵀ = R.
    - `features`: a pytree for learned likelihoods and recurrent networks, which use it in the place
      of value and covariance.
    - `observed`: whether there is a measurement at all (a scalar), or which components there
      are. Only Gaussian measurements can be split into components.
    - `novelty`: how unlike the training data the reading is, from sensors that tell; above 1 is
      an alarm (`filtrax.novelty`).
    - `losses`: auxiliary training losses by name; filters ignore them.
    """

    value: Float[Array, "*b z"]
    factor: Float[Array, "*b r _"]  # of the size of the value: `check_model` sees to it
    features: PyTree
    observed: Any
    novelty: Float[Array, "*b"] | None
    losses: dict[str, Float[Array, "*b"]] | None

    def __init__(
        self,
        value: Float[Array, "*b z"],
        covariance: Float[Array, "*b r r"] | None = None,
        *,
        factor: Float[Array, "*b r _"] | None = None,
        features: PyTree = None,
        observed: Any = True,
        novelty: Float[Array, "*b"] | None = None,
        losses: dict[str, Float[Array, "*b"]] | None = None,
    ):
        if (covariance is None) == (factor is None):
            raise ValueError("A `Measurement` needs either `covariance` or `factor`, not both.")
        self.value = value
        if factor is None:
            assert covariance is not None
            root = square_root
            for _ in covariance.shape[:-2]:
                root = jax.vmap(root)
            factor = root(covariance)
        self.factor = factor
        self.features, self.observed = features, observed
        self.novelty, self.losses = novelty, losses

    @property
    def covariance(self) -> Float[Array, "*b r r"]:
        """The uncertainty R."""
        return squared(self.factor)

    def seen(self) -> Array:
        """Which components were observed."""
        return jnp.broadcast_to(jnp.asarray(self.observed), self.value.shape)


Sensor = Callable[..., Measurement]
"""`sensor(reading, inputs, context, *, key)`; the key is for dropout and may be ignored."""


class DirectSensor(eqx.Module):
    """The reading is the observation; `noise(reading)` is the factor of its uncertainty."""

    noise: AbstractNoise

    def __call__(
        self, reading: Observation, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        del inputs, context, key
        return Measurement(reading, factor=self.noise(reading))

    def simulate(self, expected: Observation, *, key: Key) -> Observation:
        """Draws a reading where `expected` would be observed without noise."""
        factor = self.noise(expected)
        return expected + factor @ jr.normal(key, factor.shape[1:], expected.dtype)


class NetworkSensor(AbstractReader):
    """Encoder, value head and noise head.

        features = encoder(reading, inputs, context, key=key)
        value = head(features),   R = F Fᵀ with F = noise(features)

    While the encoder is frozen, its features can be computed once and kept. Where they are large,
    like maps of scores, `encoding(features)` makes smaller ones for likelihoods and recurrent
    networks, outside of the filter's loop. `lessons(encoder, features, reading, context)` computes
    the `losses` of the measurements.
    """

    encoder: Callable[..., PyTree]
    head: Callable[[Any], Observation]
    noise: AbstractNoise
    encoding: Callable[[PyTree], PyTree] | None = None
    lessons: Callable[..., dict[str, Array] | None] | None = None

    def __check_init__(self):
        check_signature("encoder", self.encoder, ("reading", "inputs", "context"), ("key",))

    @property
    def inner(self) -> Any:
        return self.encoder

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        features = self.encoder(reading, inputs, context, key=key)
        encoded = features if self.encoding is None else self.encoding(features)
        losses = None
        if self.lessons is not None:
            losses = self.lessons(self.encoder, features, reading, context)
        return Measurement(
            self.head(features), factor=self.noise(features), features=encoded, losses=losses
        )


class Precomputed(AbstractReader):
    """The sensor of readings that are measurements already, made beforehand by another sensor.

    It keeps that sensor, because an objective may look at its parameters.
    """

    sensor: Sensor

    @property
    def inner(self) -> Any:
        return reader(self.sensor)

    def __call__(
        self, reading: Measurement, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        del inputs, context, key
        return reading


class PrecomputedFeatures(AbstractEncoder):
    """The encoder of readings that are features already, made beforehand."""

    def __call__(
        self, reading: PyTree, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> PyTree:
        del inputs, context, key
        return reading


class StackedSensors(eqx.Module):
    """Several sensors side by side: a reading is a tuple with one reading for each.

    A mask is a tuple, too: for each sensor, whether it reported or which components it did.
    """

    sensors: tuple[Sensor, ...]

    def __call__(
        self,
        reading: tuple[Reading, ...],
        inputs: Inputs,
        context: Context,
        *,
        key: Key | None = None,
    ) -> Measurement:
        return sense(self, reading, None, inputs, context, key=key)

    def simulate(self, expected: Observation, *, key: Key) -> tuple[Reading, ...]:
        """Draws a reading for each sensor where `expected` would be observed without noise."""
        keys = jr.split(key, len(self.sensors))
        ends = np.cumsum([_size(sensor) for sensor in self.sensors])
        parts = jnp.split(expected, ends[:-1])
        return tuple(
            draw_reading(sensor, part, key=k)
            for sensor, part, k in zip(self.sensors, parts, keys, strict=True)
        )


@runtime_checkable
class Simulating(Protocol):
    """A sensor that can draw readings."""

    def simulate(self, expected: Observation, *, key: Key) -> Reading:
        """Draws a reading where `expected` would be observed without noise."""


@runtime_checkable
class Noisy(Protocol):
    """A sensor whose noise has a size that is known."""

    noise: AbstractNoise


def draw_reading(sensor: Sensor, expected: Observation, *, key: Key) -> Reading:
    """A reading drawn where `expected` would be observed without noise."""
    if not isinstance(sensor, Simulating):
        raise ValueError(
            "Readings can be drawn for a `DirectSensor`, a stack of them, or a sensor with a "
            f"`simulate(expected, *, key)` method: {type(sensor).__name__} has none."
        )
    return sensor.simulate(expected, key=key)


def _size(sensor: Sensor) -> int:
    """The number of components that a sensor observes."""
    if isinstance(sensor, StackedSensors):
        return sum(_size(part) for part in sensor.sensors)
    if not (isinstance(sensor, Noisy) and isinstance(sensor.noise, AbstractNoise)):
        raise ValueError(
            "Readings of stacked sensors can be drawn if each has a `noise`: "
            f"{type(sensor).__name__} has none."
        )
    return sensor.noise.size


def stack_sensors(*sensors: Sensor) -> StackedSensors:
    """Joins sensors into one; the model's observation is their observations, one after another."""
    if not sensors:
        raise ValueError("`stack_sensors` needs at least one sensor, got none.")
    return StackedSensors(sensors)


def sense(
    sensor: Sensor,
    reading: Reading,
    observed: Any,
    inputs: Inputs,
    context: Context,
    *,
    key: Key | None = None,
) -> Measurement:
    """Applies a sensor to what was observed of a reading.

    Unseen readings are zeroed before the sensor sees them, so that NaN in their place harms
    neither values nor gradients.
    """
    if isinstance(sensor, StackedSensors):
        return _sense_stack(sensor, reading, observed, inputs, context, key)
    if observed is None:
        return sensor(reading, inputs, context, key=key)
    measurement = sensor(_hide(reading, observed), inputs, context, key=key)
    if jnp.ndim(observed) > 0:
        check_shape("observed", observed, measurement.value.shape)
    both = jnp.logical_and(measurement.observed, observed)
    measurement = eqx.tree_at(lambda m: m.observed, measurement, both)
    if measurement.novelty is None:
        return measurement
    # A reading that was not observed is zero here, and raises no alarm.
    novelty = jnp.where(jnp.any(observed), measurement.novelty, 0.0)
    return eqx.tree_at(lambda m: m.novelty, measurement, novelty)


def _sense_stack(
    stacked: StackedSensors,
    reading: Any,
    observed: Any,
    inputs: Inputs,
    context: Context,
    key: Key | None,
) -> Measurement:
    count = len(stacked.sensors)
    # One mask per step, or none, applies to all sensors.
    masks = observed if isinstance(observed, tuple) else (observed,) * count
    if observed is not None and not isinstance(observed, tuple) and jnp.ndim(observed) > 0:
        raise ValueError(
            f"A mask per component of {count} stacked sensors must be a tuple with one mask for "
            f"each, got one array of shape {jnp.shape(observed)} per step."
        )
    for name, entries in (("readings", reading), ("observed", masks)):
        if not isinstance(entries, tuple) or len(entries) != count:
            raise ValueError(
                f"`{name}` of {count} stacked sensors must be a tuple of as many entries, "
                f"got {jax.tree.map(jnp.shape, entries)}."
            )
    keys = (None,) * count if key is None else jr.split(key, count)
    parts = [
        sense(sensor, r, mask, inputs, context, key=k)
        for sensor, r, mask, k in zip(stacked.sensors, reading, masks, keys, strict=True)
    ]
    whole = all(part.observed is True for part in parts)
    novelties = [part.novelty for part in parts if part.novelty is not None]
    return Measurement(
        jnp.concatenate([part.value for part in parts]),
        factor=block_diag(*(part.factor for part in parts)),
        features=tuple(part.features for part in parts),
        observed=True if whole else jnp.concatenate([part.seen() for part in parts]),
        novelty=jnp.stack(novelties).max() if novelties else None,
    )


def _hide(reading: Reading, observed: Seen) -> Reading:
    def hide(leaf: Array) -> Array:
        by_component = jnp.ndim(observed) > 0 and jnp.shape(leaf) == jnp.shape(observed)
        mask = observed if by_component else jnp.any(observed)
        return jnp.where(mask, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(hide, reading)
