"""The state-space model: everything that is known or learned of a system."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float

from filtrax.arrays import Context, Control, Key, Observation, State
from filtrax.beliefs import Gaussian
from filtrax.checks import check_shape
from filtrax.likelihoods import AbstractLikelihood, GaussianLikelihood
from filtrax.linalg import precise
from filtrax.noise import AbstractNoise
from filtrax.sensors import Measurement, Sensor, draw_reading
from filtrax.spaces import Space
from filtrax.trajectory import Trajectory


class StateSpaceModel(eqx.Module):
    """A process, what can be observed of it, and how uncertain both are.

        x_t = process(x_{t-1}, u_t) + q_t,   q_t ~ N(0, Q(x_{t-1}, u_t))
        z_t = observe(x_t) + r_t,            r_t ~ N(0, R_t),   (z_t, R_t) = sensor(reading_t)

    Every part may be a plain function or a module with parameters to train.

    **Attributes:**

    - `state_space`, `observation_space`: what the components mean.
    - `process`: `process(state, control) -> state`.
    - `process_noise`: Q, called with `(state, control)`: the state before the step.
    - `observe`: `observe(state) -> observation`.
    - `sensor`: `sensor(reading, context, *, key) -> Measurement`.
    - `likelihood`: how a particle filter scores particles.
    """

    state_space: Space
    observation_space: Space
    process: Callable[[State, Control], State]
    process_noise: AbstractNoise
    observe: Callable[[State], Observation]
    sensor: Sensor
    likelihood: AbstractLikelihood = GaussianLikelihood()

    def bind(self, context: Context) -> "StateSpaceModel":
        """The model for one sequence: each part with a `bind` method is bound to its context."""
        if context is None:
            return self

        return StateSpaceModel(
            bound(self.state_space, context),
            bound(self.observation_space, context),
            bound(self.process, context),
            bound(self.process_noise, context),
            bound(self.observe, context),
            self.sensor,  # which is handed the context with every reading
            bound(self.likelihood, context),
        )


def bound(part: Any, context: Context) -> Any:
    """A part for one sequence: bound to its context if it has a `bind` method."""
    return part.bind(context) if hasattr(part, "bind") else part


def check_model(
    model: StateSpaceModel, prior: Gaussian, control: Control, measurement: Measurement
) -> None:
    """Raises unless all parts of a model agree on their shapes, for one step of one sequence."""
    x, z = model.state_space.size, model.observation_space.size
    check_shape("prior.mean", prior.mean, (x,))
    check_shape("value of the sensor's measurement", measurement.value, (z,))
    check_shape("covariance of the sensor's measurement", measurement.covariance, (z, z))
    state = prior.mean
    expected = {
        "result of process(state, control)": (lambda: model.process(state, control), (x,)),
        "result of process_noise.covariance(state, control)": (
            lambda: model.process_noise.covariance(state, control),
            (x, x),
        ),
        "result of observe(state)": (lambda: model.observe(state), (z,)),
    }
    for name, (part, shape) in expected.items():
        check_shape(name, jax.eval_shape(part), shape)


def simulate(
    model: StateSpaceModel,
    prior: Gaussian,
    controls: Any = None,
    *,
    num_steps: int | None = None,
    context: Context = None,
    key: Key,
) -> Trajectory:
    """Draws a trajectory: an initial state from the prior, then states and readings.

    The number of steps is that of the controls or, without controls, `num_steps`. The sensor
    must be able to draw readings (`DirectSensor` and stacks of it are).
    """
    if (controls is None) == (num_steps is None):
        raise ValueError("`simulate` needs either `controls` or `num_steps`, not both.")
    states, readings = _draw(model, prior, controls, num_steps, context, key)
    return Trajectory(prior.mean, prior.covariance, controls, readings, states, context=context)


@eqx.filter_jit
@precise
def _draw(model, prior, controls, num_steps, context, key):
    bound = model.bind(context)
    initial_key, key = jr.split(key)
    initial = bound.state_space.wrap(prior.sample(key=initial_key))

    def step(state, inputs):
        control, key = inputs
        process_key, sensor_key = jr.split(key)
        factor = bound.process_noise(state, control)
        noise = factor @ jr.normal(process_key, state.shape, state.dtype)
        state = bound.state_space.wrap(bound.process(state, control) + noise)
        reading = draw_reading(bound.sensor, bound.observe(state), key=sensor_key)
        return state, (state, reading)

    keys = jr.split(key, jax.tree.leaves(controls)[0].shape[0] if num_steps is None else num_steps)
    _, (states, readings) = jax.lax.scan(step, initial, (controls, keys))
    return states, readings


class ResidualProcess(eqx.Module):
    """A learned process: state + network(state, control), in the units of the network.

    A network that starts with small outputs starts as "nothing moves", from where a process
    model is learned most reliably (Kloss et al. 2021, section 4.1).
    """

    network: Callable[[Float[Array, " inputs"]], State]
    space: Space

    def __call__(self, state: State, control: Control) -> State:
        output = self.network(self.space.network_input(state, control))
        return state + self.space.unscaled(output)
