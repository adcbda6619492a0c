"""Localize a robot by range and bearing to a beacon, with noise learned from recorded drives.

One model is trained through an extended Kalman filter and then serves three filters.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import filtrax

pose = filtrax.Space(("x", "y", "heading"), angles=("heading",))
polar = filtrax.Space(("range", "bearing"), angles=("bearing",))
prior = filtrax.Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([0.2, 0.2, 0.1]) ** 2))


def drive(state, command):
    heading, (speed, turn) = state[2], command
    return state + jnp.stack([speed * jnp.cos(heading), speed * jnp.sin(heading), turn])


def see_beacon(state, command):
    x, y = jnp.asarray([3.0, 8.0]) - state[:2]
    return jnp.stack([jnp.hypot(x, y), jnp.arctan2(y, x) - state[2]])


def build_model(process_std, sensor_std):
    return filtrax.StateSpaceModel(
        state_space=pose, observation_space=polar,
        process=drive, process_noise=filtrax.constant_noise(process_std),
        observe=see_beacon, sensor=filtrax.DirectSensor(filtrax.constant_noise(sensor_std)),
    )  # fmt: skip


# Recorded drives: 64 to learn from and one to test on.
truth = build_model([0.05, 0.05, 0.01], [0.3, 0.05])
commands = jnp.tile(jnp.asarray([0.5, 0.1]), (30, 1))
record = jax.vmap(lambda key: filtrax.simulate(truth, prior, inputs=commands, key=key))
drives = record(jr.split(jr.key(0), 65))
train = jax.tree.map(lambda leaf: leaf[:64], drives)
test = jax.tree.map(lambda leaf: leaf[64], drives)

# Unknown standard deviations of the noise are learned through the filter.
guess = build_model([0.5, 0.5, 0.5], [0.5, 0.5])
ekf, model, _ = filtrax.fit(
    filtrax.ExtendedKalmanFilter(), guess, train, loss=filtrax.losses.nll,
    optimizer=optax.adam(2e-2), num_steps=150, key=jr.key(2),
)  # fmt: skip


def distance(filt, model):
    result = filtrax.run(filt, model, prior, test.readings, inputs=test.inputs, key=jr.key(3))
    return filtrax.metrics.mean_distance(result.beliefs, test.states, pose, components=("x", "y"))


print(f"distance with guessed noise: ExtendedKalmanFilter {distance(ekf, guess):.3f}")
for filt in (ekf, filtrax.UnscentedKalmanFilter(), filtrax.ParticleFilter(num_particles=1000)):
    print(f"distance with learned noise: {type(filt).__name__} {distance(filt, model):.3f}")
