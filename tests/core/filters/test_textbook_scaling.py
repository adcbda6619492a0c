"""The textbook's scaling, whose sigma points nearly touch, in single precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from systems import as_float32

STEPS = 2000
POLAR = filtrax.Space(("range", "bearing"), angles=("bearing",))


def tracking():
    """A target with nearly constant velocity in a bowl, seen by range and bearing."""
    F = np.asarray(
        [[1.0, 0.0, 0.1, 0.0], [0.0, 1.0, 0.0, 0.1], [-0.1, 0.0, 0.99, 0.0], [0.0, -0.1, 0.0, 0.99]]
    )
    return filtrax.StateSpaceModel(
        process=lambda state, _: jnp.asarray(F, state.dtype) @ state,
        process_noise=filtrax.constant_noise([0.01, 0.01, 0.2, 0.2]),
        observe=lambda state, _: jnp.stack(
            [
                jnp.hypot(state[0] - 12.0, state[1] + 9.0),
                jnp.arctan2(state[1] + 9.0, state[0] - 12.0),
            ]
        ),
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5, 0.05])),
        observation_space=POLAR,
    )


PRIOR = filtrax.Gaussian(jnp.asarray([3.0, 0.0, 0.0, 3.0]), jnp.eye(4))


@functools.cache
def trip():
    return filtrax.simulate(tracking(), PRIOR, num_steps=STEPS, key=jax.random.key(1))


@functools.cache
def scores(alpha, single):
    """Root mean square error of the position, and mean NEES."""
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(alpha=alpha, kappa=0.0, beta=2.0))
    arguments = filt, tracking(), PRIOR, trip().readings
    result = filtrax.run(*(as_float32(arguments) if single else arguments))
    assert result.info.finite.all()
    means, covariances = (
        np.asarray(array, np.float64) for array in (result.beliefs.mean, result.beliefs.covariance)
    )
    errors = means - np.asarray(trip().states)
    nees = np.einsum("ti,tij,tj->t", errors, np.linalg.inv(covariances), errors)
    return np.sqrt((errors[:, :2] ** 2).sum(1).mean()), nees.mean()


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1.0])
def test_single_precision_tracks_as_double_precision_does(alpha):
    """Rejects differences of images that are only rounding: 1.1 m in the place of 0.33 m."""
    np.testing.assert_allclose(scores(alpha, True), scores(alpha, False), rtol=0.02)


def test_small_scalings_agree():
    """Rejects derivatives that are those of another function, or a lost correction of the mean."""
    np.testing.assert_allclose(scores(1e-3, True), scores(1e-2, False), rtol=0.02)


def test_single_precision_has_the_gradient_of_double_precision():
    """Rejects a tangent that is rounding, although the value is none."""

    def gradient(single):
        filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(alpha=1e-3, kappa=0.0, beta=2.0))
        arguments = filt, tracking(), PRIOR, trip().readings[:50]
        filt, model, prior, readings = as_float32(arguments) if single else arguments

        def total(mean):
            moved = filtrax.Gaussian(mean, factor=prior.factor)
            return filtrax.run(filt, model, moved, readings).log_likelihood

        return np.asarray(jax.grad(total)(prior.mean), np.float64)

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=0.01, atol=0.01)


def test_a_network_between_points_that_nearly_touch_is_warned_of():
    """Rejects silence: what a kink does to the mean grows as one over alpha."""
    network = filtrax.networks.Perceptron((1, 4, 1), key=jax.random.key(0))
    model = filtrax.StateSpaceModel(
        process=filtrax.ResidualProcess(network),
        process_noise=filtrax.constant_noise([0.1]),
        observe=lambda state, _: state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.1])),
    )
    prior = filtrax.Gaussian(jnp.zeros(1, jnp.float32), jnp.eye(1, dtype=jnp.float32))
    arguments = as_float32(model), prior, jnp.zeros((3, 1), jnp.float32)
    near = filtrax.UnscentedKalmanFilter(filtrax.Scaling(alpha=1e-3, kappa=0.0, beta=2.0))
    with pytest.warns(UserWarning, match="`process` is a network, and sigma points lie so close"):
        filtrax.run(near, *arguments)
    filtrax.run(filtrax.UnscentedKalmanFilter(), *arguments)
