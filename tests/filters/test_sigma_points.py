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
