"""Kalman filters in float32 against the float64 oracle, where single precision is hard.

Errors are relative: of covariances in units of the oracle's standard deviations of both
components, of means in units of its standard deviation.
"""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.filters import filter_trajectory
from oracles.kalman import LinearSystem, kalman, simulate
from systems import as_float32, kalman_filters, linear_model

pytestmark = pytest.mark.long

FILTERS = kalman_filters()
RATIOS = (1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e4)
DT, DAMPING = 0.1, 0.95

PRIORS = {
    "plain": np.eye(2),
    "nearly_singular": np.array([[1.0, 1.0 - 1e-6], [1.0 - 1e-6, 1.0]]),
    "singular": np.ones((2, 2)),
}
# Both have rank one: noise that enters through the acceleration, and noise on velocity alone.
PROCESS_NOISES = {
    "acceleration": np.outer([DT**2 / 2, DT], [DT**2 / 2, DT]),
    "velocity": np.diag([0.0, DT**2]),
}


def two_axes(ratio, prior, process_noise):
    """Damped motion along two axes, whose positions are measured.

    `ratio` is the standard deviation of the measurement over that of the prior, which is one.
    """
    both = lambda matrix: np.kron(np.eye(2), matrix)  # noqa: E731
    return LinearSystem(
        F=both(np.array([[DAMPING, DT], [0.0, DAMPING]])),
        G=np.zeros((4, 2)),
        H=both(np.array([[1.0, 0.0]])),
        Q=both(process_noise),
        R=ratio**2 * np.eye(2),
        mean=np.zeros(4),
        covariance=both(prior),
    )


def check(name, settings, num_steps):
    models, trajectories, answers = [], [], []
    rng = np.random.default_rng(0)
    for ratio, prior, process_noise in settings:
        system = two_axes(ratio, PRIORS[prior], PROCESS_NOISES[process_noise])
        controls, _, readings = simulate(system, rng, num_steps)
        answers.append(kalman(system, controls, readings, np.ones(readings.shape, bool))[:2])
        model, belief = linear_model(system)
        models.append(model)
        inputs, readings = jnp.asarray(controls), jnp.asarray(readings)
        trajectories.append(
            filtrax.Trajectory(belief.mean, belief.covariance, readings, inputs=inputs)
        )
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    models, trajectories = as_float32(
        (jax.tree.map(stack, *models), jax.tree.map(stack, *trajectories))
    )

    @jax.jit
    @jax.vmap
    def run(model, trajectory, key):
        result = filter_trajectory(FILTERS[name], model, trajectory, key=key)
        factors = jnp.linalg.cholesky(result.beliefs.covariance)
        return result.beliefs, result.info.finite.all(), factors

    beliefs, finite, factors = run(models, trajectories, jr.split(jr.key(0), len(answers)))
    assert beliefs.mean.dtype == jnp.float32
    assert finite.all()
    assert jnp.isfinite(factors).all()  # positive definite in single precision itself
    np.testing.assert_array_equal(beliefs.covariance, beliefs.covariance.swapaxes(-1, -2))
    for i, (means, covariances) in enumerate(answers):
        stds = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        scale = stds[:, :, None] * stds[:, None, :]
        covariance_error = np.abs(np.asarray(beliefs.covariance[i], float) - covariances) / scale
        mean_error = np.abs(np.asarray(beliefs.mean[i], float) - means) / stds
        assert covariance_error.max() < 0.01, (settings[i], covariance_error.max())
        assert mean_error.max() < 0.01, (settings[i], mean_error.max())


@pytest.mark.parametrize("name", ["ekf", "ukf", "mcukf"])
def test_finite_positive_definite_and_within_one_percent_from_the_first_step_on(name):
    """Rejects the plain downdate Σ̂ - K S Kᵀ (D4), which is not finite in the first step here.

    The error stays under 1 % in transients, too, at all ratios.
    """
    check(name, list(itertools.product(RATIOS, PRIORS, PROCESS_NOISES)), num_steps=300)


@pytest.mark.parametrize("name", ["ekf", "ukf", "mcukf"])
def test_errors_do_not_build_up_over_ten_thousand_steps(name):
    settings = [
        (1e-4, "nearly_singular", "acceleration"),
        (1.0, "singular", "velocity"),
        (1e4, "plain", "acceleration"),
    ]
    check(name, settings, num_steps=10_000)
