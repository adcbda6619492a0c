"""The interacting filter in a configuration."""

import jax.numpy as jnp
import jax.random as jr
import pytest

from filtrax import IMMFilter
from filtrax.lab.config import as_dict
from filtrax.lab.config.filters import Ekf, Imm, Mcukf, Ukf
from filtrax.lab.config.parsing import parse
from filtrax.lab.config.settings import Experiment
from filtrax.lab.tasks.disc import DiscTask
from systems import beacon_model, beacon_trajectory, switching_beacon_model


def build(settings, model):
    return settings.build(DiscTask(), model, beacon_trajectory(2), key=jr.key(0))


def test_the_inner_filter_is_a_table_of_its_own():
    inner = {"kind": "mcukf", "num_samples": 7, "num_test_samples": 9}
    settings = parse(Experiment, {"filter": {"kind": "imm", "inner": inner}}).filter
    assert settings == Imm(Mcukf(7, 9))
    assert as_dict(settings) == {"kind": "imm", "inner": inner | {"redraw": True}}
    filt = build(settings, switching_beacon_model())
    assert isinstance(filt, IMMFilter)
    assert (filt.inner.num_samples, settings.for_test(filt).inner.num_samples) == (7, 9)
    assert parse(Experiment, {"filter": {"kind": "imm"}}).filter == Imm(Ekf())


def test_filters_that_differ_in_numbers_of_the_inner_one_are_one_program():
    assert Imm(Ukf(beta=2.0)).program == Imm(Ukf(kappa=3.0)).program
    assert Imm(Ukf(redraw=False)).program != Imm(Ukf()).program


def test_a_model_without_modes_is_refused():
    with pytest.raises(ValueError, match=r'"imm" needs a model with modes.*"ukf"'):
        build(Imm(Ukf()), beacon_model())


@pytest.mark.parametrize(
    ("settings", "program"),
    [
        ({"kappa": 2.0}, {}),
        ({"alpha": 0.5, "beta": 2.0}, {}),
        ({"alpha": 1e-3, "kappa": 0.0, "beta": 2.0}, {"alpha": 1e-3, "beta": 2.0}),
        ({"kappa": -1.0}, {"kappa": -1.0}),
        ({"learned": True, "kappa": -1.0}, {"learned": True}),
    ],
)
def test_scalings_share_a_program_where_points_are_far_apart_and_nothing_is_subtracted(
    settings, program
):
    """Rejects traced numbers where points nearly touch: their differences are rounding then."""
    ukf = Ukf(**settings)
    assert ukf.program == Ukf(**{"alpha": 1.0, "kappa": 0.0, "beta": 0.0} | program)
    points = build(ukf, beacon_model()).points(3, jnp.float32)
    assert points.infinitesimal == (ukf.alpha < 0.1)
    assert points.subtracts == (ukf.kappa < 0)
