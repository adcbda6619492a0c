"""A state-space model of a motion and sensors, which share the parameters of the motion."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._given import unwrap
from filtrax._types import Inputs, Observation, Scalar, State
from filtrax.logs import Layout
from filtrax.models._motions import NODES, WEIGHTS, AbstractMotion
from filtrax.models._noise import safe_root
from filtrax.models._parameters import RandomWalk
from filtrax.models._sensors import Sensor, StreamSensor
from filtrax.noise import AbstractNoise
from filtrax.sensors import stack_sensors
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel

MOTION = "motion"


class MotionProcess(eqx.Module):
    """The process of a motion, and of parameters that walk, which stay as they are.

    **Attributes:**

    - `motion`: the motion without its noise.
    - `walking`: the parameters of the motion that are components of the state.
    """

    motion: AbstractMotion
    walking: tuple[str, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number of components that the motion has."""
        return len(self.motion.names)

    def motion_at(self, state: State) -> AbstractMotion:
        """The motion with the parameters that the state has."""
        motion = self.motion
        for number, name in enumerate(self.walking):
            value = state[self.size + number]
            motion = eqx.tree_at(lambda m, n=name: getattr(m, n), motion, value, is_leaf=_is_none)
        return motion

    def __call__(self, state: State, inputs: Inputs) -> State:
        moved = self.motion_at(state).flow(state[: self.size], inputs, inputs["dt"])
        return jnp.concatenate([moved, state[self.size :]])


class MotionNoise(AbstractNoise):
    """White noise of a motion, integrated over a step, and the noise of parameters that walk.

        Q = ∫₀^Δt Φ(Δt - s) G(x(s)) Gᵀ Φᵀ ds

    with Φ the Jacobian of the flow and G the entries of the noise along the way from the state
    before the step, by Gauss' rule with three points. For constant velocity and acceleration that
    is exact. A factor has three columns for each component of the noise. A step of no time has no
    noise.
    """

    noise: dict[str, AbstractNoise]
    walks: tuple[AbstractNoise, ...]
    components: int = eqx.field(static=True)
    process: MotionProcess | None = None

    @property
    def size(self) -> int:
        return self.components

    def with_process(self, process: Any) -> "MotionNoise":
        """The noise that shares the parameters of the process."""
        return dataclasses.replace(self, process=process)

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "x _"]:
        process = _attached(self.process)
        motion, dt = process.motion_at(state), inputs["dt"]
        start = state[: process.size]
        parts = [
            safe_root(float(weight) * dt) * self._carried(motion, start, inputs, float(node), dt)
            for node, weight in zip(NODES, WEIGHTS, strict=True)
        ]
        factor = jnp.concatenate(parts, 1)
        if not self.walks:
            return factor
        walks = jnp.stack([walk(state, inputs)[0, 0] for walk in self.walks])
        return block_diag(factor, jnp.diag(safe_root(dt) * walks))

    def _carried(
        self, motion: AbstractMotion, start: State, inputs: Inputs, node: float, dt: Scalar
    ) -> Float[Array, "x _"]:
        """Φ G F: the noise that enters at one time of the step, carried to its end."""
        at = motion.flow(start, inputs, node * dt)
        entries = motion_entries(motion, self.noise, at, inputs)
        rest = lambda state: motion.flow(state, inputs, (1 - node) * dt)  # noqa: E731
        _, carry = jax.linearize(rest, at)
        return jax.vmap(carry, 1, 1)(entries)


def motion_entries(
    motion: AbstractMotion, noise: Mapping[str, AbstractNoise], state: State, inputs: Inputs
) -> Float[Array, "x _"]:
    """G F: the entries of all noise of a motion, times factors of its density."""
    motion = eqx.tree_at(lambda m: m.noise, motion, dict(noise), is_leaf=lambda leaf: leaf is None)
    entries = motion.entries(state, inputs)
    return jnp.concatenate([entries[n] @ part(state, inputs) for n, part in noise.items()], 1)


class SensorObservation(eqx.Module):
    """The readings that are expected of all sensors of a log, one after another.

    **Attributes:**

    - `sensors`: the sensors without their noise.
    - `streams`: the names of their streams.
    - `walking`: for each sensor the place of its bias in the state, if it walks.
    """

    sensors: tuple[Sensor, ...]
    streams: tuple[str, ...] = eqx.field(static=True)
    walking: tuple[tuple[int, int] | None, ...] = eqx.field(static=True)
    rates: tuple[str, ...] = eqx.field(static=True)
    increments: tuple[str, ...] = eqx.field(static=True)
    process: MotionProcess | None = None

    @property
    def layout(self) -> Layout:
        """The columns of a log that the model reads."""
        pairs = list(zip(self.streams, self.sensors, strict=True))
        dotted = lambda stream, names: tuple(f"{stream}.{name}" for name in names)  # noqa: E731
        fields = [dotted(stream, sensor.quantity.fields) for stream, sensor in pairs]
        allowed = {
            f"{stream}.{name}": values
            for stream, sensor in pairs
            for name, values in sensor.quantity.allowed.items()
        }
        angles = [
            dotted(stream, [c for c, is_angle in zip(s.columns, s.angles, strict=True) if is_angle])
            for stream, s in pairs
        ]
        return Layout(
            readings={stream: sensor.columns for stream, sensor in pairs},
            rates=self.rates,
            increments=self.increments,
            fields=sum(fields, ()),
            allowed=allowed,
            angles=sum(angles, ()),
        )

    def with_process(self, process: Any) -> "SensorObservation":
        """The observation that shares the parameters of the process."""
        return dataclasses.replace(self, process=process)

    def __call__(self, state: State, inputs: Inputs) -> Observation:
        process = _attached(self.process)
        motion, start = process.motion_at(state), state[: process.size]
        values = []
        for stream, sensor, walk in zip(self.streams, self.sensors, self.walking, strict=True):
            if walk is not None:
                sensor = sensor.with_bias(state[walk[0] : walk[1]])
            values.append(sensor(motion, start, inputs, inputs.get(stream, {})))
        return jnp.concatenate(values)


