"""How the time of an epoch grows with members and data sets, and what convolutions take of it.

    python benchmarks/ensembles.py FILE [--small]

Writes a record. A case is the dEKF of the benchmark: members on one data set or on several, each
with its first convolution shared by the members of a data set. Times are medians over epochs after
the first two, which compile. `--small` is for trying the script out.
"""

import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path

import jax
import jax.random as jr
from jaxtyping import Array

from filtrax import networks
from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments.building import build_ensemble, build_stages, join
from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.disc import DiscTask
from filtrax.training import Training

CASES = ((1, 1), (1, 2), (1, 5), (1, 8), (1, 30), (4, 2))
"""Data sets, and members on each."""

FORMS = {"plain": networks._plain_convolution, "in blocks": networks.convolve}
REPEATS = 5


def epoch_seconds(task: DiscTask, stage: StageSettings, num_sets: int, num_members: int) -> float:
    """The time of an epoch of an ensemble, validation included."""
    tasks = [dataclasses.replace(task, seed=seed) for seed in range(num_sets)]
    experiments = [Experiment(num_seeds=num_members, task=t, stages=(stage,)) for t in tasks]
    data = [t.data("train") for t in tasks]
    filt, model = join([build_ensemble(e, d) for e, d in zip(experiments, data, strict=True)])
    validation = [t.data("validation") for t in tasks]
    seeds = [seed for _ in tasks for seed in range(num_members)]
    training = Training(
        build_stages(experiments, 0), filt, model, data, validation, task.perturbations(), seeds
    )
    ensemble, _ = training.begin()
    times = []
    for _ in range(2 + REPEATS):
        began = time.perf_counter()
        ensemble, _ = training.epoch(ensemble)
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def layer_seconds(form: str, layer: int, num_sets: int, num_members: int, small: bool) -> float:
    """The time of value and gradient of one layer of the paper's network for a batch."""
    size, depth, outputs = ((120, 3, 4), (28, 4, 8))[layer]
    count = 4 if small else 320
    keys = jr.split(jr.key(0))
    # The first layer sees the same images in all members, later ones see their own.
    own = () if layer == 0 else (num_members,)
    images = jr.uniform(keys[0], (num_sets, *own, count, size, size, depth))
    kernels = jr.normal(keys[1], (num_sets, num_members, 9, 9, depth, outputs))

    def member(kernel: Array, images: Array) -> Array:
        output = jax.vmap(lambda image: FORMS[form](image, kernel, 2))(images)
        return (output**2).sum()

    on_set = jax.vmap(member, (0, None if layer == 0 else 0))
    total = lambda kernels, images: jax.vmap(on_set)(kernels, images).sum()  # noqa: E731
    both = jax.jit(jax.grad(total, (0, 1) if layer else 0))
    jax.block_until_ready(both(kernels, images))
    times = []
    for _ in range(4 * REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(both(kernels, images))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Measures everything and writes the record."""
    small = "--small" in sys.argv
    task, stage = DiscTask(), StageSettings()
    if small:
        task = DiscTask(image_size=42, num_train=4, num_validation=2, num_test=2)
        stage = StageSettings(num_epochs=10, frames_per_batch=40)
    cases = ((1, 1), (2, 1)) if small else CASES
    layers = [(layer, *case) for layer in (0, 1) for case in ((1, 2), (1, 8), (4, 2))]
    record = {
        "origin": provenance(seed=0),
        "epochs": [
            {"data_sets": d, "members_of_each": m, "seconds": epoch_seconds(task, stage, d, m)}
            for d, m in cases
        ],
        "layers": [
            {
                "form": form,
                "layer": layer + 1,
                "data_sets": d,
                "members_of_each": m,
                "seconds": layer_seconds(form, layer, d, m, small),
            }
            for layer, d, m in (layers[:1] if small else layers)
            for form in FORMS
        ],
    }
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
