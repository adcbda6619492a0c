"""A filter that runs for days: a million steps need no more memory or programs than a few."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax

STEPS = 1_000_000
"""At 20 steps a second that is 14 hours."""


def resident() -> int:
    """The memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_a_million_steps_leave_nothing_behind():
    F = jnp.asarray([[1.0, 0.05], [0.0, 1.0]])
    model = filtrax.StateSpaceModel(
        process=lambda state, inputs: F @ state,
        process_noise=filtrax.constant_noise([0.01, 0.1]),
        observe=lambda state, inputs: state[:1],
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5])),
    )
    loop = filtrax.online(filtrax.ExtendedKalmanFilter(), model)
    belief = loop.init(filtrax.Gaussian([0.0, 0.0], jnp.eye(2)))
    readings = np.random.default_rng(0).normal(size=(1000, 1))
    masks = np.random.default_rng(1).uniform(size=1000) > 0.1
    for reading, seen in zip(readings, masks, strict=True):
        belief, info = loop.step(belief, reading, observed=seen)
    before, compiled = resident(), []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "compile" in event else None
    )
    for step in range(STEPS):
        number = step % 1000
        belief, info = loop.step(belief, readings[number], observed=masks[number])
    assert not compiled
    jax.jit(lambda x: x + 1)(jnp.zeros(3))
    assert compiled  # the listener hears what is compiled
    assert bool(info.finite)
    assert resident() - before < 10 * STEPS  # no Python object has fewer bytes
