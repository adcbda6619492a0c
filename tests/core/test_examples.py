"""Examples that users begin with, against extended Kalman filters in float64 NumPy."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def promotion_as_users_have_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def numpy_filter(drive, see, mean, covariance, steps, angles):
    """Means and covariances after each step; a step has Q, R and numbers for both functions."""
    means, covariances = [], []
    for known in steps:
        F = jacobian(lambda x, known=known: drive(x, known), mean)
        Q = known["Q"](mean) if callable(known["Q"]) else known["Q"]
        mean, covariance = drive(mean, known), F @ covariance @ F.T + Q
        if known["reading"] is not None:
            H = jacobian(lambda x, known=known: see(x, known), mean)
            S = H @ covariance @ H.T + known["R"]
            gain = covariance @ H.T @ np.linalg.inv(S)
            residual = known["reading"] - see(mean, known)
            residual[angles] = (residual[angles] + np.pi) % (2 * np.pi) - np.pi
            mean, kept = mean + gain @ residual, np.eye(len(mean)) - gain @ H
            covariance = kept @ covariance @ kept.T + gain @ known["R"] @ gain.T
        means.append(mean)
        covariances.append(covariance)
    return np.asarray(means), np.asarray(covariances)


def jacobian(function, point, step=1e-20):
    """Derivatives to the last digit, by the imaginary part of a complex step."""
    columns = [function(point + 1j * step * axis).imag / step for axis in np.eye(len(point))]
    return np.stack(columns, -1)


def atan2(y, x):
    """As NumPy's, for complex numbers with small imaginary parts, too."""
    angle = np.arctan2(y.real, x.real)
    return angle + 1j * (x.real * y.imag - y.real * x.imag) / (x.real**2 + y.real**2)


