"""Motions: how a body moves between two times, and where white noise enters."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Inputs, Scalar, State
from filtrax.models._parameters import as_noise, parameter
from filtrax.noise import AbstractNoise

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(3)
NODES, WEIGHTS = (_POINTS + 1) / 2, _WEIGHTS / 2
"""Points and weights of Gauss' rule on [0, 1]; it is exact for polynomials of degree five."""

AXES = ("x", "y", "z")


class Body(NamedTuple):
    """A moving body as sensors see it, with None for what a motion does not know.

    Vectors are in the world, angles and rates in radians.
    """

    position: Float[Array, " d"]
    velocity: Any = None
    heading: Any = None
    yaw_rate: Any = None


class AbstractMotion(eqx.Module):
    """A motion in continuous time, and the white noise that disturbs it.

    Between two times the state follows `flow`. White noise enters by the columns of `entries`.
    """

    noise: eqx.AbstractVar[dict[str, AbstractNoise] | None]

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """The components of its state."""

    @property
    @abc.abstractmethod
    def angles(self) -> tuple[str, ...]:
        """The components that are angles."""

    @property
    def rates(self) -> tuple[str, ...]:
        """The columns of a log that drive it as rates."""
        return ()

    @property
    def increments(self) -> tuple[str, ...]:
        """The columns of a log that drive it as increments."""
        return ()

    @abc.abstractmethod
    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        """The state a time `dt` later, or earlier if it is negative."""

    @abc.abstractmethod
    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        """How the state answers to each noise, by name: one column per component of the noise."""

    @abc.abstractmethod
    def body(self, state: State, inputs: Inputs) -> Body:
        """Position, velocity and heading at a state."""


class ConstantVelocity(AbstractMotion):
    """A point with nearly constant velocity in one, two or three dimensions.

        ẋ = v,   v̇ = w,   w white of density σ²

    The state is ("x", "y", ..., "vx", "vy", ...).

    **Arguments:**

    - `acceleration`: σ in m/s per √s: the standard deviation of the change of a velocity in one
      second; one for all axes or one for each.
    - `dimensions`: 1, 2 or 3.
    """

    noise: dict[str, AbstractNoise] | None
    dimensions: int = eqx.field(static=True)

    def __init__(self, acceleration: Any, dimensions: int = 2):
        self.dimensions = _checked_dimensions(dimensions)
        self.noise = {"acceleration": as_noise("acceleration", acceleration, dimensions)}

    @property
    def names(self) -> tuple[str, ...]:
        axes = AXES[: self.dimensions]
        return (*axes, *(f"v{axis}" for axis in axes))

    @property
    def angles(self) -> tuple[str, ...]:
        return ()

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        del inputs
        x, v = jnp.split(state, 2)
        return jnp.concatenate([x + dt * v, v])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        del inputs
        return {"acceleration": _last_rows(self.dimensions, 2, state.dtype)}

    def body(self, state: State, inputs: Inputs) -> Body:
        del inputs
        return Body(*jnp.split(state, 2))


class ConstantAcceleration(AbstractMotion):
    """A point with nearly constant acceleration in one, two or three dimensions.

        ẋ = v,   v̇ = a,   ȧ = w,   w white of density σ²

    The state is ("x", ..., "vx", ..., "ax", ...).

    **Arguments:**

    - `jerk`: σ in m/s² per √s: the standard deviation of the change of an acceleration in one
      second; one for all axes or one for each.
    - `dimensions`: 1, 2 or 3.
    """

    noise: dict[str, AbstractNoise] | None
    dimensions: int = eqx.field(static=True)

    def __init__(self, jerk: Any, dimensions: int = 2):
        self.dimensions = _checked_dimensions(dimensions)
        self.noise = {"jerk": as_noise("jerk", jerk, dimensions)}

    @property
    def names(self) -> tuple[str, ...]:
        axes = AXES[: self.dimensions]
        return (*axes, *(f"v{axis}" for axis in axes), *(f"a{axis}" for axis in axes))

    @property
    def angles(self) -> tuple[str, ...]:
        return ()

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        del inputs
        x, v, a = jnp.split(state, 3)
        return jnp.concatenate([x + dt * v + 0.5 * dt**2 * a, v + dt * a, a])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        del inputs
        return {"jerk": _last_rows(self.dimensions, 3, state.dtype)}

    def body(self, state: State, inputs: Inputs) -> Body:
        del inputs
        x, v, _ = jnp.split(state, 3)
        return Body(x, v)


