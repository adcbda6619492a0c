# %% [markdown]
# # Learn noise from a log
#
# A cart rolls along a rail. Every tenth of a second an ultrasonic sensor measures its position,
# and for some seconds it measures nothing at all. Nobody knows how noisy the sensor is, or how
# roughly the rail accelerates the cart. Both numbers are learned from the readings alone.

# %%
import jax.numpy as jnp
import jax.random as jr
import optax

import filtrax
from filtrax import plot

# %% [markdown]
# ## A model
#
# The state is position and speed. `process` says how it changes in a step, `observe` what the
# sensor would read without noise. Both noises start with a guess that is off by a factor of ten.

# %%
DT = 0.1
cart = filtrax.Space(("position", "speed"))


def roll(state, inputs):
    position, speed = state
    return jnp.stack([position + DT * speed, speed])


def build(process_std, sensor_std):
    return filtrax.StateSpaceModel(
        state_space=cart,
        process=roll,
        process_noise=filtrax.constant_noise([1e-3, process_std]),
        observe=lambda state, inputs: state[:1],
        sensor=filtrax.DirectSensor(filtrax.constant_noise([sensor_std])),
    )


# %% [markdown]
# ## A log
#
# It is simulated, so that the answer is known. `observed` marks the readings that exist; the
# others may hold anything.

# %%
truth = build(0.2, 0.05)
prior = filtrax.Gaussian([0.0, 0.0], jnp.eye(2))
recording = filtrax.simulate(truth, prior, num_steps=1000, key=jr.key(0))
observed = jnp.arange(1000) % 100 < 80
readings = jnp.where(observed[:, None], recording.readings, jnp.nan)
log = filtrax.Trajectory(prior.mean, prior.covariance, readings, observed=observed)

# %% [markdown]
# ## Learn
#
# The filter predicts each reading before it sees it. `measurement_nll` is the negative logarithm
# of how probable the readings were, so no true state is needed. `fit` prints which arrays it
# trains.

# %%
start = build(2.0, 0.5)
ekf = filtrax.ExtendedKalmanFilter()
ekf, model, history = filtrax.fit(
    ekf,
    start,
    log,
    objective=filtrax.training.measurement_nll,
    optimizer=optax.adam(3e-2),
    num_steps=400,
    key=jr.key(1),
)
print("sensor:  learned", model.sensor.noise.std, "true", truth.sensor.noise.std)
print("process: learned", model.process_noise.std, "true", truth.process_noise.std)
assert abs(model.sensor.noise.std[0] / 0.05 - 1) < 0.1
assert abs(model.process_noise.std[1] / 0.2 - 1) < 0.2

# %%
ax = plot.learning_curves(history.loss, window=5)

# %% [markdown]
# ## Is it right?
#
# Innovations are what a reading differs by from its prediction. Those of a filter that knows its
# noise are white, and their squares, in units of the covariance that the filter claims, lie in the
# grey band 19 times of 20. The guess from the beginning fails both.

# %%
results = {
    name: filtrax.run(ekf, m, prior, readings, observed=observed, info=True)
    for name, m in {"guessed": start, "learned": model}.items()
}
for name, result in results.items():
    average = filtrax.metrics.nis(result.info)[observed].mean()
    print(f"{name}: average squared innovation {average:.2f}, of one component it should be 1")

# %%
ax = plot.whiteness(results["guessed"].info, model.observation_space)
ax.set_title("guessed")

# %%
ax = plot.whiteness(results["learned"].info, model.observation_space)
ax.set_title("learned")

# %% [markdown]
# ## The track
#
# While nothing is measured the interval widens, and it holds the truth.

# %%
rows = plot.states(
    results["learned"].beliefs, cart, states=recording.states, times=DT * jnp.arange(1000)
)
rows[0].set_xlim(0, 30)
