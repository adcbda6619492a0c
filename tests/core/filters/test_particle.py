"""The particle filter converges to the Kalman filter at the rate of Monte Carlo."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.filters import filter_trajectory
from filtrax.resampling import Multinomial, Soft, Systematic
from oracles.kalman import kalman, random_system, simulate
from systems import linear_model

pytestmark = pytest.mark.long

RUNS, STEPS = 14, 3
COUNTS = (1_000, 10_000, 100_000)


class SkipsTheUpdate(filtrax.filters.AbstractBayesFilter):
    """A wrong program, which the test must reject."""

    filt: filtrax.ParticleFilter

    def init(self, model, prior, *, key=None):
        return self.filt.init(model, prior, key=key)

    def predict(self, model, belief, inputs, *, key=None):
        return self.filt.predict(model, belief, inputs, key=key)

    def update(self, model, predicted, measurement, inputs, *, key=None):
        _, info = self.filt.update(model, predicted, measurement, inputs, key=key)
        return predicted, info


def problem():
    rng = np.random.default_rng(3)
    system = random_system(rng, 2, 1)
    controls, _, readings = simulate(system, rng, STEPS)
    means, covariances, evidence = kalman(system, controls, readings, np.ones(readings.shape, bool))
    model, prior = linear_model(system)
    readings, inputs = jnp.asarray(readings), jnp.asarray(controls)
    trajectory = filtrax.Trajectory(prior.mean, prior.covariance, readings, inputs=inputs)
    return model, trajectory, means, covariances, evidence


def estimates(filt, model, trajectory):
    """Means, covariances and log evidences of several runs."""

    @jax.jit
    def run(key):
        result = filter_trajectory(filt, model, trajectory, key=key)
        moments = jax.vmap(lambda b: b.moments(model.state_space))(result.beliefs)
        return moments.mean, moments.covariance, result.info.log_likelihood

    found = [run(key) for key in jr.split(jr.key(0), RUNS)]
    return [np.stack(parts) for parts in zip(*found, strict=True)]


def check_convergence(build):
    model, trajectory, *truth = problem()
    errors = []
    for count in COUNTS:
        found = estimates(build(count), model, trajectory)
        for estimate, exact in zip(found, truth, strict=True):
            standard_error = estimate.std(0, ddof=1) / np.sqrt(RUNS)
            # Normalization makes a bias of order 1/n, which is far below the spread of a run.
            bias = 30 / count
            assert (np.abs(estimate.mean(0) - exact) < 4 * standard_error + bias).all()
        errors.append(np.sqrt(((found[0] - truth[0]) ** 2).mean()))
    slope = np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


RESAMPLERS = {
    "soft_systematic": Soft(0.05, Systematic()),
    "multinomial": Multinomial(),
}


@pytest.mark.parametrize("name", RESAMPLERS)
def test_converges_to_the_kalman_filter(name):
    check_convergence(lambda count: filtrax.ParticleFilter(count, RESAMPLERS[name]))


def test_a_filter_that_skips_the_update_does_not():
    with pytest.raises(AssertionError):
        check_convergence(lambda count: SkipsTheUpdate(filtrax.ParticleFilter(count)))


def test_whitened_noise_converges_too():
    model, trajectory, means, *_ = problem()
    found, _, _ = estimates(filtrax.ParticleFilter(10_000, whiten_noise=True), model, trajectory)
    standard_error = found.std(0, ddof=1) / np.sqrt(RUNS)
    assert (np.abs(found.mean(0) - means) < 4 * standard_error + 0.003).all()
