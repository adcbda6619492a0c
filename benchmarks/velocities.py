"""Which velocities a sensor learns better on real images: "forward" or "aligned".

    python benchmarks/velocities.py --root DIR --out benchmarks/results/velocities.json

The velocities of a frame are the motion to the next frame ("forward", as in the paper's code), or
that from the frame before ("aligned"), which is what the difference of both images shows. All else
is alike: an extended Kalman filter on frames 0 to 2599 of drive 00, scored on the validation frames
2600 to 2999. The test frames are not looked at.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from real_kitti import CONFIGS, Printer, in_time

from filtrax.lab import config
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.evaluation import Evaluation
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.experiments.run import Run, over_windows
from filtrax.lab.files import as_json, write_text
from filtrax.lab.provenance import provenance


def compare(velocities: str, arguments: argparse.Namespace) -> dict:
    """The scores of a filter and its sensor on the validation frames with such velocities."""
    overrides = [
        f"task.root={json.dumps(arguments.root)}",
        f"task.velocities={velocities}",
        f"num_seeds={arguments.seeds}",
        *arguments.set,
    ]
    experiment = config.read(Experiment, CONFIGS / "kitti_00_ekf.toml", overrides)
    if arguments.minutes:
        seconds = 30 * arguments.minutes
        experiment = in_time(experiment, experiment.task.data("train"), seconds)
    folder = arguments.runs / f"{velocities}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = Run(experiment, RunFolder(folder), Printer())
    evaluation = Evaluation(experiment, *run.fit(resume=False), "validation")
    states = np.asarray(evaluation.data.states)[..., 3:]
    sensed = evaluation.sensed["value"] - states[None]
    record = {
        "velocities": velocities,
        "epochs": [stage.num_epochs for stage in experiment.stages],
        "sensor_rmse": np.sqrt((sensed**2).mean((1, 2))),
        "sensor_bias": sensed.mean((1, 2)),
        "metrics": [evaluation.metrics(i) for i in range(arguments.seeds)],
        "windows": over_windows(evaluation),
    }
    print(velocities, record["sensor_rmse"], record["windows"], flush=True)
    return record


def main() -> None:
    """Trains both, prints and writes."""
    parser = argparse.ArgumentParser(description="Forward against aligned velocities.")
    parser.add_argument("--root", required=True, help="folder in KITTI's layout")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, help="for both together")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/velocities"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    origin = provenance(seed=0)
    origin["command"] = origin["command"].replace(arguments.root, "DIR")
    results = [compare(velocities, arguments) for velocities in ("forward", "aligned")]
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"origin": origin, "settings": arguments.set, "results": results}
        write_text(arguments.out, as_json(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
