"""A program that trains on several devices and prints what came out, for `test_devices`.

    python many_devices.py DEVICES SEEDS [PROCESS ADDRESS]

With a process number it is one of two that train together.
"""

import json
import sys
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))
jax.config.update("jax_enable_x64", True)
if len(sys.argv) > 3:
    jax.distributed.initialize(sys.argv[4], num_processes=2, process_id=int(sys.argv[3]))

import numpy as np

import small_training
from filtrax.training.ensembles import Training


def main():
    devices, seeds = sys.argv[1], tuple(range(int(sys.argv[2])))
    stage = small_training.stage(batch_size=8)
    both = small_training.ensemble(seeds)
    trained = Training(
        stage,
        *both,
        small_training.TRAIN,
        small_training.trajectories(16, 1),
        small_training.PERTURBATIONS,
        seeds,
        devices=devices,
    )
    state, record = trained.begin()
    records = [record]
    while not trained.finished(state):
        state, record = trained.epoch(state)
        records.append(record)
    leaves = jax.tree.leaves(state.learner.parameters)
    where = {len(leaf.sharding.device_set) for leaf in leaves}
    apart = [not leaf.sharding.is_fully_replicated for leaf in leaves]
    text = trained.lower().compile().as_text()
    found = {
        "devices": jax.device_count(),
        "used": sorted(where),
        "apart": all(apart) if len(set(apart)) == 1 else None,
        "sums": text.count(" all-reduce("),
        "validation": [record.validation["loss"].tolist() for record in records],
        "losses": [record.loss.tolist() for record in records[1:]],
        "parameters": [np.asarray(leaf).tolist() for leaf in leaves],
    }
    sys.stdout.write(json.dumps(found) + "\n")


main()
