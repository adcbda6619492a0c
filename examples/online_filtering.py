"""Step a filter reading by reading, as on a robot, with readings that sometimes fail to come.

`filtrax.online` compiles sensor and filter into one call. It holds no belief: the loop does.
"""

import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax

pendulum = filtrax.Space(("angle", "speed"), angles=("angle",))


def swing(state, torque):
    angle, speed = state
    speed = speed + 0.05 * (torque - 9.81 * jnp.sin(angle))
    return jnp.stack([angle + 0.05 * speed, speed])


model = filtrax.StateSpaceModel(
    state_space=pendulum,
    observation_space=filtrax.Space(("height",)),
    process=swing,
    process_noise=filtrax.constant_noise([0.01, 0.05]),
    observe=lambda state, torque: -jnp.cos(state[:1]),
    sensor=filtrax.DirectSensor(filtrax.constant_noise([0.05])),
)
prior = filtrax.Gaussian([1.0, 0.0], jnp.diag(jnp.asarray([0.01, 0.01])))
torques = jnp.sin(jnp.arange(400) / 20)
episode = filtrax.simulate(model, prior, inputs=torques, key=jr.key(0))

loop = filtrax.online(filtrax.UnscentedKalmanFilter(), model)
belief = loop.init(prior)
arrived = np.random.default_rng(0).random(400) > 0.2
beliefs, latencies = [], []
for t in range(400):
    torque = np.asarray(torques[t])
    reading = np.asarray(episode.readings[t]) if arrived[t] else np.full(1, np.nan)
    begin = time.perf_counter()
    belief, info = loop.step(belief, reading, inputs=torque, observed=arrived[t])
    jax.block_until_ready(belief)
    latencies.append(time.perf_counter() - begin)
    beliefs.append(belief)
    if not info.finite:
        raise SystemExit(f"The filter diverged in step {t}.")

whole = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
errors = filtrax.metrics.component_errors(whole, episode.states, pendulum)
print(f"{arrived.sum()} of {arrived.size} readings arrived")
print(f"mean error of the angle: {errors['angle']:.3f} rad")
print(f"first call, with compilation: {latencies[0]:.2f} s")
print(f"median of the others: {1e3 * np.median(latencies[1:]):.3f} ms")
