"""Beliefs against NumPy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from filtrax import Gaussian, Particles, RecurrentBelief, Space
from strategies import arrays, log_weights

SPACE = Space(("x", "heading"), angles={"heading": 360.0})
COUNT = 6


def particles(states, log_weights):
    states, log_weights = jnp.asarray(states), jnp.asarray(log_weights)
    return Particles(states, log_weights, jnp.asarray(2), jnp.eye(2))


moments = jax.jit(lambda belief: belief.moments(SPACE))


@given(arrays((COUNT, 2), -60.0, 60.0), log_weights(COUNT), st.floats(-720, 720))
def test_moments_of_particles_equal_numpys_also_across_the_seam(offsets, log_weights, turn):
    # Headings are spread by at most 120 degrees, so NumPy may compute them before the turn.
    weights = np.exp(log_weights)
    mean = weights @ offsets
    deviations = offsets - mean
    covariance = (weights[:, None] * deviations).T @ deviations
    shift = np.asarray([0.0, turn])
    turned = offsets + shift
    turned[:, 1] = (turned[:, 1] + 180) % 360 - 180
    ours = moments(particles(turned, log_weights))
    expected = jnp.asarray(mean + shift)
    np.testing.assert_allclose(SPACE.difference(ours.mean, expected), 0, atol=1e-9)
    np.testing.assert_allclose(ours.covariance, covariance, atol=1e-8)


@given(arrays((COUNT, 2), -180.0, 180.0), log_weights(COUNT), st.permutations(range(COUNT)))
def test_the_order_of_particles_changes_nothing(states, log_weights, order):
    if abs(np.exp(log_weights) @ np.exp(1j * np.pi * states[:, 1] / 180)) < 1e-3:
        return  # opposite headings have no mean direction
    order = np.asarray(order)
    one, other = particles(states, log_weights), particles(states[order], log_weights[order])
    a, b = moments(one), moments(other)
    np.testing.assert_allclose(SPACE.difference(a.mean, b.mean), 0, atol=1e-6)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-4)
    np.testing.assert_allclose(
        one.effective_sample_size(), other.effective_sample_size(), rtol=1e-12
    )


@given(arrays((COUNT, 2)), log_weights(COUNT), arrays(COUNT, -800.0, 800.0))
def test_reweight_multiplies_normalizes_and_returns_the_evidence(states, log_weights, scores):
    # Rejects weights that are exponentiated on the way: scores of ±800 overflow or vanish.
    before = particles(states, log_weights)
    after, evidence = before.reweight(jnp.asarray(scores))
    expected = logsumexp(log_weights + scores)
    np.testing.assert_allclose(evidence, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(after.log_weights, log_weights + scores - expected, atol=1e-11)
    np.testing.assert_allclose(np.exp(after.log_weights).sum(), 1, rtol=1e-12)
    np.testing.assert_array_equal(after.states, states)
    assert after.age == before.age


def test_effective_sample_size_is_one_for_one_and_n_for_equal_weights():
    states = np.zeros((4, 2))
    with np.errstate(divide="ignore"):
        alone, half = np.log([0.0, 0.0, 1.0, 0.0]), np.log([0.5, 0.0, 0.5, 0.0])
    np.testing.assert_allclose(particles(states, alone).effective_sample_size(), 1)
    np.testing.assert_allclose(particles(states, half).effective_sample_size(), 2)
    equal = Particles.uniform(jnp.asarray(states), jnp.eye(2))
    np.testing.assert_allclose(equal.effective_sample_size(), 4)
    uneven = particles(states, np.log([0.1, 0.2, 0.3, 0.4]))
    np.testing.assert_allclose(uneven.effective_sample_size(), 1 / 0.3)


@pytest.mark.parametrize("heaviest", range(3))
def test_mode_is_the_heaviest_particle_also_when_compiled(heaviest):
    # Rejects the mean, and an index of the wrong rank (which gathers nothing, or too much).
    states = np.asarray([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    weights = np.full(3, 0.3)
    weights[heaviest] = 0.4
    belief = particles(states, np.log(weights))
    for mode in (belief.mode(), jax.jit(Particles.mode)(belief)):
        assert mode.shape == (2,)
        np.testing.assert_array_equal(mode, states[heaviest])
    sequence = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), belief)
    np.testing.assert_array_equal(jax.vmap(Particles.mode)(sequence), [states[heaviest]] * 2)


def test_uniform_particles_are_new_and_equally_heavy():
    for dtype in (jnp.float32, jnp.float64):
        belief = Particles.uniform(jnp.zeros((7, 2), dtype), jnp.eye(2, dtype=dtype))
        assert belief.log_weights.dtype == dtype
        assert belief.age == 0
        np.testing.assert_allclose(np.exp(belief.log_weights), 1 / 7, rtol=1e-6)


@pytest.mark.parametrize("covariance", [[[4.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 4.0]]])
def test_samples_have_the_mean_and_covariance_of_the_gaussian(covariance):
    count, mean, covariance = 20_000, np.asarray([1.0, -2.0]), np.asarray(covariance)
    belief = Gaussian(mean, covariance)
    draw = jax.jit(jax.vmap(lambda key: belief.sample(key=key)))
    samples = np.asarray(draw(jr.split(jr.key(0), count)))
    variances = np.diagonal(covariance)
    assert (np.abs(samples.mean(0) - mean) < 5 * np.sqrt(variances / count)).all()
    # The variance of a sample covariance is (Cᵢᵢ Cⱼⱼ + Cᵢⱼ²) / n.
    bound = 5 * np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert (np.abs(np.cov(samples.T) - covariance) < bound).all()


def test_a_gaussian_is_its_own_moments_and_a_recurrent_belief_its_estimate():
    belief = Gaussian([1.0, 2.0], np.eye(2))
    assert belief.moments(SPACE) is belief
    memory = ((jnp.zeros(3), jnp.zeros(3)),)
    assert RecurrentBelief(belief, memory, jnp.zeros(4)).moments(SPACE) is belief


def test_a_gaussian_takes_plain_numbers():
    belief = Gaussian([1, 2], [[1, 0], [0, 4]])
    assert belief.mean.dtype == belief.covariance.dtype == jnp.float64


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (0.0, [[1.0]], "`mean` must have one entry per component"),
        ([0.0, 0.0], [1.0, 1.0], r"`covariance` must have shape \(2, 2\), got \(2,\)"),
        ([0.0, 0.0], np.eye(3), r"`covariance` must have shape \(2, 2\), got \(3, 3\)"),
        ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], "`covariance` must be symmetric"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "`covariance` must be positive semi-definite"),
        ([0.0, 0.0], [[np.nan, 0.0], [0.0, 1.0]], "`covariance` must be finite"),
        ([0.0, 0.0], np.diag([1e6, -1e-10]), "`covariance` must be positive semi-definite"),
    ],
)
def test_a_gaussian_that_cannot_be_raises(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        Gaussian(mean, covariance)


def test_a_covariance_that_went_through_single_precision_is_not_refused():
    # Rejects a check stricter than the rounding of the numbers it is given.
    factor = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    covariance = jnp.asarray(factor @ factor.T)
    assert Gaussian(jnp.zeros(6, jnp.float32), covariance).covariance.dtype == jnp.float32


def test_kernel_moments_add_the_covariance_of_the_kernel():
    # Rejects the factor in the place of the covariance.
    factor = np.asarray([[2.0, 0.0], [1.0, 0.5]])
    states, log_weights = np.asarray([[0.0, 175.0], [4.0, -175.0]]), np.log([0.25, 0.75])
    belief = Particles(
        jnp.asarray(states), jnp.asarray(log_weights), jnp.asarray(0), jnp.asarray(factor)
    )
    plain, wide = belief.moments(SPACE), belief.kernel_moments(SPACE)
    np.testing.assert_array_equal(wide.mean, plain.mean)
    np.testing.assert_allclose(wide.covariance, plain.covariance + factor @ factor.T)
