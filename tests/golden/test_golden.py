"""Data and training of all tasks are what they were, whatever is rewritten."""

import platform

import jaxlib
import numpy as np
import pytest

from filtrax.lab import provenance
from golden import cases

QUICK = ("disc_ekf",)
GOLDEN = cases.golden()


def test_numbers_and_cases_belong_together():
    assert set(GOLDEN["data"]) == set(cases.DATA)
    assert set(GOLDEN["losses"]) == set(cases.cases())
    assert GOLDEN["version"] == provenance.GOLDEN


@pytest.mark.parametrize("name", cases.DATA)
def test_data_are_the_same_to_the_bit(name):
    """Rejects keys that are split in another order, and another arithmetic of simulators."""
    made_with = GOLDEN["made_with"]
    if {"jaxlib": jaxlib.__version__, "machine": platform.machine()} != made_with:
        pytest.skip(f"bits may differ from those of {made_with}")
    assert cases.data_hash(name) == GOLDEN["data"][name]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.golden)
        for name in cases.cases()
    ],
)
def test_five_training_steps_have_the_same_losses(name):
    """Rejects other initial weights, batches, random numbers, filters, losses and optimizers."""
    np.testing.assert_allclose(cases.losses(name), GOLDEN["losses"][name], rtol=1e-4)
