"""Expectation maximization: it climbs, it stops where the gradient is zero, it recovers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.filters import filter_trajectory
from filtrax.training import fit_em
from oracles.kalman import random_system, simulate

EKF = filtrax.ExtendedKalmanFilter()
CLOSED = ("model.process", "model.process_noise", "model.observe", "model.sensor.noise", "prior")


def problem(sizes=(2, 2), steps=40, count=3, *, full=True, seed=0):
    """A start and data of a linear system with inputs, and readings missing in every way."""
    rng = np.random.default_rng(seed)
    system = random_system(rng, *sizes)
    trajectories = []
    for _ in range(count):
        controls, _, readings = simulate(system, rng, steps)
        seen = rng.random(readings.shape) < 0.7
        trajectories.append(
            filtrax.Trajectory(
                system.mean,
                system.covariance,
                jnp.asarray(np.where(seen, readings, np.nan)),
                inputs=jnp.asarray(controls),
                observed=jnp.asarray(seen),
            )
        )
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trajectories)
    start = [0.8 * np.eye(sizes[0]), np.eye(sizes[1])]
    if not full:
        start = [np.ones(sizes[0]), np.ones(sizes[1])]
    model = filtrax.StateSpaceModel(
        process=filtrax.Linear(system.F, system.G),
        process_noise=filtrax.constant_noise(start[0]),
        observe=filtrax.Linear(system.H),
        sensor=filtrax.DirectSensor(filtrax.constant_noise(start[1])),
    )
    return model, data


def log_likelihood(model, data):
    found = jax.vmap(lambda trajectory: filter_trajectory(EKF, model, trajectory))(data)
    return found.log_likelihood.sum()


def rises(values):
    return (np.diff(values) > -1e-9 * np.abs(values[1:])).all()


@pytest.mark.parametrize("full", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_step_raises_the_likelihood(full):
    """All closed forms at once, with inputs, and readings in part: rejects wrong averages."""
    model, data = problem(full=full)
    learned = fit_em(EKF, model, data, train=CLOSED, num_steps=15)
    assert rises(learned.log_likelihoods)
    assert learned.log_likelihoods[-1] > learned.log_likelihoods[0] + 1
    start = jax.tree.map(lambda leaf: leaf[0], data).prior
    prior = jnp.broadcast_to(learned.prior.mean, (3, 2)), learned.prior.covariance
    both = dataclasses.replace(
        data, initial=prior[0], initial_covariance=jnp.broadcast_to(prior[1], (3, 2, 2))
    )
    final = log_likelihood(learned.model, both)
    np.testing.assert_allclose(final, learned.log_likelihoods[-1], rtol=1e-12)
    assert not np.allclose(learned.prior.mean, start.mean)


@pytest.mark.parametrize(
    ("part", "seed"),
    [
        pytest.param("model.process_noise", 4, marks=pytest.mark.long),
        pytest.param("model.sensor.noise", 0, marks=pytest.mark.long),
        pytest.param("model.process", 0, marks=pytest.mark.long),
        pytest.param("model.process.input_matrix", 0, marks=pytest.mark.long),
        pytest.param("model.observe", 0, marks=pytest.mark.long),
    ],
)
def test_stops_where_the_likelihood_has_no_slope(part, seed):
    """Rejects a step that climbs to another place than the maximum."""
    model, data = problem(steps=80 if seed else 40, count=2, seed=seed)
    learned = fit_em(EKF, model, data, train=(part,), num_steps=400, tolerance=1e-13)
    assert rises(learned.log_likelihoods)

    def slope(model):
        gradient = eqx.filter_grad(log_likelihood)(model, data)
        _, *names = part.split(".")
        for name in names:
            gradient = getattr(gradient, name)
        return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient))

    assert slope(learned.model) < 1e-3 * slope(model)


@pytest.mark.long
def test_recovers_noise_and_dynamics():
    rng = np.random.default_rng(1)
    A, Q, R = np.array([[0.9, 0.2], [-0.2, 0.8]]), np.diag([0.3, 0.1]), np.diag([0.2, 0.4])
    states, readings = [np.zeros(2)], []
    for _ in range(4000):
        states.append(A @ states[-1] + np.sqrt(np.diag(Q)) * rng.normal(size=2))
        readings.append(states[-1] + np.sqrt(np.diag(R)) * rng.normal(size=2))
    data = filtrax.Trajectory(np.zeros(2), np.eye(2), jnp.asarray(readings))
    model = filtrax.StateSpaceModel(
        filtrax.Linear(0.5 * np.eye(2)),
        filtrax.constant_noise([1.0, 1.0]),
        filtrax.Linear(np.eye(2)),
        filtrax.DirectSensor(filtrax.constant_noise([1.0, 1.0])),
    )
    names = ("model.process", "model.process_noise", "model.sensor.noise")
    learned = fit_em(EKF, model, data, train=names, num_steps=150)
    assert rises(learned.log_likelihoods)
    np.testing.assert_allclose(learned.model.process.matrix, A, atol=0.04)
    np.testing.assert_allclose(learned.model.process_noise.covariance(), Q, atol=0.04)
    np.testing.assert_allclose(learned.model.sensor.noise.covariance(), R, atol=0.04)
    assert learned.model.observe.matrix is not None
    np.testing.assert_array_equal(learned.model.observe.matrix, np.eye(2))


class Drag(eqx.Module):
    """A process that is not linear, with a number to learn."""

    strength: jax.Array

    def __call__(self, state, inputs):
        return drag(state, self.strength)


def drag(state, strength):
    return state - strength * jnp.tanh(state)


@pytest.mark.long
def test_other_parts_follow_the_gradient():
    """A nonlinear process and its noise: rejects steps that lower the likelihood."""
    true = filtrax.StateSpaceModel(
        Drag(jnp.asarray(0.6)),
        filtrax.constant_noise([0.5]),
        filtrax.Linear([[1.0]]),
        filtrax.DirectSensor(filtrax.constant_noise([0.3])),
    )
    data = filtrax.simulate(true, filtrax.Gaussian([0.0], [[1.0]]), num_steps=400, key=jr.key(0))
    start = dataclasses.replace(
        true, process=Drag(jnp.asarray(0.1)), process_noise=filtrax.constant_noise([1.0])
    )
    names = ("model.process", "model.process_noise", "model.sensor.noise")
    learned = fit_em(EKF, start, data, train=names, num_steps=60)
    assert (np.diff(learned.log_likelihoods) > -1e-6).all()
    assert abs(float(learned.model.process.strength) - 0.6) < 0.15
    np.testing.assert_allclose(learned.model.process_noise.std, 0.5, atol=0.1)


def test_given_arrays_stay():
    model, data = problem()
    fixed = dataclasses.replace(model, observe=filtrax.Linear(model.observe.matrix))
    fixed = eqx.tree_at(lambda m: m.observe.matrix, fixed, filtrax.given(model.observe.matrix))
    learned = fit_em(EKF, fixed, data, train=("model",), num_steps=2)
    np.testing.assert_array_equal(learned.model.observe.matrix.value, model.observe.matrix)
    assert not np.allclose(learned.model.process.matrix, model.process.matrix)


BAD = {
    "a part that is not there": ({"train": ("model.nothing",)}, "parts must exist"),
    "no part": ({"train": ()}, "`train` must name at least one part"),
    "a string": ({"train": "model"}, "`train` must be a sequence of names"),
    "no step": ({"train": ("prior",), "num_steps": 0}, "`num_steps` must be a whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_learned_says_why(name):
    arguments, message = BAD[name]
    model, data = problem(steps=3, count=1)
    with pytest.raises(ValueError, match=message):
        fit_em(EKF, model, data, **arguments)


def test_filters_without_a_joint_distribution_say_so():
    model, data = problem(steps=3, count=1)
    with pytest.raises(TypeError, match="`fit_em` needs a Kalman filter"):
        fit_em(filtrax.ParticleFilter(), model, data, train=("prior",))
