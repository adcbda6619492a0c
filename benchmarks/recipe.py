"""Which ingredients of the training recipe matter: each is left out, or set to another value.

    python benchmarks/recipe.py numbers --out benchmarks/results/recipe_numbers_h200.json
    python benchmarks/recipe.py floors --out ...

Trains the extended Kalman filter on the full disc task. The variants of one part are members of
one ensemble, because all they differ in is numbers; floors are compiled in, so each is an ensemble
of its own.
"""

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments.building import build_ensemble, build_stage
from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.disc import DiscModel, DiscTask
from filtrax.losses import nll
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import evaluate, tracking
from filtrax.training.objectives import StepSchedule, filtering, sensor_nll, weighted

PAPER_NLL = {0.1: 9.1, 3.0: 9.24, 9.0: 11.10}
NEVER = 1e30

RECIPE = {
    "learning_rate": 2e-3,
    "warmup_steps": 500.0,
    "decay": 1.0,
    "clip_norm": 1.0,
    "sensor_warmup": 0.2,
    "sensor_weight": 1.0,
}
NOTHING = {"warmup_steps": 1.0, "decay": 0.0, "clip_norm": NEVER, "sensor_weight": 0.0}

NUMBERS = {
    "recipe": {},
    "rate 1e-3": {"learning_rate": 1e-3},
    "rate 4e-3": {"learning_rate": 4e-3},
    "rate 8e-3": {"learning_rate": 8e-3},
    "no sensor warm-up": {"sensor_weight": 0.0},
    "sensor loss to the end": {"sensor_warmup": 2.0},
    "no rate warm-up": {"warmup_steps": 1.0},
    "no decay": {"decay": 0.0},
    "no clipping": {"clip_norm": NEVER},
    "none of these": NOTHING,
}
BASE = DiscModel()
PARTS = {
    "numbers": [(BASE, NUMBERS)],
    "floors": [
        (
            dataclasses.replace(BASE, sensor_floor=sensor, process_floor=process),
            {
                f"floors {sensor:g} and {process:g}": {},
                f"floors {sensor:g} and {process:g}, rate 4e-3": {"learning_rate": 4e-3},
                f"floors {sensor:g} and {process:g}, none of these": NOTHING,
            },
        )
        for sensor, process in ((0.5, 0.1), (0.0316, 0.0316))
    ],
}


def train(
    model: DiscModel, variants: dict, task: DiscTask, num_seeds: int, num_epochs: int
) -> list[dict]:
    """All variants of a model at once."""
    seeds = list(range(num_seeds)) * len(variants)
    numbers = {
        name: jnp.repeat(jnp.asarray([(RECIPE | v)[name] for v in variants.values()]), num_seeds)
        for name in RECIPE
    }
    experiment = Experiment(
        num_seeds=num_seeds,
        task=task,
        model=model,
        stages=(StageSettings(num_epochs=num_epochs, learning_rates=(1.0,) * len(variants)),),
    )
    warmup = StepSchedule(numbers.pop("sensor_warmup"), numbers.pop("sensor_weight"))
    stage = dataclasses.replace(
        build_stage(experiment, experiment.stages[0]),
        objective=weighted({filtering(nll): 1.0, sensor_nll: warmup}),
        **numbers,
    )
    data, validation, test = (task.data(split) for split in ("train", "validation", "test"))
    start = build_ensemble(experiment, data)
    training = Training(stage, *start, data, validation, task.perturbations(), seeds)
    ensemble, _ = training.begin()
    seconds = []
    while not training.finished(ensemble):
        began = time.perf_counter()
        ensemble, record = training.epoch(ensemble)
        seconds.append(time.perf_counter() - began)
        print(record.epoch, f"{seconds[-1]:.1f} s", record.validation["loss"].round(2), flush=True)
    best = training.best(ensemble)
    scores = evaluate(tracking(nll), *best, test, task.perturbations(), training.keys)
    distance, loss = (np.asarray(scores[name].mean((1, 2))) for name in ("distance", "loss"))
    rollbacks = np.asarray(ensemble.rollbacks)
    results = []
    for i, name in enumerate(variants):
        mine = slice(i * num_seeds, (i + 1) * num_seeds)
        results.append(
            {
                "variant": name,
                "distance": distance[mine].tolist(),
                "nll": loss[mine].tolist(),
                "rollbacks": rollbacks[mine].tolist(),
                "seconds_per_epoch": float(np.median(seconds)),
            }
        )
    return results


def count_lost(result: dict, median: float, paper_nll: float) -> int:
    """Runs that are not finite, far off, worse than the paper, or often rolled back."""
    lost = 0
    for distance, loss, rollbacks in zip(
        result["distance"], result["nll"], result["rollbacks"], strict=True
    ):
        good = math.isfinite(distance) and distance <= 1.5 * median and loss <= paper_nll
        lost += not (good and rollbacks <= 3)
    return lost


def main() -> None:
    """Trains, prints a table, writes a record."""
    parser = argparse.ArgumentParser(description="The training recipe, ingredient by ingredient.")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--position-std", type=float, default=3.0)
    parser.add_argument("--train", type=int, default=2400, help="sequences to train on")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    task = DiscTask(position_std=arguments.position_std, num_train=arguments.train)
    results = []
    for model, variants in PARTS[arguments.part]:
        results += train(model, variants, task, arguments.seeds, arguments.epochs)
        jax.clear_caches()
    median = float(np.median(results[0]["distance"]))
    for result in results:
        paper = PAPER_NLL.get(arguments.position_std, math.inf)
        result["lost"] = count_lost(result, median, paper)
        print(
            f"{result['variant']:40s} {np.mean(result['distance']):6.2f} "
            f"{np.mean(result['nll']):6.2f}  lost {result['lost']} of {arguments.seeds}"
        )
    if arguments.out:
        record = {"origin": provenance(seed=0), "epochs": arguments.epochs, "results": results}
        record["task"] = dataclasses.asdict(task)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
