"""Fuse an IMU at 100 Hz, wheel speed at 20 Hz and satellite fixes at 2 Hz, from CSV files.

Each file has a clock of its own. The antenna sits ahead of the IMU, and its fixes are late.
"""

import tempfile
from pathlib import Path

import numpy as np

import filtrax
from filtrax import logs, models

folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(2)
START = 1_700_000_000  # a clock since 1970


def write(name, header, *columns):
    rows = np.stack(columns, 1)
    np.savetxt(folder / name, rows, "%.9f", delimiter=",", header=header, comments="")


def drive(t):
    theta, rate = 2 * np.sin(0.2 * t), 0.4 * np.cos(0.2 * t)
    v, dv = 5 + np.sin(0.3 * t), 0.3 * np.cos(0.3 * t)
    x, y = (np.append(0, np.cumsum(f(theta[:-1]) * v[:-1] * np.diff(t))) for f in (np.cos, np.sin))
    return {"x": x, "y": y, "heading": theta, "speed": v, "rate": rate, "ax": dv, "ay": v * rate}


fine = np.arange(0, 60, 0.001)
car, at = drive(fine), lambda name, t: np.interp(t, fine, car[name])
imu, wheels, gnss = np.arange(0, 59, 0.01), np.arange(0.3, 59, 0.05), np.arange(1.0, 59, 0.5)
arm = 0.8 * np.stack([np.cos(at("heading", gnss)), np.sin(at("heading", gnss))])
fixes = np.stack([at("x", gnss), at("y", gnss)]) + arm + 0.5 * rng.normal(size=(2, gnss.size))
noise = np.array([[0.05], [0.05], [0.005]]) * rng.normal(size=(3, imu.size))
ax, ay, gz = np.stack([at("ax", imu) + 0.2, at("ay", imu) - 0.1, at("rate", imu) + 0.02]) + noise
write("imu.csv", "t [ns],ax,ay,gz [deg/s]", 1e9 * (START + imu), ax, ay, np.rad2deg(gz))
write("wheels.csv", "t,speed", START + wheels, at("speed", wheels) + rng.normal(0, 0.1, 1174))
write("gnss.csv", "t,east,north", START + gnss + 0.15, *fixes)
track = (car[name][::10] for name in ("x", "y", "heading"))
write("truth.csv", "t,x,y,heading", START + fine[::10], *track)

# From files to beliefs.
log = logs.Log.from_csv({n: folder / f"{n}.csv" for n in ("imu", "wheels", "gnss", "truth")})
imu = models.PlanarImu("imu.ax", "imu.ay", "imu.gz", acceleration_std=0.01, gyro_std=0.001,
                       acceleration_walk=0.001, gyro_walk=0.0001)  # fmt: skip
rolling = models.Sensor(models.Speed(), "speed", std=0.1)
antenna = models.Sensor(models.Position(), ("east", "north"), std=0.5,
                        lever_arm=(0.8, 0.0), delay=0.15)  # fmt: skip
model = models.build(imu, {"wheels": rolling, "gnss": antenna})
unknown = {"vx": (5.0, 1.0), "vy": (0.0, 1.0), **dict.fromkeys(("bias_ax", "bias_ay"), (0.0, 0.3))}
prior = {"x": 0.5, "y": 0.5, "heading": 0.1, "bias_gyro": (0.0, 0.05), **unknown}
known = {"x": "truth.x", "y": "truth.y", "heading": "truth.heading"}
data = log.events(model).trajectory(prior, truth=known)
beliefs = filtrax.run(filtrax.ExtendedKalmanFilter(), model, data.prior, data.readings,
                      inputs=data.inputs, observed=data.observed).beliefs  # fmt: skip
errors = np.asarray(beliefs.mean - data.states)[:, :2]
print(log.report)
print(f"position error {np.sqrt((errors**2).sum(1).mean()):.3f} m, biases {beliefs.mean[-1, 5:]}")
