"""Scans in few dependent steps against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax._scans import BLOCK, associative_scan


@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1, 5 * BLOCK - 1])
def test_a_scan_is_a_loop_in_the_same_order(count):
    """Products of matrices do not commute: rejects blocks that are joined the wrong way round."""
    turns = 0.1 * np.random.default_rng(count).normal(size=(count, 3, 3)) + np.eye(3)
    found = jax.jit(lambda a: associative_scan(jnp.matmul, a, jnp.eye(3)))(jnp.asarray(turns))
    expected, product = [], np.eye(3)
    for turn in turns:
        product = product @ turn
        expected.append(product)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
