"""Offsets that know their shape against the same offsets as a matrix."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
from filtrax.filters.sigma_points import Scattered

SIZE = 3


def test_pairs_scatter_and_slope_as_their_matrix_does():
    """Rejects a wrong sign or order of a pair, and a centre that counts."""
    filt = filtrax.UnscentedKalmanFilter(filtrax.Scaling(0.7, 1.5, 2.0))
    points = filt.points(SIZE, float, key=jr.key(0))
    width = 0.7**2 * (SIZE + 1.5)
    pairs = np.sqrt(width) * np.eye(SIZE)
    matrix = Scattered(jnp.asarray(np.concatenate([np.zeros((1, SIZE)), pairs, -pairs])))
    rng = np.random.default_rng(0)
    slope = jnp.asarray(rng.normal(size=(SIZE, 2)))
    deviations = jnp.asarray(rng.normal(size=(2 * SIZE + 1, 2)))
    np.testing.assert_allclose(points.offsets.scatter(slope), matrix.scatter(slope), atol=1e-12)
    weights = points.covariance_weights
    np.testing.assert_allclose(
        points.offsets.slope(weights, deviations), matrix.slope(weights, deviations), atol=1e-12
    )
    # A linear function is found again.
    found = points.offsets.slope(weights, points.offsets.scatter(slope))
    np.testing.assert_allclose(found, slope, atol=1e-12)
