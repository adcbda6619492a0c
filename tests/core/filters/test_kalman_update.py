"""The shared update against the textbook's formulas, differentiated by JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.filters.kalman import Conditioned, condition

STATE, OBSERVED = 3, 2
ALL_SEEN = np.asarray([True, True])


def problem(seed=0):
    rng = np.random.default_rng(seed)
    covariances = []
    for size in (STATE, OBSERVED):
        factor = rng.normal(size=(size, size))
        covariances.append(factor @ factor.T + 0.1 * np.eye(size))
    innovation, matrix = rng.normal(size=OBSERVED), rng.normal(size=(OBSERVED, STATE))
    return tuple(jnp.asarray(each) for each in (innovation, matrix, *covariances))


def textbook(innovation, matrix, prior, noise):
    """All formulas as they are printed, with an inverse."""
    prior = jnp.eye(STATE) if prior is None else prior
    innovation_covariance = matrix @ prior @ matrix.T + noise
    gain = prior @ matrix.T @ jnp.linalg.inv(innovation_covariance)
    log_likelihood = jax.scipy.stats.multivariate_normal.logpdf(
        innovation, jnp.zeros(len(innovation)), innovation_covariance
    )
    return Conditioned(
        gain @ innovation,
        prior - gain @ innovation_covariance @ gain.T,
        innovation_covariance,
        gain,
        log_likelihood,
    )


def symmetric(function, *others):
    """A number that depends on every result, with covariances that stay symmetric."""

    def scored(innovation, matrix, prior, noise):
        halved = lambda m: None if m is None else 0.5 * (m + m.T)  # noqa: E731
        found = function(innovation, matrix, halved(prior), halved(noise), *others)
        return sum(jnp.sin((1 + i) * leaf).sum() for i, leaf in enumerate(found))

    return scored


def assert_close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), ours, theirs)


@pytest.mark.parametrize("known_prior", [True, False])
def test_values_and_derivatives_of_every_order_are_those_of_the_textbook(known_prior):
    """Rejects a rule that lacks a term, and one that holds for first derivatives alone."""
    innovation, matrix, prior, noise = problem()
    arguments = innovation, matrix, prior if known_prior else None, noise
    seen = jnp.asarray(ALL_SEEN)
    assert_close(condition(*arguments, seen), textbook(*arguments))
    which = (0, 1, 2, 3) if known_prior else (0, 1, 3)
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        ours = jax.jit(derivative(symmetric(condition, seen), which))(*arguments)
        assert_close(ours, jax.jit(derivative(symmetric(textbook), which))(*arguments))


@pytest.mark.parametrize("which", range(4))
def test_each_argument_has_its_own_derivative(which):
    """Where the others are constants, their terms are left out; what remains must be whole."""
    arguments = problem(1)
    ours = jax.jit(jax.grad(symmetric(condition, jnp.asarray(ALL_SEEN)), which))(*arguments)
    assert_close(ours, jax.jit(jax.grad(symmetric(textbook), which))(*arguments))


def test_what_was_not_seen_changes_nothing_and_has_no_gradient():
    innovation, matrix, prior, noise = problem(2)
    seen = jnp.asarray([True, False])
    wrong = innovation.at[1].set(jnp.nan), matrix.at[1].set(7.0), prior, noise
    found = condition(*wrong, seen)
    expected = textbook(innovation[:1], matrix[:1], prior, noise[:1, :1])
    for name in ("shift", "covariance", "log_likelihood"):
        assert_close(getattr(found, name), getattr(expected, name))

    def score(*arguments):
        result = condition(*arguments, seen)
        return result.shift.sum() + result.covariance.sum() + result.log_likelihood

    gradients = jax.grad(score, (0, 1, 2, 3))(*wrong)
    assert all(jnp.isfinite(gradient).all() for gradient in gradients)
    assert gradients[0][1] == 0
    np.testing.assert_array_equal(gradients[1][1], 0)