def build(motion: AbstractMotion, sensors: Mapping[str, Sensor]) -> StateSpaceModel:
    """A model for a log: a motion, and a sensor for each stream that reports.

    `log.events(model)` or `log.grid(model, step)` makes the steps that fit to it. The state has the
    components of the motion, and behind them the parameters that are a `RandomWalk`. Noise of a
    step follows from its `dt`, so that steps may have any length.

    The parts share the parameters of the motion: noise and observation are handed the process
    whenever a model is run, trained or bound (`model.bind(None)`).
    """
    if not sensors:
        raise ValueError("`sensors` must have at least one sensor, got none.")
    _check_needs(motion, sensors)
    walking = tuple(n for n in _parameters(motion) if isinstance(getattr(motion, n), RandomWalk))
    names = [*motion.names, *walking]
    walks = [getattr(motion, name).noise for name in walking]
    places: list[tuple[int, int] | None] = []
    for stream, sensor in sensors.items():
        place = None
        if isinstance(sensor.bias, RandomWalk):
            added = _bias_names(stream, sensor.columns)
            place = (len(names), len(names) + len(added))
            names += added
            walks += [sensor.bias.noise] * len(added)
        places.append(place)
    observe = SensorObservation(
        tuple(sensor.without_noise() for sensor in sensors.values()),
        tuple(sensors),
        tuple(places),
        motion.rates,
        motion.increments,
    )
    assert motion.noise is not None
    # The process keeps neither noise nor walks: others have them, and nothing is trained twice.
    gone = ("noise", *walking)
    bare = eqx.tree_at(
        lambda m: [getattr(m, name) for name in gone], motion, [None] * len(gone), is_leaf=_is_taken
    )
    return StateSpaceModel(
        process=MotionProcess(bare, walking),
        process_noise=MotionNoise(dict(motion.noise), tuple(walks), len(names)),
        observe=observe,
        sensor=stack_sensors(*(StreamSensor(s.noise, n) for n, s in sensors.items())),  # pyright: ignore
        state_space=Space(names, angles=motion.angles),
        observation_space=_observation_space(sensors),
    )


def _observation_space(sensors: Mapping[str, Sensor]) -> Space:
    pairs = [
        (f"{stream}.{column}", is_angle)
        for stream, sensor in sensors.items()
        for column, is_angle in zip(sensor.columns, sensor.angles, strict=True)
    ]
    return Space([name for name, _ in pairs], angles=[name for name, is_angle in pairs if is_angle])


def _bias_names(stream: str, columns: Sequence[str]) -> list[str]:
    if len(columns) == 1:
        return [f"{stream}.bias"]
    return [f"{stream}.bias.{column}" for column in columns]


def _check_needs(motion: AbstractMotion, sensors: Mapping[str, Sensor]) -> None:
    """Raises unless the motion knows what each sensor measures, in as many columns."""
    still = jax.tree.map(
        lambda leaf: jnp.zeros(()) if _is_walk(leaf) else leaf, unwrap(motion), is_leaf=_is_walk
    )
    inputs = _zeros((*motion.rates, *motion.increments))
    body = jax.eval_shape(still.body, jnp.zeros(len(motion.names)), inputs)
    known = [name for name, value in body._asdict().items() if value is not None]
    for stream, sensor in sensors.items():
        kind = f"{type(sensor.quantity).__name__} of {stream!r} with {type(motion).__name__}"
        missing = [name for name in sensor.needs if name not in known]
        check_known(f"{kind}, which must know", missing, known)
        fields = {name: jnp.zeros(()) for name in sensor.quantity.fields}
        value = jax.eval_shape(lambda b, q=sensor.quantity, f=fields: q(b, f), body)
        if value.shape != (len(sensor.columns),):
            raise ValueError(
                f"{kind} has {value.shape[0]} components, but got the columns {sensor.columns}."
            )


def _zeros(names: Sequence[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {"dt": jnp.zeros(())}
    for name in names:
        stream, _, column = name.partition(".")
        inputs.setdefault(stream, {})[column] = jnp.zeros(())
    return inputs


def _parameters(motion: AbstractMotion) -> list[str]:
    return [field.name for field in dataclasses.fields(motion)]


def _attached(process: MotionProcess | None) -> MotionProcess:
    if process is None:
        raise ValueError(
            "Noise and observation of a motion need its process: call them on `model.bind(None)`."
        )
    return process


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _is_taken(leaf: Any) -> bool:
    return isinstance(leaf, dict | RandomWalk)


def _is_walk(leaf: Any) -> bool:
    return isinstance(leaf, RandomWalk)
