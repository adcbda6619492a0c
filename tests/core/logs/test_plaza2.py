"""A real log with UWB ranges: Plaza2 of Djugash, Hamner and Roth (2009), where it is at hand."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax import models
from filtrax.logs import Log, read_table

BESIDE = Path(__file__).parents[4] / "shared" / "data"
FOLDER = Path(os.environ.get("FILTRAX_DATA", BESIDE)) / "plaza2"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="Plaza2 is neither in FILTRAX_DATA nor beside the checkout"
)


def held_out(**calibration):
    """Position RMSE, mean NLL of the pose and NEES per component on the last 40 % of the time."""
    names = {"truth": "GT", "odometry": "DR", "uwb": "TD"}
    log = Log.from_csv({name: FOLDER / f"Plaza2_{part}.csv" for name, part in names.items()})
    # The heading of the truth is that of the vehicle's back.
    log = log.with_columns("truth", heading=log["truth"]["theta"] + np.pi)
    tags = read_table(FOLDER / "Plaza2_TL.csv")
    places = np.stack([tags["x"], tags["y"]], 1)
    beacons = models.Landmarks(tags["tag"], places, "receiver_or_tag")
    motion = models.DrivenPose(
        *("odometry.delta_dist", "odometry.delta_heading"),
        increments=True,
        **{"distance_std": 0.05, "slip_std": 0.02, "turn_std": 0.01, "drift_std": 0.002},
    )
    uwb = models.Sensor(models.Range(beacons), "range", **calibration)
    model = models.build(motion, {"uwb": uwb})
    truth = {name: f"truth.{name}" for name in ("x", "y", "heading")}
    prior = {"x": 0.1, "y": 0.1, "heading": 0.05}
    data = log.split(0.6)[1].events(model).trajectory(prior, truth=truth)
    beliefs = filtrax.run(
        filtrax.ExtendedKalmanFilter(), model, data.prior, data.readings,
        inputs=data.inputs, observed=data.observed,
    ).beliefs  # fmt: skip
    errors = jax.vmap(model.state_space.difference)(data.states, beliefs.mean)
    nll = -jax.vmap(lambda belief, error: belief.log_density(error))(beliefs, errors).mean()
    nees = filtrax.metrics.nees(beliefs, data.states, model.state_space).mean() / 3
    return jnp.sqrt((errors[:, :2] ** 2).sum(1).mean()), nll, nees


def test_noise_and_a_constant_bias_set_by_hand():
    """A filter by hand had 1.09 m and 1.03 here; 0.915 m and 0.856 were measured."""
    rmse, nll, _ = held_out(std=1.6, bias=2.9)
    assert rmse == pytest.approx(0.915, abs=0.005)
    assert nll == pytest.approx(0.856, abs=0.02)


def test_noise_and_a_scale_of_seven_percent_set_by_hand():
    """Least squares of scale and bias had 0.44 m and -1.45; 0.398 m and -1.79 were measured."""
    rmse, nll, nees = held_out(std=1.0, scale=1.07)
    assert rmse == pytest.approx(0.398, abs=0.005)
    assert nll == pytest.approx(-1.789, abs=0.02)
    assert nees == pytest.approx(0.834, abs=0.02)
