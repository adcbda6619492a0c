"""Filters on the real gray images of KITTI's drive 00, and what learns nothing beside them.

    python benchmarks/real_kitti.py --root DIR --seeds 5 --minutes 20 --out studies/kloss2021/real
    python benchmarks/real_kitti.py --root DIR --configs ekf --set model.sensor=paper --out ...

Each configuration of configs/kitti_00_*.toml is trained with several seeds at once and scored on
the validation frames. The number of epochs is lowered where the minutes, which all configurations
share equally, would not be enough; schedules end with them. The test frames are scored with --test
alone, and each such use is added to test_uses.jsonl: they are for one look at the end, and nothing
may be chosen by them.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from filtrax.lab import config
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.building import build_ensemble, build_stages
from filtrax.lab.experiments.evaluation import Evaluation
from filtrax.lab.experiments.records import RunFolder
from filtrax.lab.experiments.run import Run, over_windows
from filtrax.lab.files import as_json, write_text
from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.kitti import KittiTask, baselines
from filtrax.training.ensembles import Training

CONFIGS = Path(__file__).parents[1] / "configs"
NAMES = ("ekf", "ukf", "pf_m_lrn", "lstm", "flow_ekf", "flow_ukf", "flow_pf_m_lrn", "flow_lstm")
WITHOUT_LEARNING = "baselines"
RESERVE = 0.75
"""The part of the minutes that epochs may take; the rest is for compiling and scoring."""


class Printer:
    """A watch that prints a line for each epoch."""

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        """Names the stage."""
        print(f"{stage}: {num_epochs} epochs of {num_steps_per_epoch} steps", flush=True)

    def step(self, done: int) -> None:
        """Says nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Training and validation loss of each member."""
        members = record["members"]
        numbers = " ".join(f"{m['loss']:.2f}/{m['validation']['loss']:.2f}" for m in members)
        print(f"  {record['epoch']:3d} {record['seconds']:7.1f} s  {numbers}", flush=True)

    def message(self, text: str) -> None:
        """Says it."""
        print(text, flush=True)


def in_time(experiment: Experiment, data: Any, seconds: float) -> Experiment:
    """The experiment with as many epochs as fit into the time, in the same proportions."""
    state = build_ensemble(experiment, data)
    validation, perturbations = experiment.task.data("validation"), experiment.task.perturbations()
    seeds = [seed for seed, _ in experiment.members]
    began, costs = time.perf_counter(), []
    for index in range(len(experiment.stages)):
        stage = build_stages([experiment], index)
        training = Training(stage, *state, data, validation, perturbations, seeds)
        ensemble, _ = training.begin()
        ensemble, _ = training.epoch(ensemble)  # compiles
        start = time.perf_counter()
        jax.block_until_ready(training.epoch(ensemble)[0])
        costs.append(time.perf_counter() - start)
    left = RESERVE * (seconds - (time.perf_counter() - began))
    wanted = sum(
        cost * stage.num_epochs for cost, stage in zip(costs, experiment.stages, strict=True)
    )
    part = min(1.0, max(left, 0.0) / wanted)
    print(f"epochs of {[round(c, 2) for c in costs]} s; {100 * part:.0f} % of them", flush=True)
    stages = tuple(
        dataclasses.replace(stage, num_epochs=max(1, int(part * stage.num_epochs)))
        for stage in experiment.stages
    )
    return dataclasses.replace(experiment, stages=stages)


def train(experiment: Experiment, folder: Path, seconds: float | None, *, test: bool) -> dict:
    """Trains and scores one configuration; the folder is one of a run."""
    began = time.perf_counter()
    if seconds is not None:
        experiment = in_time(experiment, experiment.task.data("train"), seconds)
    run = Run(experiment, RunFolder(folder), Printer())
    filt, model = run.fit(resume=False)
    record = {"config": config.as_dict(experiment), "seconds": None, "scores": {}}
    record["config"]["task"]["root"] = ""  # of this machine
    for split in ("validation", "test")[: 1 + test]:
        evaluation = Evaluation(experiment, filt, model, split)
        result = run.result(evaluation, split)
        kept = {name: result[name] for name in ("num_sequences", "members", "mean")}
        kept["standard_error_over_seeds"] = result["standard_error"]
        record["scores"][split] = kept | {"windows": over_windows(evaluation)}
    record["seconds"] = round(time.perf_counter() - began, 1)
    return record


def score_baselines(experiment: Experiment, *, test: bool) -> dict:
    """Rows of what learns nothing, on the same windows."""
    task = experiment.task
    assert isinstance(task, KittiTask)
    train, rows = task.data("train"), {}
    assert train.states is not None
    speed = float(np.asarray(train.states)[..., 3].mean())
    for split in ("validation", "test")[: 1 + test]:
        data, windows = task.data(split), task.windows(split)
        methods = {
            "constant velocity": baselines.constant_velocity(data),
            "mean speed, straight on": baselines.mean_speed(data, speed),
            "optical flow": baselines.optical_flow(windows, task.num_steps),
        }
        rows[split] = {name: _summary(baselines.scores(data, v)) for name, v in methods.items()}
    return {"scores": rows, "mean_speed": speed}


def _summary(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        name: {
            "mean": float(np.nanmean(each)),
            "standard_error": float(np.nanstd(each, ddof=1) / np.sqrt(np.isfinite(each).sum())),
            "windows": int(np.isfinite(each).sum()),
        }
        for name, each in scores.items()
    }


def show(name: str, scores: dict) -> None:
    """Prints m/m and deg/m."""
    for split, found in scores.items():
        rows = {name: found["windows"]} if "windows" in found else found
        for row, numbers in rows.items():
            shown = [numbers[measure] for measure in ("translation_error", "rotation_error")]
            text = [f"{one['mean']:.4f} ± {one['standard_error']:.4f}" for one in shown]
            print(f"{row:28s} {split:10s} {text[0]} m/m  {text[1]} deg/m", flush=True)


def note_test_use(out: Path, name: str, record: dict) -> None:
    """Adds a line to the log of all looks at the test frames."""
    line = {
        "date": record["origin"]["started"],
        "commit": record["origin"]["commit"],
        "config": name,
        "scores": record["scores"]["test"].get("windows", record["scores"]["test"]),
    }
    with (out / "test_uses.jsonl").open("a", encoding="utf-8") as file:
        file.write(as_json(line) + "\n")


def main() -> None:
    """Trains, prints and writes."""
    parser = argparse.ArgumentParser(description="Filters on real images of KITTI.")
    parser.add_argument("--root", required=True, help="folder in KITTI's layout")
    parser.add_argument("--configs", default=",".join((*NAMES, WITHOUT_LEARNING)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, help="for all configurations together")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--label", default="", help="added to the names of records")
    parser.add_argument("--runs", type=Path, default=Path("runs/real"))
    parser.add_argument("--out", type=Path, default=Path("studies/kloss2021/real"))
    parser.add_argument("--test", action="store_true", help="look at the test frames, and log it")
    arguments = parser.parse_args()
    names = arguments.configs.split(",")
    arguments.out.mkdir(parents=True, exist_ok=True)
    began, done = time.perf_counter(), 0
    for name in names:
        known = "ekf" if name == WITHOUT_LEARNING else name
        overrides = [f"task.root={json.dumps(arguments.root)}", f"num_seeds={arguments.seeds}"]
        path = CONFIGS / f"kitti_00_{known}.toml"
        experiment = config.read(Experiment, path, [*overrides, *arguments.set])
        origin = provenance(seed=experiment.seed)
        origin["command"] = origin["command"].replace(arguments.root, "DIR")
        label = name + arguments.label
        if name == WITHOUT_LEARNING:
            record = score_baselines(experiment, test=arguments.test)
        else:
            seconds = None
            if arguments.minutes:
                trained = [n for n in names if n != WITHOUT_LEARNING]
                left = 60 * arguments.minutes - (time.perf_counter() - began)
                seconds = left / (len(trained) - done)
            folder = arguments.runs / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}"
            record = train(experiment, folder, seconds, test=arguments.test)
            done += 1
        record = {"origin": origin, "seeds": arguments.seeds} | record
        show(label, record["scores"])
        write_text(arguments.out / f"{label}.json", as_json(record, indent=1) + "\n")
        if arguments.test:
            note_test_use(arguments.out, label, record)


if __name__ == "__main__":
    main()
