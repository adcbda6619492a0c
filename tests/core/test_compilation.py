"""A second call with the same shapes compiles nothing, and the first one compiles fast."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from systems import beacon_model, beacon_prior, beacon_trajectory, drive

SCRIPT = Path(__file__).parent / "compile_times.py"


class Counter:
    """A process that counts how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, state, inputs):
        self.traces += 1
        return drive(state, inputs)


def counted_model(counter, std=0.1):
    known = beacon_model(process_std=(std, std, std))
    return dataclasses.replace(known, process=counter)


def test_run_is_traced_once_for_all_values():
    counter, filt = Counter(), filtrax.UnscentedKalmanFilter()
    first, second = beacon_trajectory(4, 0), beacon_trajectory(4, 1)
    for trajectory, std in ((first, 0.1), (second, 0.3)):
        filtrax.run(
            filt,
            counted_model(counter, std),
            trajectory.prior,
            trajectory.readings,
            inputs=trajectory.inputs,
        )
        if trajectory is first:
            after_the_first = counter.traces
    assert counter.traces == after_the_first > 0


def test_online_is_traced_once_for_arrays_numbers_and_missing_readings():
    counter = Counter()
    loop = filtrax.online(filtrax.ParticleFilter(num_particles=5), counted_model(counter))
    belief = loop.init(beacon_prior(), key=jr.key(0))
    belief, _ = loop.step(belief, np.ones(2), inputs=np.zeros(2), key=jr.key(0))
    after_the_first = counter.traces
    for t, reading in enumerate((jnp.ones(2), np.ones(2), np.full(2, np.nan))):
        seen = bool(np.isfinite(reading).all())
        known = {"inputs": jnp.zeros(2), "observed": seen, "key": jr.key(t)}
        belief, _ = loop.step(belief, reading, **known)
    assert counter.traces == after_the_first > 0


def test_fit_is_traced_once_for_chunks_and_repeated_calls():
    counter, optimizer = Counter(), optax.adam(1e-2)

    def fit(std, every):
        filtrax.fit(
            filtrax.ExtendedKalmanFilter(),
            counted_model(counter, std),
            beacon_trajectory(4),
            loss=filtrax.losses.nll,
            optimizer=optimizer,
            num_steps=7,
            callback_every=every,
            key=jr.key(0),
        )

    fit(0.1, 7)
    after_the_first = counter.traces
    fit(0.2, 3)
    assert counter.traces == after_the_first > 0


@pytest.mark.speed
def test_the_first_value_and_gradient_compile_in_time():
    """State 4, observation 2 within 15 s; state 10, observation 8 within 20 s; learned process.

    In a process of its own, as a user would meet it: nothing cached, nothing switched off.
    """
    ours = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    result = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, env=environment, check=True
    )
    seconds = json.loads(result.stdout)
    assert set(seconds) == {"ekf", "ukf", "mcukf", "pf", "lstm"}
    for name, (small, large) in seconds.items():
        assert small < 15, name
        assert large < 20, name
