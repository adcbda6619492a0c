"""Defects that were confirmed in other libraries, each on a feature that exists here."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax.filters import filter_trajectory
from filtrax.resampling import Soft
from oracles.kalman import LinearSystem, kalman, simulate
from systems import as_float32, linear_model

LINE = filtrax.Space(("x",))
SIGMA_POINT_FILTERS = {
    "ukf": filtrax.UnscentedKalmanFilter,
    "mcukf": functools.partial(filtrax.MonteCarloUnscentedKalmanFilter, num_samples=10),
}


def random_walk(process_variance, sensor_variance):
    one = np.ones((1, 1))
    return LinearSystem(
        F=one,
        G=np.zeros((1, 2)),
        H=one,
        Q=process_variance * one,
        R=sensor_variance * one,
        mean=np.zeros(1),
        covariance=one,
    )


def final_variance(filt, system):
    model, prior = linear_model(system)
    readings, inputs = jnp.zeros((60, 1)), jnp.zeros((60, 2))
    result = filtrax.run(filt, model, prior, readings, inputs=inputs, key=jr.key(0))
    return result.beliefs.covariance[-1, 0, 0]


def steady_variance(q, r, *, process_noise_in_gain):
    """Of a random walk, by iterating the scalar recursion."""
    variance = 1.0
    for _ in range(1000):
        predicted = variance + q
        used = predicted if process_noise_in_gain else variance
        gain = used / (used + r)
        variance = (1 - gain) ** 2 * predicted + gain**2 * r
    return variance


@pytest.mark.parametrize("name", SIGMA_POINT_FILTERS)
def test_d1_the_gain_of_sigma_point_filters_contains_the_current_process_noise(name):
    """The paper's form, an option here, leaves it out, and its steady variance is too large."""
    for q, r in ((1.0, 0.5), (3.0, 1.0)):
        system = random_walk(q, r)
        right = steady_variance(q, r, process_noise_in_gain=True)
        wrong = steady_variance(q, r, process_noise_in_gain=False)
        assert wrong > 1.3 * right
        build = SIGMA_POINT_FILTERS[name]
        assert final_variance(build(), system) == pytest.approx(right, rel=1e-9)
        assert final_variance(build(redraw=False), system) == pytest.approx(wrong, rel=1e-9)


def test_d2_soft_resampling_keeps_the_weighted_mean():
    """A peer gathers the particles but not their weights: its mean moves from 0.916 to 0.447."""
    count = 20_000
    states = jr.normal(jr.key(0), (count, 1))
    particles = filtrax.Particles.uniform(states, jnp.eye(1))
    particles, _ = particles.reweight(2.0 * states[:, 0])
    for alpha in (0.05, 0.5, 1.0):
        resampled = Soft(alpha)(particles, key=jr.key(1))
        before, after = particles.moments(LINE).mean[0], resampled.moments(LINE).mean[0]
        bound = 4 / np.sqrt(float(resampled.effective_sample_size()))
        assert abs(after - before) < bound
        assert jnp.exp(resampled.log_weights).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_d3_an_iterated_filter_counts_the_observation_once(iterations):
    """A peer feeds the posterior back as prior: variances 0.333, 0.200 and 0.091."""
    model, prior = linear_model(random_walk(0.0, 0.5))
    filt = filtrax.ExtendedKalmanFilter(iterations=iterations)
    result = filtrax.run(filt, model, prior, jnp.ones((1, 1)), inputs=jnp.zeros((1, 2)))
    belief = result.beliefs
    assert belief.covariance[0, 0, 0] == pytest.approx(1 / 3, rel=1e-12)
    assert belief.mean[0, 0] == pytest.approx(2 / 3, rel=1e-12)


def test_d3_iterations_find_the_maximum_of_the_posterior():
    """What iterations are for: on a nonlinear observation they reach the Gauss-Newton optimum."""
    model, prior = linear_model(random_walk(0.0, 0.01))
    model = eqx.tree_at(lambda m: m.observe, model, lambda state, inputs: jnp.exp(state))
    reading = jnp.asarray([[4.0]])

    def negative_log_posterior(x):
        return 0.5 * x**2 + 0.5 * (4.0 - np.exp(x)) ** 2 / 0.01

    grid = np.linspace(1.0, 1.6, 60_001)
    optimum = grid[np.argmin(negative_log_posterior(grid))]
    means = [
        filtrax.run(
            filtrax.ExtendedKalmanFilter(iterations=n),
            model,
            prior,
            reading,
            inputs=jnp.zeros((1, 2)),
        ).beliefs.mean[0, 0]
        for n in (1, 10)
    ]
    assert abs(means[0] - optimum) > 0.5
    assert abs(means[1] - optimum) < 2e-5


@pytest.mark.parametrize("sensor_std", [1e-3, 1e-4])
def test_d4_the_unscented_filter_in_float32_has_finite_values_and_gradients(sensor_std):
    """A peer's is not a number here: constant velocity, 200 steps, precise measurements."""
    step = 0.1
    entry = np.array([step**2 / 2, step])
    system = LinearSystem(
        F=np.array([[1.0, step], [0.0, 1.0]]),
        G=np.zeros((2, 2)),
        H=np.array([[1.0, 0.0]]),
        Q=1e-4 * np.outer(entry, entry),
        R=sensor_std**2 * np.eye(1),
        mean=np.zeros(2),
        covariance=np.eye(2),
    )
    value, gradient = likelihood_and_gradient(filtrax.UnscentedKalmanFilter(), system, jnp.float32)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("filt", [filtrax.ExtendedKalmanFilter(), filtrax.UnscentedKalmanFilter()])
