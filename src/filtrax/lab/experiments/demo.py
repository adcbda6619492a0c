"""A small experiment that compares learned with constant noise."""

import dataclasses
from pathlib import Path
from typing import Any

from filtrax.lab.config import load
from filtrax.lab.config.settings import Experiment, StageSettings, StartSettings
from filtrax.lab.experiments.ensembles import Watch
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.experiments.run import train
from filtrax.lab.files import RecordError
from filtrax.lab.tasks.disc import DiscModel, DiscTask

TASK = DiscTask(num_distractors=20, image_size=60, num_train=480, num_validation=48, num_test=100)
LEARNED = Experiment(
    name="learned noise",
    task=TASK,
    stages=(
        # Pretrain the sensor: in so short a training, the filter depends on a good start.
        StageSettings(
            name="sensor",
            objective="sensor",
            train=("model.sensor",),
            num_epochs=4,
            frames_per_batch=160,
            warmup_steps=50,
            perturbed=False,
        ),
        StageSettings(num_epochs=9, frames_per_batch=160, warmup_steps=100),
    ),
)
CONSTANT = Experiment(
    name="constant noise",
    task=TASK,
    model=DiscModel(
        process_noise="constant",
        sensor_noise="constant",
        covariance="full",
        process_std=3.0,
        sensor_std=15.0,
    ),
    stages=(
        StageSettings(
            name="fit constant Q and R",
            train=("model.sensor.noise", "model.process_noise"),
            num_epochs=10,
            length=TASK.num_steps,  # as in tests, to give the baseline its best result
            frames_per_batch=400,
            learning_rates=(5e-2,),
            warmup_steps=20,
            sensor_weight=0.0,
        ),
    ),
)
KEPT = ("model.sensor.encoder", "model.sensor.head", "model.process")
"""The parts that the second run copies from the first: everything but the noise."""


def run(folder: Path, watch: Watch, *, seed: int = 0) -> dict[str, Any]:
    """Trains a filter with learned noise that depends on images, and one with constant noise.

    Both have the same trained sensor and process. The constant Q and R are fitted on the training
    split with the same loss.
    """
    folders = {"learned": folder / "learned_noise", "constant": folder / "constant_noise"}
    for path, experiment in zip(folders.values(), (LEARNED, CONSTANT), strict=True):
        _clear(RunFolder(path), experiment.name)
    task = dataclasses.replace(TASK, seed=seed)
    learned = dataclasses.replace(LEARNED, seed=seed, task=task)
    start = StartSettings(run=str(folders["learned"]), parts=KEPT)
    constant = dataclasses.replace(CONSTANT, seed=seed, task=task, start=start)
    results = {
        "learned": train(learned, folders["learned"], watch),
        "constant": train(constant, folders["constant"], watch),
    }
    means = {name: result["mean"] for name, result in results.items()}
    shorter = 1 - means["learned"]["distance"] / means["constant"]["distance"]
    gained = means["constant"]["nll"] - means["learned"]["nll"]
    return {
        "comparison": [
            {"name": f"{name} noise", "distance": mean["distance"], "nll": mean["nll"]}
            for name, mean in means.items()
        ],
        "summary": (
            f"Noise that depends on what is seen makes the mean distance {shorter:.0%} shorter "
            f"and the log density of the truth {gained:.2f} nats higher, on {TASK.num_test} "
            "sequences that were not trained on."
        ),
        "runs": list(folders.values()),
    }


def _clear(folder: RunFolder, name: str) -> None:
    """Removes an earlier demo from a folder, but no other run."""
    if folder.config.is_file() and load(folder.config).get("name") != name:
        raise RecordError(
            f"{folder.path} holds another run, which the demo does not replace: choose another "
            "folder with --out."
        )
    folder.clear()
