"""Fuse an IMU at 100 Hz with wheel speed at 10 Hz, on one clock.

The IMU drives the process: what it reads is an input of each step. The wheels are a sensor, which
is observed in one of ten steps. The bias of the accelerometer is a state, so that it is estimated.
"""

import jax.numpy as jnp
import jax.random as jr

import filtrax

DT, STEPS = 0.01, 2000
vehicle = filtrax.Space(("x", "y", "heading", "speed", "bias"), angles=("heading",))


def drive(state, imu):
    _, _, heading, speed, bias = state
    rates = [speed * jnp.cos(heading), speed * jnp.sin(heading), imu["gyro"]]
    return state + DT * jnp.stack([*rates, imu["acceleration"] - bias, 0.0 * bias])


model = filtrax.StateSpaceModel(
    state_space=vehicle,
    process=drive,
    process_noise=filtrax.constant_noise([0.0, 0.0, 2e-4, 2e-3, 1e-4]),
    observe=lambda state, imu: state[3:4],
    sensor=filtrax.DirectSensor(filtrax.constant_noise([0.05])),
)
std = jnp.asarray([0.1, 0.1, 0.05, 1.0, 0.3])
prior = filtrax.Gaussian(jnp.asarray([0.0, 0.0, 0.0, 5.0, 0.0]), jnp.diag(std**2))
time = DT * jnp.arange(STEPS)
imu = {"gyro": 0.3 * jnp.sin(0.5 * time), "acceleration": 0.5 * jnp.cos(time)}
trip = filtrax.simulate(model, prior, inputs=imu, key=jr.key(0))

reported = jnp.arange(STEPS) % 10 == 9
readings = jnp.where(reported[:, None], trip.readings, jnp.nan)  # what never came may be anything
masks = {"IMU alone": jnp.zeros(STEPS, bool), "IMU and wheels": reported}
for name, observed in masks.items():
    beliefs = filtrax.run(
        filtrax.ExtendedKalmanFilter(), model, prior, readings, inputs=imu, observed=observed
    ).beliefs
    errors = filtrax.metrics.component_errors(beliefs, trip.states, vehicle)
    print(f"{name:14} " + ", ".join(f"{c} error {errors[c]:.3f}" for c in ("x", "speed", "bias")))
