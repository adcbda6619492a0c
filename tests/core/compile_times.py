"""Prints how long the first value-and-gradient of each filter takes, as JSON."""

import json
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import filtrax
from filtrax.networks import Perceptron
from filtrax.training import filtering

BATCH, STEPS = 32, 50


def filters(space, observed):
    return {
        "ekf": filtrax.ExtendedKalmanFilter(),
        "ukf": filtrax.UnscentedKalmanFilter(),
        "mcukf": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=100),
        "pf": filtrax.ParticleFilter(num_particles=100),
        "lstm": filtrax.RecurrentFilter(
            filtrax.Features(space), observed, hidden_size=64, key=jr.key(0)
        ),
    }


def seconds_to_first_gradient(name, size, observed):
    space = filtrax.Space([f"x{i}" for i in range(size)])
    network = Perceptron((size, 32, 64, 64, size), key=jr.key(0))
    head = Perceptron((size, 32, 32, size), final_std=0.0, key=jr.key(1))
    model = filtrax.StateSpaceModel(
        state_space=space,
        observation_space=filtrax.Space([f"z{i}" for i in range(observed)]),
        process=filtrax.ResidualProcess(network),
        process_noise=filtrax.heteroscedastic_noise(
            filtrax.StateHead(head, filtrax.Features()), jnp.ones(size)
        ),
        observe=lambda state, _: state[:observed],
        sensor=filtrax.DirectSensor(filtrax.constant_noise(jnp.ones(observed))),
    )
    filt = filters(space, observed)[name]
    data = filtrax.Trajectory(
        jnp.zeros((BATCH, size)),
        jnp.tile(jnp.eye(size), (BATCH, 1, 1)),
        jnp.ones((BATCH, STEPS, observed)),
        states=jnp.ones((BATCH, STEPS, size)),
    )
    parameters, rest = eqx.partition((filt, model), eqx.is_inexact_array)
    objective = filtering(filtrax.losses.nll)

    @jax.jit
    @jax.value_and_grad
    def loss(parameters, data, keys):
        filt, model = eqx.combine(parameters, rest)
        one = lambda t, k: objective(filt, model, t, jnp.asarray(0.0), k)  # noqa: E731
        return jax.vmap(one)(data, keys).mean()

    keys = jr.split(jr.key(0), BATCH)
    begin = time.perf_counter()
    jax.block_until_ready(loss(parameters, data, keys))
    return time.perf_counter() - begin


seconds = {
    name: [seconds_to_first_gradient(name, *sizes) for sizes in ((4, 2), (10, 8))]
    for name in ("ekf", "ukf", "mcukf", "pf", "lstm")
}
json.dump(seconds, sys.stdout)
