"""Regressions on sigma points against their definition; points beyond bounds."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax import Gaussian, Measurement, Space, StateSpaceModel, constant_noise
from filtrax.filters.sigma_points import PredictedPoints
from systems import Linear

SIZE = 3


@pytest.mark.parametrize("scaling", [(0.7, 1.5, 2.0), (1.0, 0.5, 0.0)])
def test_pairs_regress_as_all_points_with_the_textbooks_weights_do(scaling):
    """Rejects a wrong sign or order of a pair, and a centre that counts in the slope."""
    alpha, kappa, beta = scaling
    points = filtrax.UnscentedKalmanFilter(filtrax.Scaling(*scaling)).points(SIZE, float)
    width = alpha**2 * (SIZE + kappa)
    offsets = np.sqrt(width) * np.concatenate([np.eye(SIZE), -np.eye(SIZE)])
    factor = np.random.default_rng(1).normal(size=(SIZE, SIZE))
    np.testing.assert_allclose(points.steps(jnp.asarray(factor)), offsets @ factor.T, atol=1e-12)
    deviations = np.random.default_rng(0).normal(size=(2 * SIZE, 2))
    fit = points.fit(jnp.asarray(deviations))
    weight, centre = 0.5 / width, 1 - SIZE / width + 1 - alpha**2 + beta
    mean = weight * deviations.sum(0)
    np.testing.assert_allclose(fit.shift, mean, atol=1e-12)
    np.testing.assert_allclose(fit.slope, weight * deviations.T @ offsets, atol=1e-12)
    covariance = weight * (deviations - mean).T @ (deviations - mean) + centre * np.outer(
        mean, mean
    )
    root = np.asarray(fit.factor(fit.slope))
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-12)
    np.testing.assert_allclose(fit.covariance(fit), covariance, atol=1e-12)


def test_a_linear_function_is_found_again_and_leaves_nothing():
    """Rejects a spread that contains what the slope explains."""
    slope = np.random.default_rng(0).normal(size=(SIZE, SIZE))
    for filt in (
        filtrax.UnscentedKalmanFilter(),
        filtrax.MonteCarloUnscentedKalmanFilter(num_samples=20),
    ):
        points = filt.points(SIZE, float, key=jr.key(0))
        fit = points.fit(points.steps(jnp.asarray(slope)))
        np.testing.assert_allclose(fit.slope, slope, atol=1e-12)
        np.testing.assert_allclose(fit.shift, 0, atol=1e-12)
        np.testing.assert_allclose(fit.spread, 0, atol=1e-12)


BOUNDED = ("x0", "x1")


def _bounded(process, observe) -> StateSpaceModel:
    return StateSpaceModel(
        state_space=Space((*BOUNDED, "x2"), bounds=dict.fromkeys(BOUNDED, (0.0, 3.0))),
        observation_space=Space(("z0", "z1")),
        process=process,
        process_noise=constant_noise(jnp.asarray([0.3, 0.2, 0.1])),
        observe=observe,
        sensor=filtrax.DirectSensor(constant_noise(jnp.asarray([0.4, 0.5]))),
    )


def _step(filt, model, belief):
    predicted = filt.predict(model, belief, None, key=jr.key(0))
    measurement = Measurement(jnp.asarray([0.9, 1.2]), jnp.diag(jnp.asarray([0.16, 0.25])))
    return filt.update(model, predicted, measurement, None, key=jr.key(1))[0]


@pytest.mark.parametrize(
    "filt",
    [
        filtrax.UnscentedKalmanFilter(),
        filtrax.UnscentedKalmanFilter(redraw=False),
        filtrax.MonteCarloUnscentedKalmanFilter(50),
    ],
)
def test_points_beyond_bounds_take_nothing_from_a_belief(filt):
    """Rejects points that are moved to the bounds: the belief is too wide for them on purpose."""
    matrix = jnp.asarray([[0.8, 0.1, 0.0], [0.0, 0.9, 0.1], [0.2, 0.0, 1.0]])
    observe = Linear(jnp.asarray([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    model = _bounded(Linear(matrix), observe)
    belief = Gaussian(jnp.asarray([1.0, 1.2, 0.3]), jnp.diag(jnp.asarray([4.0, 2.0, 1.0])))
    predict = lambda filt: filt.predict(model, belief, None, key=jr.key(0))  # noqa: E731
    found = predict(filt)
    found = found.belief if isinstance(found, PredictedPoints) else found
    expected = predict(filtrax.ExtendedKalmanFilter())
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-9)
    if filt.redraw:  # the paper's form leaves Q out of its gain
        found, expected = (_step(f, model, belief) for f in (filt, filtrax.ExtendedKalmanFilter()))
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
        np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-9)


def test_models_are_never_asked_what_lies_beyond_bounds():
    """Rejects points that reach a model outside, where this one has no value and no gradient."""
    root = lambda x, _: jnp.stack([jnp.sqrt(1e-3 + x[0]), jnp.sqrt(3.001 - x[1])])  # noqa: E731
    model = _bounded(lambda x, u: jnp.concatenate([root(x, u), x[2:]]), root)
    covariance = jnp.diag(jnp.asarray([4.0, 2.0, 1.0]))

    def total(mean):
        found = _step(filtrax.UnscentedKalmanFilter(), model, Gaussian(mean, covariance))
        return found.mean.sum() + found.covariance.sum()

    value, gradient = jax.value_and_grad(total)(jnp.asarray([1.0, 2.5, 0.3]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient[:2]) > 1e-6).all()


def _bent() -> StateSpaceModel:
    bend = lambda x: jnp.stack([x[0] + 0.5 * x[1] ** 2, x[1] + jnp.sin(x[0]), x[2] * x[0]])  # noqa: E731
    return StateSpaceModel(
        state_space=Space(("x0", "x1", "x2")),
        observation_space=Space(("z0", "z1")),
        process=lambda x, _: bend(x),
        process_noise=constant_noise(jnp.asarray([0.3, 0.2, 0.1])),
        observe=lambda x, _: jnp.stack([x[0] * x[1], x[2] + x[0] ** 2]),
        sensor=filtrax.DirectSensor(constant_noise(jnp.asarray([0.4, 0.5]))),
    )


def _textbook(function, mean, covariance, alpha, kappa, beta):
    """Points, their images, and all weights, as Wan and van der Merwe (2000) write them."""
    size = len(mean)
    lam = alpha**2 * (size + kappa) - size
    root = np.sqrt(size + lam) * np.linalg.cholesky(covariance).T
    points = np.concatenate([mean[None], mean + root, mean - root])
    weights = np.full(2 * size + 1, 0.5 / (size + lam))
    weights[0] = lam / (size + lam)
    of_covariance = weights.copy()
    of_covariance[0] += 1 - alpha**2 + beta
    images = np.stack([np.asarray(function(jnp.asarray(x))) for x in points])
    return points, images, weights @ images, of_covariance


@pytest.mark.parametrize(
    "scaling", [(0.1, 0.0, 2.0), (0.5, 0.0, 2.0), (0.3, 1.0, 0.05), (1.0, 0.5, 0.0)]
)
def test_covariances_are_the_textbooks_whatever_the_centre_weighs(scaling):
    """Rejects a wrong weight of what the centre is off by, in the prediction and in the update."""
    model, filt = _bent(), filtrax.UnscentedKalmanFilter(filtrax.Scaling(*scaling))
    mean, covariance = np.asarray([0.4, -0.3, 1.2]), np.diag([0.5, 0.8, 0.2]) + 0.1
    belief = Gaussian(jnp.asarray(mean), jnp.asarray(covariance))
    process = lambda x: model.process(x, None)  # noqa: E731
    _, images, moved, weights = _textbook(process, mean, covariance, *scaling)
    expected = (images - moved).T @ np.diag(weights) @ (images - moved)
    expected += np.diag([0.3, 0.2, 0.1]) ** 2
    predicted = filt.predict(model, belief, None, key=jr.key(0))
    np.testing.assert_allclose(predicted.mean, moved, atol=1e-10)
    np.testing.assert_allclose(predicted.covariance, expected, atol=1e-9)
    # The update, whose prior may be anything positive definite.
    points, images, seen, weights = _textbook(
        lambda x: model.observe(x, None), mean, covariance, *scaling
    )
    noise, value = np.diag([0.16, 0.25]), np.asarray([0.9, 1.2])
    innovation = (images - seen).T @ np.diag(weights) @ (images - seen) + noise
    gain = (points - mean).T @ np.diag(weights) @ (images - seen) @ np.linalg.inv(innovation)
    measurement = Measurement(jnp.asarray(value), jnp.asarray(noise))
    updated, _ = filt.update(model, belief, measurement, None, key=jr.key(0))
    np.testing.assert_allclose(updated.mean, mean + gain @ (value - seen), atol=1e-9)
    np.testing.assert_allclose(
        updated.covariance, covariance - gain @ innovation @ gain.T, atol=1e-9
    )


def test_points_close_to_the_centre_leave_covariances_positive_in_single_precision():
    """Rejects squares with a large negative weight: what is left of them is rounding."""
    inner, outer = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 3)), jnp.float32)
    quiet = constant_noise(jnp.full(3, 1e-4, jnp.float32))
    bend = lambda x, _: outer @ (inner @ x) ** 2  # noqa: E731
    model = dataclasses.replace(_bent(), process=bend, process_noise=quiet)
    belief = Gaussian(jnp.zeros(3, jnp.float32), jnp.eye(3, dtype=jnp.float32))
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(0.01, 0.0, 2.0))
    predicted = filt.predict(model, belief, None, key=jr.key(0))
    values = np.linalg.eigvalsh(np.asarray(predicted.covariance, np.float64))
    assert values.min() > -1e-6 * values.max()
