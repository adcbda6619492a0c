"""The evaluation of a made-up run on drives: images from a car that do not show where it is.

Speed and heading rate are measured; the position follows from them. Written by NumPy alone.
"""

import json
from pathlib import Path

import numpy as np
from report.fake_run import facts

NUM_SHOWN, NUM_SEQUENCES, NUM_STEPS, HEIGHT, WIDTH = 2, 5, 8, 4, 12


def evaluation(seed: int = 0) -> dict[str, np.ndarray]:
    """All arrays of `evaluation.npz`; the truth and the images are the same for all seeds."""
    scene, filtering = np.random.default_rng(7), np.random.default_rng(seed)
    shape = (NUM_SHOWN, NUM_STEPS)
    speed, rate = scene.uniform(8, 12, shape), scene.uniform(-30, 30, shape)
    heading = 170 + np.cumsum(0.1 * rate, 1)
    headings = np.radians(heading)
    x, y = np.cumsum(speed * np.cos(headings), 1), 50 + np.cumsum(speed * np.sin(headings), 1)
    states = np.stack([x, y, (heading + 180) % 360 - 180, speed, rate], -1)
    drift = np.arange(1, NUM_STEPS + 1)[None, :, None] / NUM_STEPS
    errors = drift * filtering.normal(size=(NUM_SHOWN, 1, 5)) * [6, 6, 20, 1, 3]
    means = states - errors
    means[..., 2] = (means[..., 2] + 180) % 360 - 180
    stds = np.asarray([3.0, 2.0, 8.0, 1.0, 4.0])
    particles = means[:, :, None] + filtering.normal(size=(*shape, 6, 5)) * stds
    values = states[..., 3:] + filtering.normal(size=(*shape, 2))
    return {
        "names": np.asarray(["x", "y", "heading", "speed", "rate"]),
        "units": np.asarray(["m", "m", "°", "m/s", "°/s"]),
        "states": states,
        "means": means,
        "errors": errors,
        "covariances": np.broadcast_to(np.diag(stds**2), (*shape, 5, 5)),
        "frames": np.repeat(scene.integers(0, 256, (*shape, HEIGHT, WIDTH, 1), np.uint8), 3, -1),
        "particles": particles,
        "log_weights": np.zeros(particles.shape[:3]),
        "measurements": values,
        "measurement_covariances": np.broadcast_to(np.diag([4.0, 9.0]), (*shape, 2, 2)),
        "measured_components": np.asarray([3, 4]),
        "all_sensor_std": np.ones((NUM_SEQUENCES, NUM_STEPS, 2)),
        "process_std": np.ones((*shape, 5)),
        "nees": filtering.chisquare(5, (NUM_SEQUENCES, NUM_STEPS)),
        "degrees": np.asarray(5),
        "translation_error": filtering.uniform(0.1, 0.3, NUM_SEQUENCES),
        "rotation_error": filtering.uniform(0.1, 0.3, NUM_SEQUENCES),
    }


def write_drive_run(folder: Path, seed: int = 0) -> Path:
    """Writes a finished run of one member."""
    folder.mkdir(parents=True)
    arrays = evaluation(seed)
    means = {name: float(arrays[name].mean()) for name in ("translation_error", "rotation_error")}
    means = {"distance": 40.0, "nll": 12.0} | means
    result = {
        "filter": "ekf",
        "members": [{"seed": seed, "rollbacks": 0, "metrics": means}],
        "mean": means,
        "standard_error": dict.fromkeys(means),
    }
    (folder / "config.toml").write_text('[task]\nkind = "kitti"\n')
    (folder / "run.json").write_text(json.dumps(facts(seed)))
    (folder / "result.json").write_text(json.dumps(result))
    np.savez(folder / "evaluation.npz", **arrays)
    return folder
