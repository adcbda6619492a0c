"""Strict numerics for all tests: nothing is promoted or broadcast by accident."""

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation trips hypothesis' deadline, and a test that fails must fail again tomorrow.
settings.register_profile("filtrax", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("filtrax")


@pytest.fixture
def key():
    return jax.random.key(0)
