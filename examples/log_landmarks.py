"""Localize a robot by ranges and bearings to landmarks and wheel odometry, from CSV files.

Several landmarks are seen at one time; each row of the file is a reading of its own.
"""

import tempfile
from pathlib import Path

import numpy as np

import filtrax
from filtrax import logs, models

folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(1)


def write(name, header, *columns):
    rows = np.stack(columns, 1)
    np.savetxt(folder / name, rows, "%.9f", delimiter=",", header=header, comments="")


stamps = 0.05 * np.arange(1600)
speed, turn = np.full(1600, 1.2), 0.25 + 0.2 * np.cos(0.1 * stamps)
heading = 0.25 * stamps + 2 * np.sin(0.1 * stamps)
x, y = np.cumsum(0.05 * speed * [np.cos(heading), np.sin(heading)], 1)
trees = np.array([[11, 6.0, 6.0], [12, -4.0, 8.0], [17, 1.0, -4.0], [40, 9.0, -2.0]])
scan, tree = np.divmod(np.arange(4 * 160), 4)  # all four trees in each scan, every half second
place = 10 * scan + 5
east, north = trees[tree, 1] - x[place], trees[tree, 2] - y[place]
bearing = np.arctan2(north, east) - heading[place] + 0.02 * rng.normal(size=640)
bearing = (bearing + np.pi) % (2 * np.pi) - np.pi
distance = np.hypot(east, north) + 0.1 * rng.normal(size=640)
drive = np.stack([speed, turn]) + [[0.05], [0.02]] * rng.normal(size=(2, 1600))
write("truth.csv", "t [s],x,y,heading [rad]", stamps, x, y, heading)
write("wheels.csv", "t [s],speed [km/h],yaw_rate [deg/s]",
      stamps, 3.6 * drive[0], np.rad2deg(drive[1]))  # fmt: skip
write("scans.csv", "t [ms],tree,range,bearing [deg]",
      1000 * stamps[place], trees[tree, 0], distance, np.rad2deg(bearing))  # fmt: skip

# From files to beliefs.
log = logs.Log.from_csv({name: folder / f"{name}.csv" for name in ("truth", "wheels", "scans")})
landmarks = models.Landmarks(trees[:, 0], trees[:, 1:], which="tree")
wheels = models.DrivenPose("wheels.speed", "wheels.yaw_rate", distance_std=0.02, drift_std=0.01)
laser = models.Sensor(models.RangeBearing(landmarks), ("range", "bearing"), std=[0.1, 0.02])
model = models.build(wheels, {"scans": laser})
known = {"x": "truth.x", "y": "truth.y", "heading": "truth.heading"}
steps = log.events(model)
data = steps.trajectory({"x": 0.5, "y": 0.5, "heading": 0.1}, truth=known)
ekf = filtrax.ExtendedKalmanFilter()
beliefs = filtrax.run(ekf, model, data.prior, data.readings, inputs=data.inputs,
                      observed=data.observed).beliefs  # fmt: skip
errors = filtrax.metrics.component_errors(beliefs, data.states, model.state_space)
print(log.report)
print(", ".join(f"{name} error {error:.3f}" for name, error in errors.items()))
