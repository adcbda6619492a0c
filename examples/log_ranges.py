"""Localize a robot by ranges to radio beacons and odometry, from CSV files as a logger writes them.

The first part drives a simulated robot and writes its log; the second one is what a log needs.
"""

import tempfile
from pathlib import Path

import numpy as np

import filtrax
from filtrax import logs, models

folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)


def write(name, header, *columns):
    rows = np.stack(columns, 1)
    np.savetxt(folder / name, rows, "%.9f", delimiter=",", header=header, comments="")


stamps = 1_700_000_000 + 0.1 * np.arange(1200)
speed, turn = 1 + 0.3 * np.sin(0.05 * stamps), 0.3 * np.sin(0.03 * stamps)
heading = np.cumsum(0.1 * turn)
x, y = np.cumsum(0.1 * speed * [np.cos(heading - 0.05 * turn), np.sin(heading - 0.05 * turn)], 1)
beacons = np.array([[1, 20.0, -10.0], [5, 10.0, 40.0], [6, -20.0, 5.0]])
heard = np.arange(7, 1200, 3)  # one beacon answers in 0.3 s
which = beacons[rng.integers(3, size=heard.size)]
distance = np.hypot(which[:, 1] - x[heard], which[:, 2] - y[heard])
ranges = 1.05 * distance + 0.4 + 0.2 * rng.normal(size=heard.size)
odometry = 0.1 * np.stack([speed, turn]) + [[0.01], [0.003]] * rng.normal(size=(2, 1200))
write("truth.csv", "t,x,y,heading [deg]", stamps, x, y, np.rad2deg(heading))
write("odometry.csv", "t,distance,turn", stamps, *odometry)
write("uwb.csv", "t,beacon,range [mm]", stamps[heard] + 0.03, which[:, 0], 1000 * ranges)
write("beacons.csv", "id,x,y", *beacons.T)

# From files to beliefs.
log = logs.Log.from_csv({name: folder / f"{name}.csv" for name in ("truth", "odometry", "uwb")})
surveyed = logs.read_table(folder / "beacons.csv")
places = np.stack([surveyed["x"], surveyed["y"]], 1)
landmarks = models.Landmarks(surveyed["id"], places, which="beacon")
odo = models.DrivenPose("odometry.distance", "odometry.turn", increments=True,
                        distance_std=0.04, drift_std=0.01)  # fmt: skip
uwb = models.Sensor(models.Range(landmarks), "range", std=0.2, bias=0.4, scale=1.05)
model = models.build(odo, {"uwb": uwb})
steps = log.events(model)
known = {"x": "truth.x", "y": "truth.y", "heading": "truth.heading"}
data = steps.trajectory({"x": 0.5, "y": 0.5, "heading": 0.1}, truth=known)
ekf = filtrax.ExtendedKalmanFilter()
beliefs = filtrax.run(ekf, model, data.prior, data.readings, inputs=data.inputs,
                      observed=data.observed).beliefs  # fmt: skip
errors = filtrax.metrics.component_errors(beliefs, data.states, model.state_space)
print(log.report)
print(", ".join(f"{name} error {error:.3f}" for name, error in errors.items()))
