"""Losses against SciPy."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from filtrax import Gaussian, GaussianMixture, Particles, Space, losses

SPACE = Space(("x", "y", "heading"), angles={"heading": 360.0})
MASKS = [np.asarray(mask) for mask in itertools.product([True, False], repeat=3)]
MEAN = np.asarray([1.0, -2.0, 175.0])
COVARIANCE = np.asarray([[2.0, 0.3, 1.0], [0.3, 1.0, -2.0], [1.0, -2.0, 30.0]])
STATE = np.asarray([0.5, -1.0, -178.0])  # seven degrees past the mean, across the seam
TURNED = np.asarray([0.5, -1.0, 182.0])  # the same state
DIFFERENCE = np.asarray([-0.5, 1.0, 7.0])
GAUSSIAN = Gaussian(MEAN, COVARIANCE)

WEIGHTS = np.asarray([0.1, 0.2, 0.3, 0.4])
STATES = np.asarray(
    [[0.0, 0.0, 170.0], [1.0, -1.0, -170.0], [0.3, 0.4, 178.0], [2.0, -2.0, -179.0]]
)
UNWRAPPED = np.asarray([[0, 0, 170.0], [1, -1, 190.0], [0.3, 0.4, 178.0], [2, -2, 181.0]])
KERNEL = np.asarray([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [1.0, -1.0, 5.0]])
PARTICLES = Particles(
    jnp.asarray(STATES), jnp.log(jnp.asarray(WEIGHTS)), jnp.asarray(0), jnp.asarray(KERNEL)
)


def seen_block(mask):
    return COVARIANCE[np.ix_(mask, mask)]


def test_nll_is_scipys_for_what_is_labelled_also_across_the_seam():
    # Rejects a missing ½ or 2π, a conditional instead of a marginal, and 353 degrees for 7.
    loss = jax.jit(lambda labelled: losses.nll(GAUSSIAN, jnp.asarray(STATE), SPACE, labelled))
    for mask in MASKS:
        density = (
            multivariate_normal.logpdf(DIFFERENCE[mask], cov=seen_block(mask)) if mask.any() else 0
        )
        np.testing.assert_allclose(loss(jnp.asarray(mask)), -density, atol=1e-10)
    whole = jax.jit(lambda state: losses.nll(GAUSSIAN, state, SPACE))(jnp.asarray(STATE))
    np.testing.assert_allclose(whole, loss(jnp.ones(3, bool)))


def test_nll_of_particles_is_that_of_their_moments():
    mean = WEIGHTS @ UNWRAPPED
    offsets = UNWRAPPED - mean
    covariance = (WEIGHTS[:, None] * offsets).T @ offsets
    density = multivariate_normal.logpdf(TURNED, mean, covariance)
    loss = jax.jit(lambda state: losses.nll(PARTICLES, state, SPACE))
    np.testing.assert_allclose(loss(jnp.asarray(STATE)), -density)


def test_mixture_nll_is_that_of_scipys_mixture_for_what_is_labelled():
    loss = jax.jit(
        lambda labelled: losses.mixture_nll(PARTICLES, jnp.asarray(STATE), SPACE, labelled)
    )
    covariance, unwrapped = KERNEL @ KERNEL.T, TURNED
    for mask in MASKS:
        if not mask.any():
            np.testing.assert_allclose(loss(jnp.asarray(mask)), 0, atol=1e-12)
            continue
        densities = [
            multivariate_normal.logpdf(unwrapped[mask], point[mask], covariance[np.ix_(mask, mask)])
            for point in UNWRAPPED
        ]
        expected = -logsumexp(densities, b=WEIGHTS)
        np.testing.assert_allclose(loss(jnp.asarray(mask)), expected, rtol=1e-10)
    whole = jax.jit(lambda state: losses.mixture_nll(PARTICLES, state, SPACE))(jnp.asarray(STATE))
    np.testing.assert_allclose(whole, loss(jnp.ones(3, bool)))


def test_mixture_nll_of_modes_is_that_of_scipys_mixture_for_what_is_labelled():
    # Rejects one covariance for all modes, and weights that are left out.
    covariances = np.stack([(i + 1.0) * COVARIANCE for i in range(4)])
    mixture = GaussianMixture(Gaussian(STATES, covariances), jnp.log(jnp.asarray(WEIGHTS)))
    loss = jax.jit(
        lambda labelled: losses.mixture_nll(mixture, jnp.asarray(STATE), SPACE, labelled)
    )
    for mask in MASKS[:-1]:
        densities = [
            multivariate_normal.logpdf(TURNED[mask], mean[mask], covariance[np.ix_(mask, mask)])
            for mean, covariance in zip(UNWRAPPED, covariances, strict=True)
        ]
        expected = -logsumexp(densities, b=WEIGHTS)
        np.testing.assert_allclose(loss(jnp.asarray(mask)), expected, rtol=1e-10)


def test_mixture_nll_has_finite_gradients_that_point_home_far_from_all_particles():
    # Rejects a sum of densities that underflow: its logarithm is infinite, its gradient 0/0.
    space = Space(("x",))

    def loss(state, states, log_weights, kernel):
        particles = Particles(states, log_weights, jnp.asarray(0), kernel)
        return losses.mixture_nll(particles, state, space)

    value_and_grad = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
    states = jnp.asarray([[-1.0], [0.0], [2.0]], jnp.float32)
    log_weights = jnp.log(jnp.asarray([0.2, 0.3, 0.5], jnp.float32))
    kernel = jnp.asarray([[0.1]], jnp.float32)
    for widths in (1e3, 1e4, 1e5, 1e6):
        state = jnp.asarray([0.1 * widths], jnp.float32)
        value, gradients = value_and_grad(state, states, log_weights, kernel)
        assert jnp.isfinite(value)
        assert all(jnp.isfinite(gradient).all() for gradient in gradients)
        # Only the nearest particle matters, and it is pulled by the distance over σ².
        np.testing.assert_allclose(gradients[0], (state - 2.0) / 0.01, rtol=1e-5)
        np.testing.assert_allclose(gradients[1][2, 0], -gradients[0][0], rtol=1e-5)


def test_mixture_nll_ignores_particles_without_weight():
    @jax.jit
    @jax.value_and_grad
    def loss(states):
        log_weights = jnp.append(jnp.log(jnp.asarray(WEIGHTS)), -jnp.inf)
        particles = Particles(states, log_weights, PARTICLES.age, PARTICLES.kernel)
        return losses.mixture_nll(particles, jnp.asarray(STATE), SPACE)

    here, far = (np.vstack([STATES, np.full((1, 3), place)]) for place in (0.0, 1e9))
    value, gradient = loss(jnp.asarray(here))
    assert (gradient[:-1] != 0).all()
    np.testing.assert_array_equal(gradient[-1], 0)
    np.testing.assert_allclose(loss(jnp.asarray(far))[0], value)
    np.testing.assert_allclose(loss(jnp.asarray(far))[1], gradient)


def test_mixture_nll_refuses_a_gaussian():
    with pytest.raises(TypeError, match="got a Gaussian"):
        losses.mixture_nll(GAUSSIAN, jnp.asarray(STATE), SPACE)


def test_squared_error_sums_over_labelled_components_across_the_seam():
    @jax.jit
    def loss(mask):
        return losses.squared_error(GAUSSIAN, jnp.asarray(STATE), SPACE, mask)

    for mask in MASKS:
        expected = (DIFFERENCE[mask] ** 2).sum()
        np.testing.assert_allclose(loss(jnp.asarray(mask)), expected, atol=1e-10)
    whole = losses.squared_error(GAUSSIAN, jnp.asarray(STATE), SPACE)
    np.testing.assert_allclose(whole, (DIFFERENCE**2).sum())


def test_mixed_is_half_the_sum_of_squared_error_and_negative_log_density():
    of_mixture = functools.partial(losses.mixed, density=losses.mixture_nll)
    functions = losses.squared_error, losses.nll, losses.mixture_nll, losses.mixed, of_mixture

    @jax.jit
    def values(labelled):
        return [loss(PARTICLES, jnp.asarray(STATE), SPACE, labelled) for loss in functions]

    for mask in ([True, False, True], [True, True, True]):
        error, nll, mixture_nll, mixed, mixed_of_mixture = values(jnp.asarray(mask))
        np.testing.assert_allclose(mixed, (error + nll) / 2)
        np.testing.assert_allclose(mixed_of_mixture, (error + mixture_nll) / 2)


def test_smoothed_nll_is_that_of_the_moments_of_the_mixture():
    mean = WEIGHTS @ UNWRAPPED
    offsets = UNWRAPPED - mean
    covariance = (WEIGHTS[:, None] * offsets).T @ offsets + KERNEL @ KERNEL.T
    loss = jax.jit(lambda m: losses.kernel_nll(PARTICLES, jnp.asarray(STATE), SPACE, m))
    for mask in MASKS[:-1]:
        block = covariance[np.ix_(mask, mask)]
        density = multivariate_normal.logpdf(TURNED[mask], mean[mask], block)
        np.testing.assert_allclose(loss(jnp.asarray(mask)), -density)
    with pytest.raises(TypeError, match="got a Gaussian"):
        losses.kernel_nll(GAUSSIAN, jnp.asarray(STATE), SPACE)


def test_smoothed_nll_is_finite_where_one_particle_has_all_the_weight():
    # Rejects the covariance of the particles alone, which is singular then.
    def both(log_weights):
        particles = Particles(PARTICLES.states, log_weights, PARTICLES.age, PARTICLES.kernel)
        state = jnp.asarray(STATE)
        return [f(particles, state, SPACE) for f in (losses.kernel_nll, losses.nll)]

    collapsed = jnp.asarray([0.0, -jnp.inf, -jnp.inf, -jnp.inf])
    smoothed, plain = jax.jit(both)(collapsed)
    expected = -multivariate_normal.logpdf(TURNED, UNWRAPPED[0], KERNEL @ KERNEL.T)
    np.testing.assert_allclose(smoothed, expected)
    assert not plain < 1e3
    few = jnp.log(jnp.asarray([1.0 - 3e-9, 1e-9, 1e-9, 1e-9]))
    gradient = jax.jit(jax.grad(lambda w: both(w)[0]))(few)
    assert jnp.isfinite(gradient).all()
