"""Training through the interacting filter finds what made the data."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
import small_training as small
from filtrax.training import measurement_nll
from oracles.kalman import LinearSystem
from oracles.switching import SwitchingSystem, simulate
from systems import switching_model


def jumps(std: float) -> LinearSystem:
    """A number that fades, pushed by noise, and is read with errors."""
    one = np.eye(1)
    return LinearSystem(
        0.95 * one, np.zeros((1, 2)), one, std**2 * one, 0.25 * one, np.zeros(1), one
    )


SYSTEM = SwitchingSystem(
    (jumps(0.1), jumps(2.0)), np.array([[0.95, 0.05], [0.2, 0.8]]), np.array([0.8, 0.2])
)


def recordings(count, steps):
    """Readings alone: no states, no modes."""
    rng, prior = np.random.default_rng(0), SYSTEM.modes[0]
    readings = np.stack([simulate(SYSTEM, rng, steps)[3] for _ in range(count)])
    return filtrax.Trajectory(
        np.tile(prior.mean, (count, 1)),
        np.tile(prior.covariance, (count, 1, 1)),
        jnp.asarray(readings),
        inputs=jnp.zeros((count, steps, 2)),
    )


@pytest.mark.long
def test_recovers_the_transition_matrix_from_readings_alone():
    """From equal chances to within 0.03 of the truth.

    Rejects a likelihood that is not the mixture's, and logits that get no or a transposed gradient.
    """
    start = filtrax.LearnedTransitions(np.full((2, 2), 0.5))
    model, _ = switching_model(SYSTEM, start)
    _, model, history = filtrax.fit(
        filtrax.IMMFilter(),
        model,
        recordings(40, 50),
        objective=measurement_nll,
        train=("model.process.transitions",),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.5, 30), b1=0.5),
        batch_size=40,
        num_steps=30,
        key=jr.key(0),
    )
    found = np.exp(model.process.transitions(jnp.zeros(1), None))
    np.testing.assert_allclose(found, SYSTEM.transitions, atol=0.03)
    assert history.loss[-1] < history.loss[0] - 0.05


class Fading(eqx.Module):
    """A process of its own kind, so that modes are programs of their own."""

    gain: jax.Array

    def __call__(self, state, inputs):
        return self.gain * state


def build(key):
    """A filter and a switching model, with numbers of their own."""
    _, model = small.build(key)
    modes = (
        filtrax.Mode(),
        filtrax.Mode(Fading(jnp.asarray(0.5)), filtrax.constant_noise(jnp.asarray([3.0, 3.0]))),
    )
    chances = filtrax.LearnedTransitions([[0.9, 0.1], [0.5, 0.5]])
    process = filtrax.SwitchingProcess(model.process, modes, chances)
    return filtrax.IMMFilter(), dataclasses.replace(model, process=process)


@pytest.mark.long
def test_an_ensemble_of_switching_models_trains():
    both = eqx.filter_vmap(build)(jax.vmap(jr.key)(jnp.asarray(small.SEEDS)))
    (_, model), _, records = small.run(small.stage(), both)
    assert (records[-1].validation["loss"] < records[0].validation["loss"]).all()
    for part in (
        lambda m: m.process.transitions.logits,
        lambda m: m.process.modes[1].process.gain,
        lambda m: m.process.modes[1].process_noise.bias,
    ):
        before, after = part(both[1]), part(model)
        assert len(after) == len(small.SEEDS)
        assert (jnp.abs(after - before).reshape(len(after), -1).max(1) > 1e-3).all()
