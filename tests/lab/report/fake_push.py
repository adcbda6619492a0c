"""The evaluation of a made-up run on pushes: images that show a plane in perspective.

A square slides and turns on a table, a pusher behind it. Friction is estimated and not measured.
Written by NumPy alone.
"""

import json
from pathlib import Path

import numpy as np
from report.fake_run import facts

NUM_SHOWN, NUM_SEQUENCES, NUM_STEPS, HEIGHT, WIDTH = 2, 5, 6, 48, 64
HALF_WIDTH, ARROW_LENGTH = 30.0, 20.0
NAMES = ("x", "y", "theta", "l", "rx", "ry", "nx", "ny", "s")
UNITS = ("mm", "mm", "°", "cm²", "mm", "mm", "", "", "")
MEANINGS = ("position x", "position y", "orientation θ", "pressure l", *NAMES[4:8], "contact s")
MEASURED = (0, 1, 2, 4, 5, 6, 7, 8)
PROJECTION = np.asarray([[-2.38e-2, 5.79e-2, 20.96], [2.09e-2, 0, 14.59], [-7.43e-4, 0, 0.655]])
"""Of a camera that looks down at a table whose x comes towards it, with y to the right."""
RED = (200, 30, 30)


def seen(points: np.ndarray) -> np.ndarray:
    """The pixels in which the camera shows points of the table."""
    homogeneous = np.concatenate([points, np.ones((*points.shape[:-1], 1))], -1) @ PROJECTION.T
    return homogeneous[..., :2] / homogeneous[..., 2:]


def outlines(states: np.ndarray) -> np.ndarray:
    """The corners of the square."""
    corners = HALF_WIDTH * np.asarray([[1, 1], [-1, 1], [-1, -1], [1, -1]], float)
    angles = np.radians(states[..., 2])
    turns = np.moveaxis(
        np.asarray([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]),
        (0, 1),
        (-2, -1),
    )
    return states[..., None, :2] + corners @ np.swapaxes(turns, -1, -2)


def arrows(states: np.ndarray) -> np.ndarray:
    """One from each contact point along the normal."""
    points = states[..., 4:6]
    return np.stack([points, points + ARROW_LENGTH * states[..., 6:8]], axis=-2)[..., None, :, :]


def evaluation(seed: int = 0) -> dict[str, np.ndarray]:
    """All arrays of `evaluation.npz`; the truth and the images are the same for all seeds."""
    scene, filtering = np.random.default_rng(5), np.random.default_rng(seed)
    shape = (NUM_SHOWN, NUM_STEPS)
    starts = scene.uniform([-20, -60, 0], [20, -40, 30], (NUM_SHOWN, 3))
    poses = starts[:, None] + np.arange(NUM_STEPS)[None, :, None] * np.asarray([4.0, 15.0, 5.0])
    touches = np.arange(NUM_STEPS) >= 2
    pushers = poses[..., :2] - [0, HALF_WIDTH + 8]
    normals = np.broadcast_to(touches[:, None] * [[0.0, 1.0]], (*shape, 2))
    numbers = [np.full((*shape, 1), 12.0), pushers, normals]
    states = np.concatenate(
        [poses, *numbers, np.broadcast_to(touches[:, None], (*shape, 1))], axis=-1
    )
    stds = np.asarray([3.0, 3.0, 4.0, 1.0, 2.0, 2.0, 0.1, 0.1, 0.1])
    errors = filtering.normal(size=states.shape) * stds
    means = states - errors
    covariances = np.broadcast_to(np.diag(stds**2), (*shape, 9, 9))
    measured = np.ix_(MEASURED, MEASURED)
    chances = filtering.uniform(0.05, 0.95, shape)
    return {
        "names": np.asarray(NAMES),
        "units": np.asarray(UNITS),
        "meanings": np.asarray(MEANINGS),
        "states": states,
        "means": means,
        "errors": errors,
        "covariances": covariances,
        "frames": np.stack([[picture(state) for state in states_] for states_ in states]),
        "projection": PROJECTION,
        "true_outlines": outlines(states),
        "outlines": outlines(means),
        "true_arrows": arrows(states),
        "arrows": arrows(means),
        "companion_names": np.asarray(["pusher"]),
        "companions": pushers[..., None, :],
        "mode_chances": np.stack([chances, 1 - chances], axis=-1),
        "measurements": (states + filtering.normal(size=states.shape) * stds)[..., MEASURED],
        "measurement_covariances": covariances[(..., *measured)],
        "measured_components": np.asarray(MEASURED),
        "visible": scene.integers(0, 400, shape),
        "all_visible": scene.integers(0, 400, (NUM_SEQUENCES, NUM_STEPS)),
        "all_sensor_std": filtering.uniform(1, 2, (NUM_SEQUENCES, NUM_STEPS, len(MEASURED))),
        "process_std": np.ones((*shape, 9)),
        "translation": filtering.uniform(3, 5, NUM_SEQUENCES),
        "rotation": filtering.uniform(8, 12, NUM_SEQUENCES),
    }


def picture(state: np.ndarray) -> np.ndarray:
    """A red square on a gray table: pixels whose middles are on the right side of all edges."""
    corners = seen(outlines(state))
    edges = np.roll(corners, -1, 0) - corners
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    offsets = np.stack([columns, rows], -1)[:, :, None] - corners
    inside = (edges[:, 0] * offsets[..., 1] - edges[:, 1] * offsets[..., 0] < 0).all(-1)
    return np.where(inside[..., None], np.asarray(RED), 90).astype(np.uint8)


def write_push_run(folder: Path, seed: int = 0) -> Path:
    """Writes a finished run of one member."""
    folder.mkdir(parents=True)
    arrays = evaluation(seed)
    means = {name: float(arrays[name].mean()) for name in ("translation", "rotation")}
    means = {"distance": 14.0, "nll": 30.0} | means
    result = {
        "filter": "ekf",
        "members": [{"seed": seed, "rollbacks": 0, "metrics": means}],
        "mean": means,
        "standard_error": dict.fromkeys(means),
    }
    (folder / "config.toml").write_text('[task]\nkind = "pushing"\n')
    (folder / "run.json").write_text(json.dumps(facts(seed)))
    (folder / "result.json").write_text(json.dumps(result))
    np.savez(folder / "evaluation.npz", **arrays)
    return folder
