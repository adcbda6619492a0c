"""Sensors: from raw readings to measurements.

A sensor is any callable `sensor(reading, context, *, key) -> Measurement`. It runs outside of
the filter's loop, on all readings of a sequence at once.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float, PyTree

from filtrax.arrays import Context, Key, Observation, Reading, Seen
from filtrax.checks import check_shape
from filtrax.noise import AbstractNoise

CPU_SHARE = 8
"""By how much fewer images a CPU reads at once: it gains nothing by many, and has less memory."""


class Measurement(eqx.Module):
    """What a sensor says of one reading.

    **Attributes:**

    - `value`: the observation.
    - `covariance`: its uncertainty R.
    - `features`: what a learned likelihood or a recurrent network uses instead; any pytree.
    - `observed`: whether there is a measurement at all (a scalar), or which components there
      are. Only Gaussian measurements can be split into components.
    - `novelty`: how unlike the training data the reading is, where the sensor says it; above 1
      is an alarm (`filtrax.novelty`).
    - `losses`: by name, what a sensor says in training of how wrong it is inside, where it knows
      that better than anybody who sees its value alone. No filter looks at it.
    """

    value: Float[Array, "*b z"]
    covariance: Float[Array, "*b r r"]  # of the size of the value: `check_model` sees to it
    features: PyTree = None
    observed: Any = True
    novelty: Float[Array, "*b"] | None = None
    losses: dict[str, Float[Array, "*b"]] | None = None

    def seen(self) -> Array:
        """Which components were observed."""
        return jnp.broadcast_to(jnp.asarray(self.observed), self.value.shape)


Sensor = Callable[..., Measurement]
"""`sensor(reading, context, *, key)`; the key is for dropout and may be ignored."""


class DirectSensor(eqx.Module):
    """The reading is the observation; `noise(reading)` is its uncertainty."""

    noise: AbstractNoise

    def __call__(self, reading: Observation, context: Context, *, key: Key) -> Measurement:
        del context, key
        return Measurement(reading, self.noise.covariance(reading))

    def simulate(self, expected: Observation, *, key: Key) -> Observation:
        """Draws a reading where `expected` would be observed without noise."""
        factor = self.noise(expected)
        return expected + factor @ jr.normal(key, expected.shape, expected.dtype)


class NetworkSensor(eqx.Module):
    """Encoder, value head and noise head.

    features = encoder(reading, context, key=key), value = head(features), R = noise(features).
    While the encoder is frozen its features can be computed once and kept. Where they are large,
    like maps of scores, an `encoding` makes of them what likelihoods and recurrent networks see;
    it runs outside of the filter's loop. `lessons(encoder, features, reading, context)` are the
    `losses` of its measurements.
    """

    encoder: Callable[..., PyTree]
    head: Callable[[Any], Observation]
    noise: AbstractNoise
    encoding: Callable[[PyTree], PyTree] | None = None
    lessons: Callable[..., dict[str, Array] | None] | None = None

    def __call__(self, reading: Reading, context: Context, *, key: Key) -> Measurement:
        features = self.encoder(reading, context, key=key)
        seen = features if self.encoding is None else self.encoding(features)
        losses = None
        if self.lessons is not None:
            losses = self.lessons(self.encoder, features, reading, context)
        covariance = self.noise.covariance(features)
        return Measurement(self.head(features), covariance, seen, losses=losses)


class Sensed(eqx.Module):
    """The sensor of readings that are measurements already, made beforehand by another sensor.

    It keeps that sensor, because an objective may look at its parameters.
    """

    sensor: Sensor

    def __call__(self, reading: Measurement, context: Context, *, key: Key) -> Measurement:
        del context, key
        return reading


class GivenFeatures(eqx.Module):
    """The encoder of readings that are features already, made beforehand."""

    def __call__(self, reading: PyTree, context: Context, *, key: Key) -> PyTree:
        del context, key
        return reading


def reader(sensor: Sensor) -> Any:
    """What reads images: the encoder of a sensor, behind a guard as well, or the sensor itself."""
    while (guarded := getattr(sensor, "sensor", None)) is not None:
        sensor = guarded
    return getattr(sensor, "encoder", sensor)


def sequences_at_once(sensor: Sensor, num_steps: int, most: int) -> int:
    """How many sequences are read in one go, so that their images fit into memory.

    At most `most`, and fewer if the sensor or its encoder bounds its `frames_at_once`.
    """
    frames = getattr(reader(sensor), "frames_at_once", None)
    if frames is None:
        return most
    if jax.default_backend() == "cpu":
        frames //= CPU_SHARE
    return min(max(frames // num_steps, 1), most)


class StackedSensors(eqx.Module):
    """Several sensors side by side: a reading is a tuple with one reading for each.

    A mask is a tuple, too: for each sensor, whether it reported or which components it did.
    """

    sensors: tuple[Sensor, ...]

    def __call__(self, reading: tuple[Reading, ...], context: Context, *, key: Key) -> Measurement:
        return sense(self, reading, None, context, key=key)

    def simulate(self, expected: Observation, *, key: Key) -> tuple[Reading, ...]:
        """Draws a reading for each sensor where `expected` would be observed without noise."""
        keys = jr.split(key, len(self.sensors))
        ends = np.cumsum([_size(sensor) for sensor in self.sensors])
        parts = jnp.split(expected, ends[:-1])
        return tuple(
            draw_reading(sensor, part, key=k)
            for sensor, part, k in zip(self.sensors, parts, keys, strict=True)
        )


def draw_reading(sensor: Sensor, expected: Observation, *, key: Key) -> Reading:
    """A reading drawn where `expected` would be observed without noise."""
    simulate = getattr(sensor, "simulate", None)
    if simulate is None:
        raise ValueError(
            "Readings can be drawn for a `DirectSensor`, a stack of them, or a sensor with a "
            f"`simulate(expected, *, key)` method: {type(sensor).__name__} has none."
        )
    return simulate(expected, key=key)


def _size(sensor: Sensor) -> int:
    """The number of components that a sensor observes."""
    if isinstance(sensor, StackedSensors):
        return sum(_size(part) for part in sensor.sensors)
    noise = getattr(sensor, "noise", None)
    if not isinstance(noise, AbstractNoise):
        raise ValueError(
            "Readings of stacked sensors can be drawn if each has a `noise`: "
            f"{type(sensor).__name__} has none."
        )
    return noise.size


def stack_sensors(*sensors: Sensor) -> StackedSensors:
    """Joins sensors into one; the model's observation is their observations, one after another."""
    if not sensors:
        raise ValueError("`stack_sensors` needs at least one sensor, got none.")
    return StackedSensors(sensors)


