"""Smooth a GPS track with gaps: what comes after a tunnel says where the car was inside.

A car reports speed and turn rate all the time, and its satellite receiver fixes the position once
a second, except in two tunnels. There a filter drifts until the next fix; a smoother does not.
"""

import jax.numpy as jnp
import jax.random as jr

import filtrax

pose = filtrax.Space(("east", "north", "heading"), angles=("heading",))


def drive(state, inputs):
    """A car that drives at a speed and turns at a rate, for a tenth of a second."""
    speed, rate = inputs
    heading = state[2] + 0.05 * rate
    ahead = 0.1 * speed * jnp.stack([jnp.cos(heading), jnp.sin(heading)])
    return jnp.append(state[:2] + ahead, state[2] + 0.1 * rate)


model = filtrax.StateSpaceModel(
    state_space=pose,
    process=drive,
    process_noise=filtrax.constant_noise([0.05, 0.05, 0.01]),
    observe=lambda state, inputs: state[:2],
    sensor=filtrax.DirectSensor(filtrax.constant_noise([2.0, 2.0])),
)
prior = filtrax.Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([4.0, 4.0, 0.1])))

steps = jnp.arange(3000)  # five minutes
commands = jnp.stack([12.0 + 3 * jnp.sin(steps / 200), 0.15 * jnp.sin(steps / 170)], axis=1)
track = filtrax.simulate(model, prior, inputs=commands, key=jr.key(0))
tunnel = (steps >= 800) & (steps < 1200) | (steps >= 2000) & (steps < 2600)
fixes = (steps % 10 == 0) & ~tunnel

filt = filtrax.ExtendedKalmanFilter()
filtered, smoothed = (
    estimate(filt, model, prior, track.readings, inputs=commands, observed=fixes).beliefs
    for estimate in (filtrax.run, filtrax.smooth)
)
assert track.states is not None
for name, beliefs in (("filter", filtered), ("smoother", smoothed)):
    offset = beliefs.mean[:, :2] - track.states[:, :2]
    error = jnp.sqrt((offset**2).sum(1))
    inside, outside = (float(jnp.sqrt((error[mask] ** 2).mean())) for mask in (tunnel, ~tunnel))
    nees = filtrax.metrics.nees(beliefs, track.states, pose).mean()
    print(
        f"{name:9} {outside:.2f} m outside, {inside:.2f} m in tunnels, NEES {float(nees):.2f} of 3"
    )
