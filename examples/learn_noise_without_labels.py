"""Learn process and sensor noise from logs with gaps and without ground truth.

The filter predicts each reading before it sees it. Maximizing the likelihood of what then came
needs the readings alone; missing ones are marked by `observed` and may hold anything.
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import filtrax

space = filtrax.Space(("position", "velocity"))


def drift(state, inputs):
    position, velocity = state
    return jnp.stack([position + velocity, 0.9 * velocity])


def build_model(process_std, sensor_std):
    return filtrax.StateSpaceModel(
        state_space=space,
        observation_space=space,
        process=drift,
        process_noise=filtrax.constant_noise(process_std),
        observe=lambda state, inputs: state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise(sensor_std)),
    )


# Logs in which a third of all numbers is missing, and no true state is known.
true_std = {"process": [0.5, 0.2], "sensor": [1.0, 0.5]}
truth = build_model(true_std["process"], true_std["sensor"])
prior = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))
record = jax.vmap(lambda key: filtrax.simulate(truth, prior, num_steps=60, key=key))
logs = record(jr.split(jr.key(0), 64))
observed = jr.uniform(jr.key(1), logs.readings.shape) > 1 / 3
readings = jnp.where(observed, logs.readings, jnp.nan)
logs = dataclasses.replace(logs, readings=readings, observed=observed, states=None)

_, model, history = filtrax.fit(
    filtrax.ExtendedKalmanFilter(),
    build_model([2.0, 2.0], [0.1, 0.1]),
    logs,
    objective=filtrax.training.measurement_nll,
    optimizer=optax.adam(5e-2),
    num_steps=200,
    key=jr.key(2),
)
print(f"negative log-likelihood of a step: {history.loss[0]:.2f} -> {history.loss[-1]:.2f}")
learned = {"process": model.process_noise, "sensor": model.sensor.noise}
for name, noise in learned.items():
    std = ", ".join(f"{value:.2f}" for value in noise.std)
    print(f"{name:8} std: true {true_std[name]}, learned [{std}]")
