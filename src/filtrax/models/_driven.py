"""Motions that a log drives: by odometry, or by an IMU."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Inputs, Scalar, State
from filtrax.models._motions import NODES, WEIGHTS, AbstractMotion, Body, arc, direction
from filtrax.models._noise import safe_root
from filtrax.models._parameters import as_noise, optional
from filtrax.noise import AbstractNoise


class DrivenPose(AbstractMotion):
    """A pose in the plane that odometry drives.

        ẋ = v cos θ - l sin θ,   ẏ = v sin θ + l cos θ,   θ̇ = ω + w₃
        v = a u₁ + √|v| w₁,   ω = c u₂ + b + √|v| w₂,   l = √|v| w₄

    u₁ and u₂ are the speed and the turn rate of the log. The state is ("x", "y", "heading").

    **Arguments:**

    - `speed`, `turn`: their columns, as in "odometry.speed".
    - `increments`: the columns have distance and angle since the row before, and not rates.
    - `distance_std`: the error of the distance after one metre, in metres; it grows with the root
      of the distance, and so do the next two.
    - `turn_std`: the error of the heading after one metre, in radians.
    - `slip_std`: the motion to the side after one metre, in metres.
    - `drift_std`: the error of the heading after one second, in radians.
    - `speed_scale`, `turn_scale`, `turn_bias`: a, c and b, to be learned unless they are given. The
      bias may be a `RandomWalk`, which adds the state "turn_bias". Without them a, c = 1 and b = 0.
    """

    noise: dict[str, AbstractNoise] | None
    speed_scale: Any
    turn_scale: Any
    turn_bias: Any
    columns: tuple[str, str] = eqx.field(static=True)
    are_increments: bool = eqx.field(static=True)

    def __init__(
        self,
        speed: str,
        turn: str,
        *,
        increments: bool = False,
        distance_std: Any = None,
        turn_std: Any = None,
        slip_std: Any = None,
        drift_std: Any = None,
        speed_scale: Any = None,
        turn_scale: Any = None,
        turn_bias: Any = None,
    ):
        self.columns, self.are_increments = (speed, turn), increments
        named = {"distance": distance_std, "turn": turn_std, "slip": slip_std, "drift": drift_std}
        used = {name: std for name, std in named.items() if std is not None}
        if not used:
            raise ValueError(
                "A `DrivenPose` needs at least one of `distance_std`, `turn_std`, `slip_std` and "
                "`drift_std`: without noise a filter believes odometry for ever."
            )
        self.noise = {name: as_noise(f"{name}_std", std, 1) for name, std in used.items()}
        self.speed_scale = optional("speed_scale", speed_scale, [()])
        self.turn_scale = optional("turn_scale", turn_scale, [()])
        self.turn_bias = optional("turn_bias", turn_bias, [()])

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y", "heading")

    @property
    def angles(self) -> tuple[str, ...]:
        return ("heading",)

    @property
    def rates(self) -> tuple[str, ...]:
        return () if self.are_increments else self.columns

    @property
    def increments(self) -> tuple[str, ...]:
        return self.columns if self.are_increments else ()

    def _driven(self, inputs: Inputs) -> tuple[Scalar, Scalar]:
        """Speed and turn rate, as calibrated."""
        speed, turn = (column_of(inputs, name) for name in self.columns)
        if self.speed_scale is not None:
            speed = self.speed_scale * speed
        if self.turn_scale is not None:
            turn = self.turn_scale * turn
        return speed, turn if self.turn_bias is None else turn + self.turn_bias

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        speed, rate = self._driven(inputs)
        east, north = arc(state[2], rate, dt)
        return state + jnp.stack([speed * east, speed * north, dt * rate])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        assert self.noise is not None
        ahead, zero = direction(state[2]), jnp.zeros_like(state[2])
        turning = jnp.stack([zero, zero, zero + 1])[:, None]
        root = safe_root(jnp.abs(self._driven(inputs)[0]))
        columns = {
            "distance": root * jnp.stack([ahead[0], ahead[1], zero])[:, None],
            "turn": root * turning,
            "slip": root * jnp.stack([-ahead[1], ahead[0], zero])[:, None],
            "drift": turning,
        }
        return {name: columns[name] for name in self.noise}

    def body(self, state: State, inputs: Inputs) -> Body:
        speed, rate = self._driven(inputs)
        return Body(state[:2], speed * direction(state[2]), state[2], rate)


class PlanarImu(AbstractMotion):
    """A body in the plane that an IMU drives, whose biases walk.

        ẋ = v,   v̇ = R(θ) (u - b) + R(θ) w₁,   θ̇ = u₃ - b₃ + w₂,   ḃ = w₃,   ḃ₃ = w₄

    u are the accelerations along the axes of the body, u₃ is the turn rate, and R(θ) the rotation
    of the body. The state is ("x", "y", "heading", "vx", "vy", "bias_ax", "bias_ay", "bias_gyro")
    with the velocity in the world.

    **Arguments:**

    - `ax`, `ay`, `gyro`: the columns of u, as in "imu.ax". Gravity must not be in them.
    - `acceleration_std`, `gyro_std`: the errors of a velocity and of the heading after one second,
      as data sheets have them per √Hz.
    - `acceleration_walk`, `gyro_walk`: the changes of the biases in one second.
    """

    noise: dict[str, AbstractNoise] | None
    columns: tuple[str, str, str] = eqx.field(static=True)

    def __init__(
        self,
        ax: str,
        ay: str,
        gyro: str,
        *,
        acceleration_std: Any,
        gyro_std: Any,
        acceleration_walk: Any,
        gyro_walk: Any,
    ):
        self.columns = (ax, ay, gyro)
        self.noise = {
            "acceleration": as_noise("acceleration_std", acceleration_std, 2),
            "gyro": as_noise("gyro_std", gyro_std, 1),
            "acceleration_walk": as_noise("acceleration_walk", acceleration_walk, 2),
            "gyro_walk": as_noise("gyro_walk", gyro_walk, 1),
        }

    @property
    def names(self) -> tuple[str, ...]:
        return ("x", "y", "heading", "vx", "vy", "bias_ax", "bias_ay", "bias_gyro")

    @property
    def angles(self) -> tuple[str, ...]:
        return ("heading",)

    @property
    def rates(self) -> tuple[str, ...]:
        return self.columns

    def _driven(self, state: State, inputs: Inputs) -> tuple[Float[Array, " 2"], Scalar]:
        """Acceleration in the body and turn rate, without their biases."""
        ax, ay, gyro = (column_of(inputs, name) for name in self.columns)
        return jnp.stack([ax, ay]) - state[5:7], gyro - state[7]

    def flow(self, state: State, inputs: Inputs, dt: Scalar) -> State:
        (a, b), rate = self._driven(state, inputs)
        nodes, weights = (np.asarray(part, state.dtype) for part in (NODES, WEIGHTS))
        angles = state[2] + rate * dt * nodes
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        world = jnp.stack([a * cos - b * sin, a * sin + b * cos])  # at the nodes
        velocity = state[3:5] + dt * (world @ weights)
        moved = dt * state[3:5] + dt**2 * (world @ (weights * (1 - nodes)))
        heading = state[2:3] + dt * rate
        return jnp.concatenate([state[:2] + moved, heading, velocity, state[5:]])

    def entries(self, state: State, inputs: Inputs) -> dict[str, Float[Array, "x _"]]:
        del inputs
        axes = jnp.eye(8, dtype=state.dtype)
        cos, sin = direction(state[2])
        rotation = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
        return {
            "acceleration": axes[:, 3:5] @ rotation,
            "gyro": axes[:, 2:3],
            "acceleration_walk": axes[:, 5:7],
            "gyro_walk": axes[:, 7:8],
        }

    def body(self, state: State, inputs: Inputs) -> Body:
        _, rate = self._driven(state, inputs)
        return Body(state[:2], state[3:5], state[2], rate)


def column_of(inputs: Inputs, name: str) -> Scalar:
    """The value of a column that is named as "stream.column"."""
    stream, _, column = name.partition(".")
    return inputs[stream][column]
