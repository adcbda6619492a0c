"""What holds for steps of a loop beside their results, which `test_contract` compares."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
from systems import beacon_model, beacon_prior

INPUTS, READING = np.asarray([0.3, 0.15]), np.asarray([6.0, -2.0])


def loop_of(filt):
    loop = filtrax.online(filt, beacon_model())
    return loop, loop.init(beacon_prior(), key=jr.key(0))


def test_the_work_of_a_step_is_done_when_it_returns_on_a_cpu():
    """Rejects a step that is handed over to another thread, which costs more than a small one."""
    loop, belief = loop_of(filtrax.ParticleFilter(num_particles=100_000))
    for t in range(3):
        belief, info = loop.step(belief, READING, inputs=INPUTS, key=jr.key(t))
        assert all(leaf.is_ready() for leaf in jax.tree.leaves((belief, info)))


def test_a_gpu_is_never_interrupted_by_a_call_of_python():
    loop, belief = loop_of(filtrax.ExtendedKalmanFilter())
    arguments = belief, INPUTS, READING, np.asarray(True), jr.key(0)
    lower = loop._step.trace(*arguments).lower
    texts = {name: lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "cuda")}
    assert "callback" in texts["cpu"]
    assert "callback" not in texts["cuda"]


def test_large_readings_are_no_error():
    """Rejects a check for finite numbers that is fooled by those whose square is none."""
    loop, belief = loop_of(filtrax.ExtendedKalmanFilter())
    belief, _ = loop.step(belief, np.asarray([1e300, 0.0]), inputs=INPUTS)
    assert jnp.isfinite(belief.covariance).all()