def test_d5_rank_deficient_process_noise_has_the_right_value_and_gradient(filt):
    """A peer's parallel filter is not a number for noise on the velocity alone."""
    system = LinearSystem(
        F=np.array([[1.0, 0.1], [0.0, 0.9]]),
        G=np.zeros((2, 2)),
        H=np.array([[1.0, 0.0]]),
        Q=np.diag([0.0, 0.04]),
        R=0.01 * np.eye(1),
        mean=np.zeros(2),
        covariance=np.diag([0.0, 1.0]),
    )
    value, gradient = likelihood_and_gradient(filt, system, jnp.float64)
    inputs, _, readings = data_of(system)
    expected = oracle_likelihood(system, inputs, readings)
    assert value == pytest.approx(expected, rel=1e-9)
    step = 1e-6
    ahead, behind = (
        oracle_likelihood(dataclasses.replace(system, R=std**2 * np.eye(1)), inputs, readings)
        for std in (0.1 + step, 0.1 - step)
    )
    assert gradient[0] == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def data_of(system):
    return simulate(system, np.random.default_rng(0), 200)


def oracle_likelihood(system, inputs, readings):
    return kalman(system, inputs, readings, np.ones(readings.shape, bool))[2].sum()


def likelihood_and_gradient(filt, system, dtype):
    """The log-likelihood of simulated readings, and its gradient by the sensor's deviation."""
    inputs, _, readings = data_of(system)
    model, prior = linear_model(system)
    sensor = filtrax.DirectSensor(filtrax.constant_noise(jnp.sqrt(jnp.asarray(system.R)[0])))
    model = eqx.tree_at(lambda m: m.sensor, model, sensor)
    arrays = map(jnp.asarray, (prior.mean, prior.covariance, readings))
    trajectory = filtrax.Trajectory(*arrays, inputs=jnp.asarray(inputs))
    if dtype == jnp.float32:
        model, trajectory = as_float32((model, trajectory))

    @jax.jit
    @jax.value_and_grad
    def likelihood(std):
        bias = std / model.sensor.noise.unit
        changed = eqx.tree_at(lambda m: m.sensor.noise.bias, model, bias)
        return filter_trajectory(filt, changed, trajectory).log_likelihood

    value, gradient = likelihood(model.sensor.noise.offset)
    assert value.dtype == dtype
    return np.asarray(value), np.asarray(gradient)


def test_d6_clipping_scales_to_the_threshold_not_to_one():
    model, prior = linear_model(random_walk(1.0, 1.0))
    data = filtrax.simulate(model, prior, inputs=jnp.zeros((5, 2)), key=jr.key(0))

    def steep(filt, model, trajectory, progress, key):
        del filt, trajectory, progress, key
        return 1e3 * (model.sensor.noise.bias**2).sum()

    _, _, history = filtrax.fit(
        filtrax.ExtendedKalmanFilter(),
        model,
        data,
        objective=steep,
        optimizer=optax.sgd(1e-6),
        num_steps=2,
        clip_norm=10.0,
        key=jr.key(0),
    )
    assert (history.gradient_norm > 1000).all()
    np.testing.assert_allclose(history.clipped_norm, 10.0)


def test_d7_gradients_pass_through_the_point_of_linearization():
    """A peer detaches the state, so that d(Jacobian)/d(state) is missing."""
    model, _ = linear_model(random_walk(0.0, 1.0))
    model = eqx.tree_at(lambda m: m.process, model, lambda state, inputs: jnp.sin(state))

    def predicted_variance(x):
        belief = filtrax.Gaussian(x[None], jnp.eye(1))
        filt = filtrax.ExtendedKalmanFilter()
        return filt.predict(model, belief, None).covariance[0, 0]

    x = jnp.asarray(0.3)
    assert predicted_variance(x) == pytest.approx(np.cos(0.3) ** 2)
    assert jax.grad(predicted_variance)(x) == pytest.approx(-np.sin(0.6))


def test_d8_the_mode_of_particles_is_the_one_of_largest_weight():
    """A peer's index has the wrong rank, and the call fails."""
    states = jnp.arange(6.0).reshape(3, 2)
    particles = filtrax.Particles.uniform(states, jnp.eye(2))
    particles, _ = particles.reweight(jnp.log(jnp.asarray([0.1, 0.7, 0.2])))
    np.testing.assert_array_equal(particles.mode(), states[1])
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), particles)
    np.testing.assert_array_equal(jax.vmap(lambda p: p.mode())(many), states[jnp.asarray([1, 1])])


@pytest.mark.parametrize("size", [2, 5, 10])
def test_d9_default_sigma_weights_do_not_cancel(size):
    """A peer's default has a centre weight of -33,332 for ten components."""
    points = filtrax.UnscentedKalmanFilter().points(size, jnp.float32)
    assert points.about_mean
    # With kappa = 1/2 and alpha = 1 the centre has one weight for means and covariances.
    weights = np.append(np.full(2 * size, points.weight), points.centre)
    assert (weights > 0).all()
    assert (weights < 1).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
    fit = points.fit(points.steps(jnp.eye(size, dtype=jnp.float32)))
    np.testing.assert_allclose(fit.covariance(fit), np.eye(size), atol=1e-6)
