"""A run folder with made-up numbers that hang together, written by NumPy alone.

Discs swing about the middle of an image; a Kalman filter that knows their motion tracks one of
them from positions whose noise depends on how much of the disc can be seen.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

COLOURS = np.asarray(
    [(0, 255, 0), (0, 0, 255), (0, 255, 255), (255, 0, 255), (255, 255, 0), (255, 255, 255)]
)
MOTION = np.asarray([[1, 0, 1, 0], [0, 1, 0, 1], [-0.05, 0, 0.9, 0], [0, -0.05, 0, 0.9]], float)
PROCESS_STD = np.asarray([3.0, 3.0, 2.0, 2.0])
LEVELS = np.asarray([0.1, 0.25, 0.5, 0.75, 0.9])
HALF_WIDTHS = np.asarray([0.1257, 0.3186, 0.6745, 1.1503, 1.6449])
"""Of the central intervals of a standard normal distribution that hold so much."""


@dataclass(frozen=True)
class Sizes:
    """How much is in the run."""

    shown: int = 2
    sequences: int = 12
    steps: int = 6
    image: int = 24
    distractors: int = 4
    members: int = 3
    particles: int = 20
    epochs: int = 4


SMALL = Sizes()


def write_run(folder: Path, sizes: Sizes = SMALL, *, seed: int = 0, finished: bool = True) -> Path:
    """Writes a run folder; an unfinished one has neither result nor evaluation."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    (folder / "config.toml").write_text(
        f'name = "{folder.name}"\nseed = {seed}\n\n[filter]\nkind = "ekf"\n\n'
        '[task]\nkind = "disc"\nnum_distractors = 30\nnote = "a < b && c > d </script>"\n'
    )
    (folder / "run.json").write_text(json.dumps(facts(seed)))
    lines = [json.dumps(epoch) for epoch in epochs(sizes, random)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if finished:
        arrays = evaluation(sizes, seed)
        (folder / "result.json").write_text(json.dumps(result(folder.name, sizes, arrays, random)))
        np.savez(folder / "evaluation.npz", **arrays)
    return folder


def facts(seed: int) -> dict:
    return {
        "filtrax": "0.1.0",
        "python": "3.11.9",
        "packages": {"jax": "0.10.0", "equinox": "0.13.0", "optax": "0.2.5", "numpy": "2.1.0"},
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "seed": seed,
        "command": "filtrax train disc.toml",
        "started": "2025-01-01T12:00:00+00:00",
    }


def epochs(sizes: Sizes, random: np.random.Generator) -> list[dict]:
    return [
        epoch(stage, number, floor + random.normal(0, 0.1, sizes.members))
        for stage, floor in (("pretrain sensor", 3.0), ("end to end", 7.0))
        for number in range(sizes.epochs + 1)
    ]


def epoch(stage: str, number: int, floors: np.ndarray) -> dict:
    losses = floors + 40 * 0.6**number
    members = [
        {
            "seed": i,
            "learning_rate": 0.002,
            "loss": None if number == 0 else loss + 0.1,
            "gradient_norm": None if number == 0 else 1.5,
            "validation": {"loss": loss, "distance": loss - 2.5},
            "best": loss,
            "rollbacks": 0,
        }
        for i, loss in enumerate(losses.tolist())
    ]
    return {
        "stage": stage,
        "epoch": number,
        "step": 75 * number,
        "seconds": 1.5 * number,
        "members": members,
    }


def result(name: str, sizes: Sizes, arrays: dict, random: np.random.Generator) -> dict:
    errors = arrays["states"] - arrays["means"]
    typical = {
        "distance": float(np.linalg.norm(errors, axis=-1).mean()),
        "nll": 8.1,
        "sensor_error": 6.2,
        "noise_correlation": -0.78,
        "process_noise_distance": 0.012,
        "nees": float(arrays["nees"].mean()),
        "coverage_90": 0.893,
    }
    spread = 1 + 0.02 * random.normal(size=sizes.members)
    members = [
        {
            "seed": i,
            "learning_rate": 0.002,
            "rollbacks": i % 2,
            "best_epoch": sizes.epochs,
            "validation": {"loss": 8.0, "distance": 5.0},
            "metrics": {metric: value * factor for metric, value in typical.items()},
        }
        for i, factor in enumerate(spread.tolist())
    ]
    values = {metric: [m["metrics"][metric] for m in members] for metric in typical}
    error = {m: float(np.std(v, ddof=1) / len(v) ** 0.5) for m, v in values.items()}
    return {
        "name": name,
        "task": {"kind": "disc"},
        "filter": "ekf",
        "split": "test",
        "num_sequences": sizes.sequences,
        "perturbations": 5,
        "members": members,
        "mean": {metric: float(np.mean(v)) for metric, v in values.items()},
        "standard_error": error if sizes.members > 1 else dict.fromkeys(typical),
    }


def evaluation(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """All arrays of `evaluation.npz`; the images and the truth are the same for all seeds."""
    scene, filtering = np.random.default_rng(123), np.random.default_rng(seed)
    states = motion(scene, sizes.sequences, sizes)
    frames, shown_visible = images(scene, states[: sizes.shown], sizes)
    visible = scene.choice(shown_visible.ravel(), (sizes.sequences, sizes.steps))
    visible[: sizes.shown] = shown_visible
    hidden = 1 - visible / max(visible.max(), 1)
    stds = (1 + 20 * hidden[..., None] ** 2) * filtering.uniform(0.8, 1.2, (*visible.shape, 2))
    values = states[..., :2] + stds * filtering.normal(size=stds.shape)
    means, covariances = kalman_filter(states, values, stds)
    errors = states - means
    nees = np.einsum("nti,nti->nt", errors, np.linalg.solve(covariances, errors[..., None])[..., 0])
    deviations = np.abs(errors) / np.sqrt(np.diagonal(covariances, axis1=2, axis2=3))
    n = sizes.shown
    factors = np.linalg.cholesky(covariances[:n, :, None])
    offsets = filtering.normal(size=(n, sizes.steps, sizes.particles, 4, 1))
    swing = np.abs(states[:n, :, :1]) < sizes.image / 4
    true_stds = PROCESS_STD * np.where(swing, 1.0, [1.0, 1.0, 0.3, 0.3])
    return {
        "names": np.asarray(["x", "y", "vx", "vy"]),
        "units": np.asarray(["px", "px", "px/step", "px/step"]),
        "states": states[:n],
        "means": means[:n],
        "covariances": covariances[:n],
        "frames": frames,
        "view_matrix": np.eye(2, 4),
        "view_offset": np.full(2, sizes.image / 2),
        "particles": means[:n, :, None] + (factors @ offsets)[..., 0],
        "log_weights": filtering.normal(size=(n, sizes.steps, sizes.particles)),
        "measurements": values[:n],
        "measurement_covariances": stds[:n, :, :, None] ** 2 * np.eye(2),
        "visible": visible[:n],
        "all_visible": visible,
        "all_sensor_std": stds,
        "process_std": true_stds * filtering.uniform(0.8, 1.3, true_stds.shape),
        "true_process_std": true_stds,
        "nees": nees,
        "degrees": np.asarray(4),
        "coverage_levels": LEVELS,
        "coverage": (deviations[None] <= HALF_WIDTHS[:, None, None, None]).mean((1, 2)),
    }


def motion(random: np.random.Generator, count: int, sizes: Sizes) -> Float[np.ndarray, "n t 4"]:
    small = sizes.image / 120
    state = random.uniform(-60, 60, (count, 4)) * small * [1, 1, 0.1, 0.1]
    states = []
    for _ in range(sizes.steps):
        state = state @ MOTION.T + random.normal(size=state.shape) * PROCESS_STD * small
        states.append(state)
    return np.stack(states, 1)


def images(
    random: np.random.Generator, states: np.ndarray, sizes: Sizes
) -> tuple[UInt8[np.ndarray, "n t h w 3"], np.ndarray]:
    """Frames of the tracked disc under distractors, and how many of its pixels are seen."""
    count, size = len(states), sizes.image
    frames = np.zeros((count, sizes.steps, size, size, 3), np.uint8)
    rows, columns = np.mgrid[:size, :size] - size / 2 + 0.5

    def draw(places, radius, colour):
        x, y = np.moveaxis(places[..., :2, None, None], 2, 0)
        frames[(columns - x) ** 2 + (rows - y) ** 2 <= radius**2] = colour

    draw(states, 7 * size / 120, (255, 0, 0))
    for _ in range(sizes.distractors):
        radius = random.integers(3, 10) * size / 120
        draw(motion(random, count, sizes), radius, COLOURS[random.integers(len(COLOURS))])
    return frames, (frames == (255, 0, 0)).all(-1).sum((2, 3))


def kalman_filter(
    states: np.ndarray, values: np.ndarray, stds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    count, steps, size = states.shape
    mean, covariance = states[:, 0], np.broadcast_to(25 * np.eye(size), (count, size, size))
    means, covariances = [], []
    for t in range(steps):
        mean = mean @ MOTION.T
        covariance = MOTION @ covariance @ MOTION.T + np.diag(PROCESS_STD**2)
        noise = stds[:, t, :, None] ** 2 * np.eye(2)
        gain = covariance[:, :, :2] @ np.linalg.inv(covariance[:, :2, :2] + noise)
        mean = mean + (gain @ (values[:, t] - mean[:, :2])[..., None])[..., 0]
        covariance = covariance - gain @ covariance[:, :2, :]
        covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
        means.append(mean)
        covariances.append(covariance)
    return np.stack(means, 1), np.stack(covariances, 1)