class Unicycle(AbstractMotion):
    """A vehicle that drives where it points, with nearly constant speed and turn rate.

        ẋ = v cos θ,   ẏ = v sin θ,   θ̇ = ω,   v̇ = w₁,   ω̇ = w₂

    The state is ("x", "y", "heading", "speed", "yaw_rate").

    **Arguments:**

    - `acceleration`: the density of w₁ in m/s per √s.
    - `yaw_acceleration`: the density of w₂ in rad/s per √s.
    """

    noise: dict[str, AbstractNoise] | None

    def __init__(self, acceleration: Any, yaw_acceleration: Any):
        self.noise = {
            "acceleration": as_noise("acceleration", acceleration, 1),
            "yaw_acceleration": as_noise("yaw_acceleration", yaw_acceleration, 1),
        }

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y", "heading", "speed", "yaw_rate")

    @property
    def angles(self) -> tuple[str, ...]:
        return ("heading",)

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        del inputs
        x, y, heading, speed, rate = state
        east, north = arc(heading, rate, dt)
        return jnp.stack([x + speed * east, y + speed * north, heading + dt * rate, speed, rate])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        del inputs
        axes = jnp.eye(5, dtype=state.dtype)
        return {"acceleration": axes[:, 3:4], "yaw_acceleration": axes[:, 4:5]}

    def body(self, state: State, inputs: Inputs) -> Body:
        del inputs
        return Body(state[:2], state[3] * direction(state[2]), state[2], state[4])


class Bicycle(AbstractMotion):
    """A car with its reference point in the middle of the rear axle.

        ẋ = v cos θ,   ẏ = v sin θ,   θ̇ = v tan(δ) / L,   v̇ = w₁,   δ̇ = w₂

    The state is ("x", "y", "heading", "speed", "steering").

    **Arguments:**

    - `wheelbase`: L in metres; `filtrax.given(2.7)` if it is not to be learned.
    - `acceleration`: the density of w₁ in m/s per √s.
    - `steering_rate`: the density of w₂ in rad per √s.
    """

    noise: dict[str, AbstractNoise] | None
    wheelbase: Any

    def __init__(self, wheelbase: Any, acceleration: Any, steering_rate: Any):
        self.wheelbase = parameter("wheelbase", wheelbase, [()])
        self.noise = {
            "acceleration": as_noise("acceleration", acceleration, 1),
            "steering_rate": as_noise("steering_rate", steering_rate, 1),
        }

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y", "heading", "speed", "steering")

    @property
    def angles(self) -> tuple[str, ...]:
        return ("heading",)

    def _yaw_rate(self, state: State) -> Scalar:
        return state[3] * jnp.tan(state[4]) / self.wheelbase

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        del inputs
        x, y, heading, speed, steering = state
        rate = self._yaw_rate(state)
        east, north = arc(heading, rate, dt)
        place = [x + speed * east, y + speed * north]
        return jnp.stack([*place, heading + dt * rate, speed, steering])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        del inputs
        axes = jnp.eye(5, dtype=state.dtype)
        return {"acceleration": axes[:, 3:4], "steering_rate": axes[:, 4:5]}

    def body(self, state: State, inputs: Inputs) -> Body:
        del inputs
        velocity = state[3] * direction(state[2])
        return Body(state[:2], velocity, state[2], self._yaw_rate(state))


def direction(heading: Scalar) -> Float[Array, " 2"]:
    """The unit vector that a heading points to."""
    return jnp.stack([jnp.cos(heading), jnp.sin(heading)])


def arc(heading: Scalar, rate: Scalar, dt: Scalar) -> Float[Array, " 2"]:
    """∫ (cos, sin)(θ + ω τ) dτ over the time dt, by Gauss' rule with three points.

    It has no division by ω. Its relative error is below (ω dt)⁶ / 2,016,000.
    """
    nodes, weights = (np.asarray(part, jnp.result_type(heading)) for part in (NODES, WEIGHTS))
    angles = heading + rate * dt * nodes
    return dt * jnp.stack([(weights * jnp.cos(angles)).sum(), (weights * jnp.sin(angles)).sum()])


def _last_rows(dimensions: int, orders: int, dtype: Any) -> Float[Array, "x d"]:
    return jnp.eye(orders * dimensions, dtype=dtype)[:, -dimensions:]


def _checked_dimensions(dimensions: int) -> int:
    if dimensions not in (1, 2, 3):
        raise ValueError(f"`dimensions` must be 1, 2 or 3, got {dimensions}.")
    return dimensions
