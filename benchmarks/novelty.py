"""The warning of readings unlike the training data: how good it is, and what heeding it changes.

    python benchmarks/novelty.py benchmarks/results/novelty_h200.json --poses DIR
    python benchmarks/novelty.py FILE.json --small

Trains an extended Kalman filter on generated streets, without the highway, and fits a detector to
its training data. Ordinary drives that it has not seen, along other streets, are compared with the
highway, and with themselves behind a noisy, blurred or covered lens. `--run RUN` takes a trained
run. With `--small` all is so little that a CPU needs a few minutes.
"""

import argparse
import dataclasses
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments.evaluation import select
from filtrax.lab.experiments.run import open_run, train
from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.kitti import Fold, KittiTask
from filtrax.lab.tasks.kitti.corruptions import add_noise, blacken, blur
from filtrax.lab.tasks.kitti.statistics import describe_frames, frame_statistics
from filtrax.lab.tasks.kitti.streets.collection import HIGHWAY
from filtrax.losses import nll
from filtrax.novelty import auroc, fit_novelty, novelty_of
from filtrax.training.evaluation import evaluate, tracking
from filtrax.trajectory import Trajectory

ORDINARY = ("00", "05", "07")
"""The drives along other streets that are compared with the highway."""

CORRUPTIONS = {
    "noise of 20": lambda frames: add_noise(frames, 20.0),
    "noise of 40": lambda frames: add_noise(frames, 40.0),
    "blur of 1 pixel": lambda frames: blur(frames, 1.0),
    "blur of 2 pixels": lambda frames: blur(frames, 2.0),
    "black": blacken,
}
CORRUPTED_PART = 4
"""One of so many windows is shown behind a bad lens, too."""

DETECTORS = {
    "features": None,
    "features and statistics": frame_statistics,
    "features, statistics and distance": describe_frames,
}
HEEDED = "features, statistics and distance"
GUARDS = {
    "unguarded": {"power": 0.0},
    "power 1": {"power": 1.0},
    "power 2": {"power": 2.0},
    "power 4": {"power": 4.0},
    "unobserved": {"power": 0.0, "limit": 1.0},
}


def small_experiment() -> Experiment:
    """Few and small images, and few epochs."""
    task = KittiTask(
        split=Fold(HIGHWAY),
        cameras=("image_2",),
        image_size=(20, 60),
        num_frames=300,
        num_steps=24,
        windows_per_variant=8,
        test_stride=24,
    )
    stage = StageSettings(num_epochs=8, length=8, frames_per_batch=128, warmup_steps=50)
    return Experiment(name="novelty_small", task=task, stages=(stage,))


def trained_run(arguments: argparse.Namespace) -> Path:
    """The folder of a run: the one that is given, or a new one."""
    if arguments.run:
        return arguments.run
    folder = Path(tempfile.mkdtemp(prefix="filtrax-novelty-")) / "run"
    if arguments.small:
        experiment = small_experiment()
    else:
        task = KittiTask(split=Fold(HIGHWAY), poses=arguments.poses)
        stage = StageSettings(num_epochs=arguments.epochs)
        experiment = Experiment(
            name="novelty", task=task, num_seeds=arguments.seeds, stages=(stage,)
        )
    train(experiment, folder)
    return folder


def ordinary_drives(task: KittiTask) -> Trajectory:
    """Windows of drives that no part of the model has seen: other streets, another light."""
    other = dataclasses.replace(task, seed=task.seed + 1)
    sets = [dataclasses.replace(other, split=Fold(name)).data("test") for name in ORDINARY]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *sets)


def corrupted(data: Trajectory, corrupt: Any) -> Trajectory:
    """Some windows of the same drives with other images."""
    data = jax.tree.map(lambda leaf: leaf[::CORRUPTED_PART], data)
    frames = corrupt(np.asarray(data.context["frames"]))
    return dataclasses.replace(data, context=data.context | {"frames": frames})