def assert_same(beliefs, expected):
    means, covariances = expected
    turns = np.round((np.asarray(beliefs.mean) - means) / (2 * np.pi)) * 2 * np.pi
    np.testing.assert_allclose(beliefs.mean, means + turns, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(beliefs.covariance, covariances, rtol=1e-6, atol=1e-9)


def test_landmarks_at_irregular_times_are_those_of_a_filter_by_hand(capsys):
    """Rejects inputs that are shifted, and noise of a step without duration."""
    example = runpy.run_path(str(EXAMPLES / "landmarks.py"))
    landmarks = np.asarray(example["landmarks"])
    inputs = {name: np.asarray(array) for name, array in example["inputs"].items()}
    assert (inputs["dt"] == 0).any()
    assert inputs["seen"].shape[1] > 1

    def drive(x, known):
        speed, turn = known["command"]
        rates = np.stack([speed * np.cos(x[2]), speed * np.sin(x[2]), turn + 0 * x[2]])
        return x + known["dt"] * rates

    def see(x, known):
        dx, dy = (landmarks[known["seen"]] - x[:2]).T
        value = np.concatenate([np.sqrt(dx**2 + dy**2), atan2(dy, dx) - x[2]])
        return value if np.iscomplexobj(x) else value.real

    stds = np.asarray([0.1, 0.1, 0.05])
    steps = [
        {
            **{name: array[t] for name, array in inputs.items()},
            "Q": np.diag(stds**2 * inputs["dt"][t]),
            "R": np.diag(np.square([0.2, 0.2, 0.03, 0.03])),
            "reading": np.asarray(example["tour"].readings[t]),
        }
        for t in range(len(inputs["dt"]))
    ]
    covariance = np.diag([1.0, 1.0, 0.04])
    expected = numpy_filter(drive, see, np.zeros(3), covariance, steps, [2, 3])
    assert_same(example["filtered"](example["model"]).beliefs, expected)
    assert np.isfinite(np.asarray(example["gradient"].process_noise.std)).all()
    assert capsys.readouterr().out


def test_an_imu_and_wheels_at_two_rates_are_those_of_a_filter_by_hand(capsys):
    example = runpy.run_path(str(EXAMPLES / "imu_and_wheels.py"))
    imu = {name: np.asarray(array) for name, array in example["imu"].items()}
    reported = np.asarray(example["reported"])
    assert 0 < reported.sum() < len(reported) / 5

    def drive(x, known):
        _, _, heading, speed, bias = x
        rates = [speed * np.cos(heading), speed * np.sin(heading), known["gyro"] + 0 * heading]
        return x + 0.01 * np.stack([*rates, known["acceleration"] - bias, 0 * bias])

    steps = [
        {
            **{name: array[t] for name, array in imu.items()},
            "Q": np.diag(np.square([0.0, 0.0, 2e-4, 2e-3, 1e-4])),
            "R": np.diag([0.05**2]),
            "reading": np.asarray(example["trip"].readings[t]) if reported[t] else None,
        }
        for t in range(len(reported))
    ]
    covariance = np.diag(np.square([0.1, 0.1, 0.05, 1.0, 0.3]))
    start = np.asarray([0.0, 0.0, 0.0, 5.0, 0.0])
    expected = numpy_filter(drive, lambda x, known: x[3:4], start, covariance, steps, [])
    assert_same(example["beliefs"], expected)
    assert capsys.readouterr().out


def turn_and_drive(x, known):
    """A pose that drives along an arc of a circle, by the formulas of a circle."""
    v, w, dt = known["v"], known["w"], known["dt"]
    after = x[2] + w * dt
    radius = v / w
    east, north = radius * (np.sin(after) - np.sin(x[2])), radius * (np.cos(x[2]) - np.cos(after))
    return np.stack([x[0] + east, x[1] + north, after])


def noise_along_an_arc(known, distance_std, drift_std, parts=100):
    """Q as a sum over short parts of the step, each of which is carried to its end by hand."""

    def covariance(mean):
        dt, zeros = known["dt"], np.zeros(parts)
        end = turn_and_drive(mean, known)
        x, y, heading = turn_and_drive(mean, {**known, "dt": (np.arange(parts) + 0.5) * dt / parts})
        size = distance_std * abs(known["v"]) ** 0.5
        ahead = size * np.stack([np.cos(heading), np.sin(heading), zeros])
        turned = drift_std * np.stack([y - end[1], end[0] - x, zeros + 1])
        return (ahead @ ahead.T + turned @ turned.T) * dt / parts

    return covariance


def steps_of(example, drive, speed, turn, stds):
    """The steps of a log as a filter by hand takes them."""
    steps, (sensor,) = example["steps"], example["steps"].names
    inputs = steps.inputs
    for t in range(len(steps)):
        known = {"dt": inputs["dt"][t], "v": inputs[drive][speed][t], "w": inputs[drive][turn][t]}
        here = {name: column[t] for name, column in inputs[sensor].items()}
        reading = steps.readings[0][t].copy() if steps.observed[0][t] else None
        R = np.diag(np.square(stds))
        yield {**known, **here, "reading": reading, "R": R}


def test_ranges_of_a_log_are_filtered_as_by_hand(capsys):
    example = runpy.run_path(str(EXAMPLES / "log_ranges.py"))
    places = dict(zip(example["landmarks"].ids, example["places"], strict=True))

    def see(x, known):
        dx, dy = places[known["beacon"]] - x[:2]
        value = 1.05 * np.sqrt(dx**2 + dy**2)[None] + 0.4
        return value if np.iscomplexobj(x) else value.real

    steps = list(steps_of(example, "odometry", "distance", "turn", [0.2]))
    for known in steps:
        known["Q"] = noise_along_an_arc(known, 0.04, 0.01)
    assert sum(known["reading"] is not None for known in steps) == 398
    start, covariance = np.asarray(example["data"].initial), np.diag([0.25, 0.25, 0.01])
    expected = numpy_filter(turn_and_drive, see, start, covariance, steps, [])
    assert_same(example["beliefs"], expected)
    errors = example["errors"]
    assert all(errors[name] < 0.15 for name in ("x", "y", "heading"))
    assert "range from mm" in capsys.readouterr().out


def test_ranges_and_bearings_of_a_log_are_filtered_as_by_hand(capsys):
    example = runpy.run_path(str(EXAMPLES / "log_landmarks.py"))
    places = {number: np.array(place) for number, *place in example["trees"]}

    def see(x, known):
        dx, dy = places[known["tree"]] - x[:2]
        value = np.stack([np.sqrt(dx**2 + dy**2), atan2(dy, dx) - x[2]])
        return value if np.iscomplexobj(x) else value.real

    steps = list(steps_of(example, "wheels", "speed", "yaw_rate", [0.1, 0.02]))
    for known in steps:
        known["Q"] = noise_along_an_arc(known, 0.02, 0.01)
    assert (example["steps"].inputs["dt"] == 0).sum() == 1 + 3 * 160
    start, covariance = np.asarray(example["data"].initial), np.diag([0.25, 0.25, 0.01])
    expected = numpy_filter(turn_and_drive, see, start, covariance, steps, [1])
    assert_same(example["beliefs"], expected)
    assert all(example["errors"][name] < 0.05 for name in ("x", "y", "heading"))
    assert capsys.readouterr().out


def test_three_clocks_of_an_imu_wheels_and_fixes_give_the_truth(capsys):
    """Rejects a delay or a lever arm with the wrong sign, each of which is 0.8 m here."""
    example = runpy.run_path(str(EXAMPLES / "log_imu_gnss.py"))
    beliefs, states = example["beliefs"], np.asarray(example["data"].states)
    errors = (np.asarray(beliefs.mean) - states)[500:, :2]
    assert np.sqrt((errors**2).sum(1).mean()) < 0.3
    np.testing.assert_allclose(beliefs.mean[-1, 5:], [0.2, -0.1, 0.02], atol=0.02)
    P = np.asarray(beliefs.covariance)[500:, :2, :2]
    nees = np.einsum("ti,tij,tj->t", errors, np.linalg.inv(P), errors).mean() / 2
    assert 0.2 < nees < 3
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["log_ranges", "log_landmarks", "log_imu_gnss"])
def test_a_log_needs_few_lines_from_files_to_beliefs(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    lines = text.partition("# From files to beliefs.")[2].strip().splitlines()
    assert len(lines) <= 25
