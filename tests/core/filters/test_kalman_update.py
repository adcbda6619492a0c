"""The shared update against the textbook's formulas, differentiated by JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax import Euclidean, Gaussian, Measurement
from filtrax.filters.kalman import condition, linearize
from systems import POLAR, POSE, see_beacon

STATE, OBSERVED = 3, 2
ALL_SEEN = np.asarray([True, True])


def problem(seed=0):
    """A mean, a factor of a prior, an innovation, a matrix and a factor of noise."""
    rng = np.random.default_rng(seed)
    shapes = (STATE,), (STATE, STATE), (OBSERVED,), (OBSERVED, STATE), (OBSERVED, OBSERVED)
    return tuple(jnp.asarray(rng.normal(size=shape)) for shape in shapes)


def results(mean, prior, innovation, matrix, noise, seen=ALL_SEEN):
    """All that an update says, in terms that do not depend on the choice of a root."""
    belief = Gaussian(mean, factor=prior)
    measurement = Measurement(jnp.zeros(len(innovation)), factor=noise, observed=jnp.asarray(seen))
    updated, info = condition(belief, innovation, matrix @ belief.factor, measurement, Euclidean())
    return {
        "mean": updated.mean,
        "covariance": updated.covariance,
        "innovation_covariance": info.innovation_covariance,
        "gain": info.gain,
        "log_likelihood": info.log_likelihood,
    }


def textbook(mean, prior, innovation, matrix, noise):
    """All formulas as they are printed, with an inverse."""
    covariance = prior @ prior.T
    innovation_covariance = matrix @ covariance @ matrix.T + noise @ noise.T
    gain = covariance @ matrix.T @ jnp.linalg.inv(innovation_covariance)
    density = jax.scipy.stats.multivariate_normal.logpdf
    return {
        "mean": mean + gain @ innovation,
        "covariance": covariance - gain @ innovation_covariance @ gain.T,
        "innovation_covariance": innovation_covariance,
        "gain": gain,
        "log_likelihood": density(innovation, jnp.zeros(len(innovation)), innovation_covariance),
    }


def scored(function):
    """A number that depends on every result."""

    def score(*arguments):
        leaves = jax.tree.leaves(function(*arguments))
        return sum(jnp.sin((1 + i) * leaf).sum() for i, leaf in enumerate(leaves))

    return score


def assert_close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), ours, theirs)


def test_values_and_derivatives_of_every_order_are_those_of_the_textbook():
    """Rejects a rule that lacks a term, and one that holds for first derivatives alone."""
    arguments = problem()
    assert_close(results(*arguments), textbook(*arguments))
    every = tuple(range(len(arguments)))
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        ours = jax.jit(derivative(scored(results), every))(*arguments)
        assert_close(ours, jax.jit(derivative(scored(textbook), every))(*arguments))


@pytest.mark.parametrize("which", range(5))
def test_each_argument_has_its_own_derivative(which):
    """Where the others are constants, their terms are left out; what remains must be whole."""
    arguments = problem(1)
    ours = jax.jit(jax.grad(scored(results), which))(*arguments)
    assert_close(ours, jax.jit(jax.grad(scored(textbook), which))(*arguments))


def test_what_was_not_seen_changes_nothing_and_has_no_gradient():
    mean, prior, innovation, matrix, noise = problem(2)
    seen = np.asarray([True, False])
    wrong = mean, prior, innovation.at[1].set(jnp.nan), matrix.at[1].set(7.0), noise
    ours = results(*wrong, seen)
    expected = textbook(mean, prior, innovation[:1], matrix[:1], noise[:1])
    for name in ("mean", "covariance", "log_likelihood"):
        assert_close(ours[name], expected[name])
    gradients = jax.grad(scored(lambda *arguments: results(*arguments, seen)), range(5))(*wrong)
    assert all(jnp.isfinite(gradient).all() for gradient in gradients)
    assert gradients[2][1] == 0
    np.testing.assert_array_equal(gradients[3][1], 0)
    np.testing.assert_array_equal(gradients[4][1], 0)


def test_a_function_is_linearized_as_the_spaces_add_and_subtract():
    """Rejects a Jacobian that jumps where an angle of the image wraps around."""
    point = jnp.asarray([9.0, 2.0 - 1e-9, 0.0])  # the beacon lies straight behind
    value, jacobian = linearize(lambda x: see_beacon(x, None), point, POSE, POLAR)
    np.testing.assert_allclose(value, see_beacon(point, None))
    step = 1e-6
    for i, direction in enumerate(jnp.eye(3)):
        images = [see_beacon(POSE.add(point, sign * step * direction), None) for sign in (1, -1)]
        slope = POLAR.difference(*images) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], slope, atol=1e-8)