def warnings(model: Any, sets: dict[str, Trajectory], key: Any) -> dict[str, Any]:
    """AUROC of all sets against the ordinary drives, and the share of alarms on each."""
    scores = {name: novelty_of(model, data, key=key) for name, data in sets.items()}
    found = {}
    for name, values in scores.items():
        found[name] = {
            "alarms": float((values > 1).mean()),
            "median_score": float(np.median(values)),
        }
        if name not in ("validation", "ordinary"):
            found[name]["auroc"] = auroc(scores["ordinary"], values)
    return found


def tracked(filt: Any, model: Any, task: KittiTask, sets: dict[str, Trajectory]) -> dict[str, Any]:
    """NLL and distance of one member, for each way to heed the warning.

    Means are over runs whose numbers are finite; the share of the others stands beside them.
    """
    found: dict[str, Any] = {}
    for guard, settings in GUARDS.items():
        sensor = dataclasses.replace(model.sensor, **({"limit": math.inf} | settings))
        filts, models = as_ensemble((filt, dataclasses.replace(model, sensor=sensor)))
        keys = jnp.stack([jr.key(1)])
        for name, data in sets.items():
            scores = evaluate(tracking(nll), filts, models, data, task.perturbations(), keys)
            finite = np.isfinite(scores["loss"]) & np.isfinite(scores["distance"])
            found.setdefault(name, {})[guard] = {
                "nll": float(scores["loss"][finite].mean()),
                "distance": float(scores["distance"][finite].mean()),
                "not_finite": float(1 - finite.mean()),
            }
    return found


def as_ensemble(both: Any) -> Any:
    """An ensemble of one."""
    return jax.tree.map(lambda leaf: leaf[None] if isinstance(leaf, jax.Array) else leaf, both)


def measure(folder: Path) -> dict[str, Any]:
    """All numbers of all members of a run."""
    run = open_run(folder)
    task, ensemble = run.experiment.task, run.trained()
    if not isinstance(task, KittiTask) or task.root:
        raise SystemExit("The run must be one of the KITTI task on generated streets.")
    train_set, validation, highway = (task.data(split) for split in ("train", "validation", "test"))
    ordinary = ordinary_drives(task)
    sets = {"validation": validation, "ordinary": ordinary, "highway": highway}
    sets |= {name: corrupted(ordinary, corrupt) for name, corrupt in CORRUPTIONS.items()}
    key, members = jr.key(0), []
    for number in range(run.experiment.num_seeds):
        filt, model = select(ensemble, number)
        guarded = {
            name: fit_novelty(model, train_set, validation, describe=describe, key=key)
            for name, describe in DETECTORS.items()
        }
        found = {name: warnings(one, sets, key) for name, one in guarded.items()}
        tests = {name: sets[name] for name in sets if name != "validation"}
        member = {"warnings": found, "tracking": tracked(filt, guarded[HEEDED], task, tests)}
        members.append(member)
        show(member)
    counts = {name: int(data.initial.shape[0]) for name, data in sets.items()}
    return {"task": dataclasses.asdict(task), "windows": counts, "members": members}


def show(member: dict[str, Any]) -> None:
    """Prints the numbers of one member."""
    for detector, sets in member["warnings"].items():
        print(detector)
        for name, row in sets.items():
            area = f"AUROC {row['auroc']:.3f}" if "auroc" in row else ""
            print(f"  {name:18s} alarms {row['alarms']:.3f}  {area}")
    for name, guards in member["tracking"].items():
        shown = [
            f"{guard} {row['nll']:.2f} ({row['distance']:.2f})"
            + f" without {row['not_finite']:.1%}" * (row["not_finite"] > 0)
            for guard, row in guards.items()
        ]
        print(f"NLL (distance) on {name}: " + ", ".join(shown), flush=True)


def main() -> None:
    """Trains, measures, prints, writes a record."""
    parser = argparse.ArgumentParser(
        description="The warning of readings unlike the training data."
    )
    parser.add_argument("file", type=Path, help="the record that is written")
    parser.add_argument("--small", action="store_true", help="for a CPU and a few minutes")
    parser.add_argument("--run", type=Path, help="a trained run, whose test is the highway")
    parser.add_argument("--poses", default="", help="pose files that the streets follow")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    origin = provenance(seed=0)
    record = {"origin": origin} | measure(trained_run(arguments))
    arguments.file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
