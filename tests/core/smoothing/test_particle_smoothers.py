"""Smoothing of particles against the exact smoother."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.smoothing import BackwardSimulation, MarginalSmoother
from oracles.kalman import LinearSystem, simulate
from oracles.smoothing import rauch_tung_striebel
from systems import linear_model

SYSTEM = LinearSystem(
    F=np.array([[0.95, 0.5], [0.0, 0.8]]),
    G=np.zeros((2, 2)),
    H=np.array([[1.0, 0.0]]),
    Q=np.diag([0.3, 0.5]),
    R=0.5 * np.eye(1),
    mean=np.zeros(2),
    covariance=np.eye(2),
)
STEPS = 8
CONTROLS, _, READINGS = simulate(SYSTEM, np.random.default_rng(2), STEPS)
SEEN = np.ones((STEPS, 1), bool)
SEEN[3:5] = False
MEANS, COVARIANCES, CROSS = rauch_tung_striebel(SYSTEM, CONTROLS, READINGS, SEEN)


@functools.cache
def errors(smoother, num_particles, repeats):
    """Root mean squared errors of means, covariances and pairs over repeated runs."""
    filt = filtrax.ParticleFilter(num_particles=num_particles)
    model, prior = linear_model(SYSTEM)
    readings = jnp.asarray(np.where(SEEN, READINGS, np.nan))

    @jax.jit
    @jax.vmap
    def run(key):
        found = filtrax.smooth(
            filt,
            model,
            prior,
            readings,
            inputs=jnp.asarray(CONTROLS),
            observed=jnp.asarray(SEEN),
            key=key,
            smoother=smoother,
        )
        moments = jax.vmap(lambda belief: belief.moments(model.state_space))(found.beliefs)
        first = found.initial.moments(model.state_space).mean
        return first, moments.mean, moments.covariance, found.cross_covariances

    first, means, covariances, cross = run(jr.split(jr.key(0), repeats))
    pairs = ((first, MEANS[0]), (means, MEANS[1:]), (covariances, COVARIANCES[1:]), (cross, CROSS))
    return np.array([np.sqrt(np.mean((np.asarray(found) - exact) ** 2)) for found, exact in pairs])


@pytest.mark.long
def test_backward_simulation_converges_with_the_root_of_the_number():
    """Rejects weights that forget the transition: such errors do not vanish at all."""
    few = errors(BackwardSimulation(16), 16, 100)
    many = errors(BackwardSimulation(256), 256, 20)
    np.testing.assert_allclose(few / many, 4, rtol=0.35)
    assert (many < 0.15).all()


@pytest.mark.long
def test_the_marginal_smoother_converges_and_beats_draws():
    few, many = errors(MarginalSmoother(), 32, 60), errors(MarginalSmoother(), 512, 8)
    np.testing.assert_allclose(few / many, 4, rtol=0.5)
    assert (few < errors(BackwardSimulation(32), 32, 60)).all()


def test_paths_are_those_of_backward_simulation():
    model, prior = linear_model(SYSTEM)
    paths = filtrax.sample_path(
        filtrax.ParticleFilter(num_particles=500),
        model,
        prior,
        jnp.asarray(READINGS),
        inputs=jnp.asarray(CONTROLS),
        observed=jnp.asarray(SEEN),
        num_paths=500,
        key=jr.key(1),
    )
    assert paths.states.shape == (500, STEPS, 2)
    offsets = np.asarray(paths.states) - MEANS[1:]
    cross = np.einsum("nti,ntj->tij", offsets[:, :-1], offsets[:, 1:]) / 500
    np.testing.assert_allclose(cross, CROSS[1:], atol=0.12)


@pytest.mark.long
def test_the_marginal_smoother_has_the_gradient_of_its_weights():
    """Particles that do not move: rejects weights through which no gradient passes."""
    model, prior = linear_model(SYSTEM)
    filt = filtrax.ParticleFilter(num_particles=20)

    @jax.jit
    def value(readings):
        found = filtrax.smooth(
            filt, model, prior, readings, inputs=jnp.asarray(CONTROLS), key=jr.key(0)
        )
        return (
            found.beliefs.log_weights[0] * jnp.arange(20.0)
        ).sum() + found.cross_covariances.sum()

    at = jnp.asarray(READINGS)
    gradient = jax.grad(value)(at)
    step = 1e-6
    moved = value(at.at[-1].add(step)) - value(at.at[-1].add(-step))
    np.testing.assert_allclose(gradient[-1, 0], moved / (2 * step), rtol=1e-5)
