"""Fuse two sensors that report at different rates, on a clock that ticks unevenly.

The time since the last step is an input, which process and noise both use. Each sensor keeps
its own noise and its own mask.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

import filtrax
from filtrax.noise import AbstractNoise

motion = filtrax.Space(("position", "velocity"))


class RandomAcceleration(AbstractNoise):
    """The noise of position and velocity under white acceleration for a time dt."""

    intensity: Array = eqx.field(converter=jnp.asarray)

    @property
    def size(self):
        return 2

    def __call__(self, state, dt):
        rows = [[dt / 3**0.5, 0.0], [3**0.5 / 2, 0.5]]
        return self.intensity * jnp.sqrt(dt) * jnp.asarray(rows)


odometer = filtrax.DirectSensor(filtrax.constant_noise([0.1]))  # sees the velocity
satellite = filtrax.DirectSensor(filtrax.constant_noise([1.0]))  # sees the position
model = filtrax.StateSpaceModel(
    state_space=motion, observation_space=filtrax.Space(("speed", "location")),
    process=lambda state, dt: jnp.stack([state[0] + dt * state[1], state[1]]),
    process_noise=RandomAcceleration(0.5),
    observe=lambda state, dt: jnp.stack([state[1], state[0]]),
    sensor=filtrax.stack_sensors(odometer, satellite),
)  # fmt: skip
prior = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))
dt = jr.uniform(jr.key(0), (500,), minval=0.01, maxval=0.3)
drive = filtrax.simulate(model, prior, inputs=dt, key=jr.key(1))

always, never = jnp.ones(500, bool), jnp.zeros(500, bool)
fixes = jnp.arange(500) % 20 == 0  # a satellite fix in one of 20 steps
masks = {"odometer": (always, never), "satellite": (never, fixes), "both": (always, fixes)}
for name, observed in masks.items():
    beliefs = filtrax.run(
        filtrax.ExtendedKalmanFilter(), model, prior, drive.readings, inputs=dt, observed=observed
    ).beliefs
    errors = filtrax.metrics.component_errors(beliefs, drive.states, motion)
    print(f"{name:9} " + ", ".join(f"{c} error {e:.3f}" for c, e in errors.items()))
