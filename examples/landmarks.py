"""Localize a robot by ranges and bearings to known landmarks, at irregular times.

`inputs` hold what is known at each step: time since the last one, command, landmarks in view.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

import filtrax

pose = filtrax.Space(("x", "y", "heading"), angles=("heading",))
polar = filtrax.Space(("range", "range 2", "bearing", "bearing 2"), angles=("bearing", "bearing 2"))
landmarks = jnp.asarray([[-2.0, 6.0], [9.0, 9.0], [11.0, -2.0], [2.0, -5.0]])


class Diffusion(filtrax.noise.AbstractNoise):
    """Independent noise whose variance grows with the time between two steps."""

    std: jnp.ndarray

    @property
    def size(self):
        return self.std.size

    def __call__(self, state, inputs):
        return jnp.diag(self.std * jnp.sqrt(inputs["dt"]))


def drive(state, inputs):
    heading, (speed, turn), dt = state[2], inputs["command"], inputs["dt"]
    return state + dt * jnp.stack([speed * jnp.cos(heading), speed * jnp.sin(heading), turn])


def see(state, inputs):
    x, y = (landmarks[inputs["seen"]] - state[:2]).T
    return jnp.concatenate([jnp.hypot(x, y), jnp.arctan2(y, x) - state[2]])


model = filtrax.StateSpaceModel(
    process=drive, process_noise=Diffusion(jnp.asarray([0.1, 0.1, 0.05])), state_space=pose,
    observe=see, observation_space=polar,
    sensor=filtrax.DirectSensor(filtrax.constant_noise([0.2, 0.2, 0.03, 0.03])),
)  # fmt: skip
prior = filtrax.Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([1.0, 1.0, 0.04])))
dt = (0.3 * jr.exponential(jr.key(0), (100,))).at[3::4].set(0.0)  # some at the same time
seen = jnp.stack([jnp.arange(100) % 4, jnp.arange(1, 101) % 4], axis=1)
inputs = {"dt": dt, "command": jnp.tile(jnp.asarray([1.0, 0.2]), (100, 1)), "seen": seen}
tour = filtrax.simulate(model, prior, inputs=inputs, key=jr.key(1))


def filtered(model):
    return filtrax.run(filtrax.ExtendedKalmanFilter(), model, prior, tour.readings, inputs=inputs)


errors = filtrax.metrics.component_errors(filtered(model).beliefs, tour.states, pose)
gradient = eqx.filter_grad(lambda model: filtered(model).log_likelihood)(model)
print(", ".join(f"{name} error {error:.3f}" for name, error in errors.items()))
print(f"gradient of the log likelihood by the process noise: {gradient.process_noise.std}")
