"""Offsets that know their shape against a matrix of them; points beyond bounds."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax import Gaussian, Measurement, Space, StateSpaceModel, constant_noise
from filtrax.filters.sigma_points import PredictedPoints, Scattered
from systems import Linear

SIZE = 3


def test_pairs_scatter_and_slope_as_their_matrix_does():
    """Rejects a wrong sign or order of a pair, and a centre that counts."""
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(0.7, 1.5, 2.0))
    points = filt.points(SIZE, float, key=jr.key(0))
    width = 0.7**2 * (SIZE + 1.5)
    pairs = np.sqrt(width) * np.eye(SIZE)
    matrix = Scattered(jnp.asarray(np.concatenate([pairs, -pairs])))
    rng = np.random.default_rng(0)
    slope = jnp.asarray(rng.normal(size=(SIZE, 2)))
    deviations = points.split(jnp.asarray(rng.normal(size=(2 * SIZE + 1, 2))))
    assert [len(part) for part in deviations] == [1, SIZE, SIZE]
    found = points.offsets.scatter(slope)
    np.testing.assert_allclose(np.concatenate(found), *matrix.scatter(slope), atol=1e-12)
    weights = points.covariance_weights
    assert weights[1] == weights[2]
    both = deviations[0], jnp.concatenate(deviations[1:])
    np.testing.assert_allclose(
        points.offsets.slope(weights, deviations), matrix.slope(weights[:2], both), atol=1e-12
    )
    # A linear function is found again, and leaves nothing.
    linear = (jnp.zeros((1, 2)), *points.offsets.scatter(slope))
    np.testing.assert_allclose(points.offsets.slope(weights, linear), slope, atol=1e-12)
    for part in points.residuals(linear, slope):
        np.testing.assert_allclose(part, 0, atol=1e-12)


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
    predicted = filt.predict(model, belief, jnp.zeros(0), key=jr.key(0))
    measurement = Measurement(jnp.asarray([0.9, 1.2]), jnp.diag(jnp.asarray([0.16, 0.25])))
    return filt.update(model, predicted, measurement, key=jr.key(1))[0]


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
    predict = lambda filt: filt.predict(model, belief, jnp.zeros(0), key=jr.key(0))  # noqa: E731
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
    root = lambda x: jnp.stack([jnp.sqrt(1e-3 + x[0]), jnp.sqrt(3.001 - x[1])])  # noqa: E731
    model = _bounded(lambda x, u: jnp.concatenate([root(x), x[2:]]), root)
    covariance = jnp.diag(jnp.asarray([4.0, 2.0, 1.0]))

    def total(mean):
        found = _step(filtrax.UnscentedKalmanFilter(), model, Gaussian(mean, covariance))
        return found.mean.sum() + found.covariance.sum()

    value, gradient = jax.value_and_grad(total)(jnp.asarray([1.0, 2.5, 0.3]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient[:2]) > 1e-6).all()
