"""A sensor of a log: a quantity, its calibration and its noise."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Context, Inputs, Key, Observation, State
from filtrax.models._motions import AbstractMotion, Body
from filtrax.models._parameters import RandomWalk, as_noise, optional
from filtrax.models._places import Landmarks
from filtrax.models._quantities import AbstractQuantity, columns_of, turned
from filtrax.noise import AbstractNoise
from filtrax.sensors import Measurement


class Sensor(eqx.Module):
    """A sensor that reports a quantity in columns of a log.

        z(t) = a h(x(t - τ)) + b + r,   r ~ N(0, R)

    Numbers are learned, if `train` or `tune` says so, and `filtrax.given(number)` never is. What is
    left out is not there.

    **Arguments:**

    - `quantity`: h, like `Position()` or `Range(landmarks)`.
    - `columns`: the columns of its readings.
    - `std`: the standard deviation of the noise, one or one for each column, or noise itself, which
      is called with the reading and its fields.
    - `bias`: b, one or one for each column, or one for each of the `Landmarks`. A `RandomWalk`
      makes it a state, "gnss.bias" for a stream "gnss", with the column at its end if there are
      several.
    - `scale`: a, likewise; angles are not scaled.
    - `delay`: τ in seconds: a reading belongs to the state so long before its time, to which the
      motion is followed back.
    - `lever_arm`: where the sensor is in the plane of the body, ahead and to the left.
    """

    quantity: AbstractQuantity
    noise: AbstractNoise | None
    bias: Any
    scale: Any
    delay: Any
    lever_arm: Any
    columns: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        quantity: AbstractQuantity,
        columns: str | Sequence[str],
        *,
        std: Any,
        bias: Any = None,
        scale: Any = None,
        delay: Any = None,
        lever_arm: Any = None,
    ):
        self.quantity, self.columns = quantity, columns_of(columns)
        size = len(self.columns)
        self.noise = as_noise("std", std, size)
        landmarks = self._landmarks
        shapes = [(), (size,)]
        if landmarks is not None and size == 1:
            shapes.append((len(landmarks.ids),))
        self.bias = optional("bias", bias, shapes)
        self.scale = optional("scale", scale, shapes)
        self.delay = optional("delay", delay, [()])
        self.lever_arm = optional("lever_arm", lever_arm, [(2,)])
        if scale is not None and all(quantity.angles(size)):
            raise ValueError("A sensor of angles must have no `scale`: an angle has no size.")

    @property
    def _landmarks(self) -> Landmarks | None:
        landmarks = getattr(self.quantity, "landmarks", None)
        return landmarks if isinstance(landmarks, Landmarks) else None

    @property
    def angles(self) -> tuple[bool, ...]:
        """Which of its columns are angles."""
        return self.quantity.angles(len(self.columns))

    @property
    def needs(self) -> tuple[str, ...]:
        """The attributes of a `Body` that must be known."""
        return self.quantity.needs + (() if self.lever_arm is None else ("heading",))

    def __call__(
        self, motion: AbstractMotion, state: State, inputs: Inputs, fields: Any
    ) -> Observation:
        """The reading that is expected without noise."""
        if self.delay is not None:
            state = motion.flow(state, inputs, -self.delay)
        body = motion.body(state, inputs)
        if self.lever_arm is not None:
            body = _mounted(body, self.lever_arm)
        value = self.quantity(body, fields)
        if self.scale is not None:
            scaled = self._of_landmark(self.scale, fields) * value
            value = jnp.where(np.asarray(self.angles), value, scaled)
        return value if self.bias is None else value + self._of_landmark(self.bias, fields)

    def _of_landmark(self, numbers: Float[Array, "*n"], fields: Any) -> Float[Array, "*z"]:
        """The number that belongs to a reading, where there is one for each landmark."""
        landmarks = self._landmarks
        if landmarks is None or numbers.shape in ((), (len(self.columns),)):
            return numbers
        return numbers[landmarks.index(fields)]

    def with_bias(self, bias: Float[Array, " z"] | None) -> "Sensor":
        """The sensor with another bias."""
        return eqx.tree_at(lambda s: s.bias, self, bias, is_leaf=_is_optional)

    def without_noise(self) -> "Sensor":
        """The sensor without its noise and a bias that walks, which other parts of a model have."""
        bare = eqx.tree_at(lambda s: s.noise, self, None, is_leaf=_is_optional)
        return bare.with_bias(None) if isinstance(self.bias, RandomWalk) else bare


class StreamSensor(eqx.Module):
    """The reading of a stream as it is, with noise that may depend on the reading and its fields.

    **Attributes:**

    - `noise`: `noise(reading, fields)`, a factor of the covariance.
    - `stream`: the name of the stream in the inputs.
    """

    noise: AbstractNoise
    stream: str = eqx.field(static=True)

    def __call__(
        self, reading: Observation, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        del context, key
        fields = inputs.get(self.stream, {})
        return Measurement(reading, factor=self.noise(reading, fields))

    def simulate(self, expected: Observation, *, key: Key) -> Observation:
        """Draws a reading where `expected` would be observed without noise."""
        factor = self.noise(expected, {})
        return expected + factor @ jr.normal(key, factor.shape[1:], expected.dtype)


def _mounted(body: Body, lever_arm: Float[Array, " 2"]) -> Body:
    """The body as it is where a sensor sits on it."""
    assert body.heading is not None
    arm = turned(lever_arm, body.heading)
    velocity = body.velocity
    if velocity is not None and body.yaw_rate is not None:
        velocity = velocity + body.yaw_rate * jnp.stack([-arm[1], arm[0]])
    return body._replace(position=body.position + arm, velocity=velocity)


def _is_optional(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, AbstractNoise | RandomWalk)
