"""The state-space model: everything that is known or learned of a system."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._checks import as_float, check_shape, check_signature, check_whole, keyword_only
from filtrax._given import unwrap
from filtrax._types import Context, Inputs, Key, Observation, State, bound
from filtrax.beliefs import Gaussian
from filtrax.likelihoods import AbstractLikelihood, GaussianLikelihood
from filtrax.linalg import precise, product
from filtrax.networks import Features
from filtrax.noise import AbstractNoise
from filtrax.sensors import Measurement, Sensor, draw_reading
from filtrax.spaces import AbstractSpace, Euclidean
from filtrax.trajectory import Trajectory


@keyword_only(
    "StateSpaceModel(process, process_noise, observe, sensor, *, state_space=Euclidean(), "
    "observation_space=Euclidean(), likelihood=GaussianLikelihood())"
)
class StateSpaceModel(eqx.Module):
    """A process, what can be observed of it, and how uncertain both are.

        x_t = process(x_{t-1}, u_t) + q_t,   q_t ~ N(0, Q(x_{t-1}, u_t))
        z_t = observe(x_t, u_t) + r_t,       r_t ~ N(0, R_t),   (z_t, R_t) = sensor(reading_t, u_t)

    Every part may be a plain function or a module with parameters to train. The inputs u_t are all
    that is known at step t, one pytree from which each part takes what it needs.

    **Attributes:**

    - `process`: `process(state, inputs) -> state`.
    - `process_noise`: called with `(state, inputs)`, the state before the step: a factor of Q.
    - `observe`: `observe(state, inputs) -> observation`.
    - `sensor`: `sensor(reading, inputs, context, *, key) -> Measurement`.
    - `state_space`, `observation_space`: which components are angles or have bounds.
    - `likelihood`: how a particle filter scores particles.
    """

    process: Callable[[State, Inputs], State]
    process_noise: AbstractNoise
    observe: Callable[[State, Inputs], Observation]
    sensor: Sensor
    state_space: AbstractSpace = dataclasses.field(default=Euclidean(), kw_only=True)
    observation_space: AbstractSpace = dataclasses.field(default=Euclidean(), kw_only=True)
    likelihood: AbstractLikelihood = dataclasses.field(default=GaussianLikelihood(), kw_only=True)

    def __check_init__(self):
        check_signature("process", self.process, ("state", "inputs"))
        check_signature("process_noise", self.process_noise, ("state", "inputs"))
        check_signature("observe", self.observe, ("state", "inputs"))
        check_signature("sensor", self.sensor, ("reading", "inputs", "context"), ("key",))
        arguments = ("expected", "measurement", "inputs", "space")
        check_signature("likelihood", self.likelihood, arguments)

    def bind(self, context: Context) -> "StateSpaceModel":
        """The model for one sequence.

        Each part with a `bind` method is bound to the context, and each with a method
        `with_process` is handed the process, whose parameters it then shares.
        """
        # The sensor is handed the context with every reading.
        names = [field.name for field in dataclasses.fields(self) if field.name != "sensor"]
        parts = {name: getattr(self, name) for name in names}
        if context is not None:
            parts = {name: bound(part, context) for name, part in parts.items()}
        parts = {name: _sharing(part, parts["process"]) for name, part in parts.items()}
        if all(part is getattr(self, name) for name, part in parts.items()):
            return self
        return StateSpaceModel(sensor=self.sensor, **parts)


def _sharing(part: Any, process: Any) -> Any:
    """A part with the parameters of the process if it asks for them by `with_process`."""
    return part.with_process(process) if hasattr(part, "with_process") else part


class Linear(eqx.Module):
    """A linear process or observation: x ↦ A x + B u.

    **Attributes:**

    - `matrix`: A.
    - `input_matrix`: B, for inputs that are one vector. None: they are not used.
    """

    matrix: Float[Array, "y x"] = eqx.field(converter=as_float)
    input_matrix: Float[Array, "y u"] | None = eqx.field(
        default=None, converter=lambda value: None if value is None else as_float(value)
    )

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " y"]:
        image = product(self.matrix, state)
        return image if self.input_matrix is None else image + product(self.input_matrix, inputs)


def check_model(
    model: StateSpaceModel, prior: Gaussian, inputs: Inputs, measurement: Measurement
) -> None:
    """Raises unless all parts of a model agree on their shapes, for one step of one sequence."""
    state, value = prior.mean, measurement.value
    x, z = state.size, value.size
    if model.state_space.size is not None:
        check_shape("prior.mean", state, (model.state_space.size,))
    if model.observation_space.size is not None:
        size = model.observation_space.size
        check_shape("value of the sensor's measurement", value, (size,))
    check_shape("covariance of the sensor's measurement", measurement.covariance, (z, z))
    expected = {
        "result of process(state, inputs)": (lambda: model.process(state, inputs), (x,)),
        "result of process_noise.covariance(state, inputs)": (
            lambda: model.process_noise.covariance(state, inputs),
            (x, x),
        ),
        "result of observe(state, inputs)": (lambda: model.observe(state, inputs), (z,)),
    }
    for name, (part, shape) in expected.items():
        check_shape(name, jax.eval_shape(part), shape)


@keyword_only(
    "simulate(model, prior, *, inputs=None, num_steps=None, context=None, key)", controls="inputs"
)
def simulate(
    model: StateSpaceModel,
    prior: Gaussian,
    *,
    inputs: Any = None,
    num_steps: int | None = None,
    context: Context = None,
    key: Key,
) -> Trajectory:
    """Draws a trajectory: an initial state from the prior, then states and readings.

    The number of steps is that of the inputs or, without inputs, `num_steps`. The sensor must be
    able to draw readings (`DirectSensor` and stacks of it are).
    """
    if (inputs is None) == (num_steps is None):
        raise ValueError("`simulate` needs either `inputs` or `num_steps`, not both.")
    if num_steps is not None:
        check_whole("num_steps", num_steps, 0)
    states, readings = _draw(model, prior, inputs, num_steps, context, key)
    return Trajectory(
        prior.mean, prior.covariance, readings, inputs=inputs, states=states, context=context
    )


@eqx.filter_jit
@precise
def _draw(model, prior, inputs, num_steps, context, key):
    bound = unwrap(model).bind(context)
    space = bound.state_space
    initial_key, key = jr.split(key)
    initial = space.wrap(prior.sample(key=initial_key))

    def step(state, known):
        inputs, key = known
        process_key, sensor_key = jr.split(key)
        factor = bound.process_noise(state, inputs)
        noise = factor @ jr.normal(process_key, factor.shape[1:], state.dtype)
        state = space.wrap(space.add(bound.process(state, inputs), noise))
        reading = draw_reading(bound.sensor, bound.observe(state, inputs), key=sensor_key)
        return state, (state, reading)

    keys = jr.split(key, jax.tree.leaves(inputs)[0].shape[0] if num_steps is None else num_steps)
    _, (states, readings) = jax.lax.scan(step, initial, (inputs, keys))
    return states, readings


class ResidualProcess(eqx.Module):
    """A learned process: state + network(state, inputs), in the units of the network.

    A network that starts with small outputs starts as "nothing moves", from where a process
    model is learned most reliably (Kloss et al. 2021, section 4.1).
    """

    network: Callable[[Float[Array, " features"]], State]
    features: Features = Features()

    def __call__(self, state: State, inputs: Inputs) -> State:
        return state + self.features.unscaled(self.network(self.features(state, inputs)))

    def bind(self, context: Context) -> "ResidualProcess":
        """The process for one sequence."""
        return ResidualProcess(self.network, self.features.bind(context))
