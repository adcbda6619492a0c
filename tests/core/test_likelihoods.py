"""Likelihoods of particles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from filtrax import Features, GaussianLikelihood, LearnedLikelihood, Measurement, Space

POLAR = Space(("range", "bearing"), angles={"bearing": 360.0})
SCALED = Features(POLAR, scale={"range": 2.0})
COVARIANCE = np.asarray([[2.0, 0.5], [0.5, 9.0]])


def measurement(**arguments):
    return Measurement(jnp.asarray([3.0, 178.0]), jnp.asarray(COVARIANCE), **arguments)


def test_the_gaussian_likelihood_is_scipys_across_the_seam_for_what_was_seen():
    # Rejects a residual of 354 degrees in the place of -6, and a constant for unseen components.
    residual = np.asarray([0.5, -6.0])
    expected = jnp.asarray([2.5, -176.0])
    for seen in map(list, itertools.product([True, False], repeat=2)):
        block = COVARIANCE[np.ix_(seen, seen)]
        density = multivariate_normal.logpdf(residual[seen], cov=block) if any(seen) else 0.0
        observed = measurement(observed=jnp.asarray(seen))
        score = GaussianLikelihood()(expected, observed, None, POLAR)
        np.testing.assert_allclose(score, density, atol=1e-12)


def test_the_gaussian_likelihood_of_nothing_is_zero_and_of_all_needs_no_mask():
    expected = jnp.asarray([2.5, -176.0])
    density = multivariate_normal.logpdf([0.5, -6.0], cov=COVARIANCE)
    np.testing.assert_allclose(GaussianLikelihood()(expected, measurement(), None, POLAR), density)
    unseen = measurement(observed=jnp.asarray(False))
    assert GaussianLikelihood()(expected, unseen, None, POLAR) == 0


def test_the_learned_likelihood_sees_features_and_the_scaled_expected_observation():
    weights = jnp.asarray([1.0, 10.0, 100.0, 1000.0])
    learned = LearnedLikelihood(lambda features: (weights @ features)[None], SCALED)
    observed = measurement(features={"a": jnp.asarray([[1.0]]), "b": jnp.asarray([2.0])})
    score = learned(jnp.asarray([6.0, 4.0]), observed, None, POLAR)
    np.testing.assert_allclose(score, 1.0 + 20.0 + 300.0 + 4000.0)


def test_the_learned_likelihood_of_nothing_is_zero_with_zero_gradient():
    def score(weight, observed):
        learned = LearnedLikelihood(lambda features: weight * features.sum(keepdims=True))
        seen = measurement(features=jnp.ones(3), observed=observed)
        return learned(jnp.zeros(2), seen, None, POLAR)

    value_and_grad = jax.value_and_grad(score)
    assert value_and_grad(jnp.asarray(2.0), jnp.asarray(False)) == (0.0, 0.0)
    assert value_and_grad(jnp.asarray(2.0), jnp.asarray(True)) == (6.0, 3.0)


def test_the_learned_likelihood_refuses_a_mask_per_component():
    learned = LearnedLikelihood(lambda features: features[:1])
    observed = measurement(features=jnp.ones(3), observed=jnp.asarray([True, False]))
    with pytest.raises(ValueError, match="cannot be used with a mask per component"):
        learned(jnp.zeros(2), observed, None, POLAR)


def test_the_learned_likelihood_refuses_a_measurement_without_features():
    learned = LearnedLikelihood(lambda features: features[:1])
    with pytest.raises(ValueError, match="needs the features"):
        learned(jnp.zeros(2), measurement(), None, POLAR)
