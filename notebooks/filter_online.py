# %% [markdown]
# # Filter online
#
# On a robot readings come one at a time, and some do not come. `online` compiles sensor and filter
# into one call, which takes a belief and a reading and returns the next belief.

# %%
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import filtrax
from filtrax import plot

plane = filtrax.Space(("x", "y", "vx", "vy"))


def coast(state, inputs):
    dt = inputs["dt"]
    position, velocity = state[:2], state[2:]
    return jnp.concatenate([position + dt * velocity, velocity])


model = filtrax.StateSpaceModel(
    state_space=plane,
    process=coast,
    process_noise=filtrax.constant_noise([0.01, 0.01, 0.1, 0.1]),
    observe=lambda state, inputs: state[:2],
    sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5, 0.5])),
)
prior = filtrax.Gaussian(jnp.zeros(4), jnp.eye(4))
dts = np.random.default_rng(0).uniform(0.05, 0.15, 500).astype(np.float32)
flight = filtrax.simulate(model, prior, inputs={"dt": jnp.asarray(dts)}, key=jr.key(0))

# %% [markdown]
# ## The loop
#
# The first call compiles. `inputs` are what is known at the step, here the time since the last
# one; `observed=False` says that nothing came. The belief is yours: keep it, copy it, go back to
# an older one.

# %%
loop = filtrax.online(filtrax.ExtendedKalmanFilter(), model)
belief = loop.init(prior)
arrived = np.random.default_rng(1).random(500) > 0.3
readings = np.asarray(flight.readings)
beliefs, latencies = [], []
for t in range(500):
    begin = time.perf_counter()
    belief, info = loop.step(belief, readings[t], inputs={"dt": dts[t]}, observed=arrived[t])
    jax.block_until_ready(belief)
    latencies.append(time.perf_counter() - begin)
    beliefs.append(belief)
    assert info.finite
print(f"first step, with compilation: {latencies[0]:.2f} s")
print(f"median of the others: {1e6 * np.median(latencies[1:]):.0f} µs")

# %%
fig, ax = plt.subplots(figsize=(6, 2.5))
ax.hist(1e6 * np.asarray(latencies[1:]), bins=np.linspace(0, 200, 60))
ax.set_xlabel("microseconds of a step")

# %% [markdown]
# ## The same as offline
#
# Stepping is the same computation as `run` over the whole recording.

# %%
whole = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
offline = filtrax.run(
    filtrax.ExtendedKalmanFilter(),
    model,
    prior,
    flight.readings,
    inputs=flight.inputs,
    observed=jnp.asarray(arrived),
)
difference = jnp.abs(whole.mean - offline.beliefs.mean).max()
print(f"largest difference of a mean: {difference:.1e}")
assert difference < 1e-3
ax = plot.track(
    whole, plane, states=flight.states, readings=flight.readings, observed=jnp.asarray(arrived)
)

# %% [markdown]
# ## Where filtrax is not installed
#
# `export` gives the step as bytes that JAX alone can run, with beliefs as dictionaries of arrays.

# %%
exported = loop.export(belief, readings[0], inputs={"dt": dts[0]}, observed=arrived[0])
step = jax.export.deserialize(exported.serialize())
arrays, _ = step.call(
    filtrax.filters.as_dicts(belief), readings[0], {"dt": dts[0]}, arrived[0], None
)
print({name: array.shape for name, array in arrays.items()})