def sense(
    sensor: Sensor, reading: Reading, observed: Any, context: Context, *, key: Key
) -> Measurement:
    """Applies a sensor to what was observed of a reading.

    Unseen readings are zeroed before the sensor sees them, so that NaN in their place harms
    neither values nor gradients.
    """
    if isinstance(sensor, StackedSensors):
        return _sense_stack(sensor, reading, observed, context, key=key)
    if observed is None:
        return sensor(reading, context, key=key)
    measurement = sensor(_hide(reading, observed), context, key=key)
    if jnp.ndim(observed) > 0:
        check_shape("observed", observed, measurement.value.shape)
    both = jnp.logical_and(measurement.observed, observed)
    measurement = eqx.tree_at(lambda m: m.observed, measurement, both)
    if measurement.novelty is None:
        return measurement
    # What was not read, and is zero here, is nothing to warn of.
    novelty = jnp.where(jnp.any(observed), measurement.novelty, 0.0)
    return eqx.tree_at(lambda m: m.novelty, measurement, novelty)


def _sense_stack(
    stacked: StackedSensors, reading: Any, observed: Any, context: Context, *, key: Key
) -> Measurement:
    count = len(stacked.sensors)
    # One mask per step, or none, applies to all sensors.
    masks = observed if isinstance(observed, tuple) else (observed,) * count
    if observed is not None and not isinstance(observed, tuple) and jnp.ndim(observed) > 0:
        raise ValueError(
            f"A mask per component of {count} stacked sensors must be a tuple with one mask for "
            f"each, got one array of shape {jnp.shape(observed)} per step."
        )
    for name, given in (("readings", reading), ("observed", masks)):
        if not isinstance(given, tuple) or len(given) != count:
            raise ValueError(
                f"`{name}` of {count} stacked sensors must be a tuple of as many entries, "
                f"got {jax.tree.map(jnp.shape, given)}."
            )
    parts = [
        sense(sensor, r, mask, context, key=k)
        for sensor, r, mask, k in zip(
            stacked.sensors, reading, masks, jr.split(key, count), strict=True
        )
    ]
    whole = all(part.observed is True for part in parts)
    novelties = [part.novelty for part in parts if part.novelty is not None]
    return Measurement(
        jnp.concatenate([part.value for part in parts]),
        block_diag(*(part.covariance for part in parts)),
        tuple(part.features for part in parts),
        True if whole else jnp.concatenate([part.seen() for part in parts]),
        jnp.stack(novelties).max() if novelties else None,
    )


def _hide(reading: Reading, observed: Seen) -> Reading:
    def hide(leaf: Array) -> Array:
        each = jnp.ndim(observed) > 0 and jnp.shape(leaf) == jnp.shape(observed)
        return jnp.where(observed if each else jnp.any(observed), leaf, jnp.zeros_like(leaf))

    return jax.tree.map(hide, reading)
