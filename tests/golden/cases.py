"""What the golden numbers are of: data of all tasks, and five training steps of everything.

    python tests/golden/cases.py            # all numbers again, after a change that is meant
    python tests/golden/cases.py disc_ekf   # some of them

The numbers stand in `golden.json`, with the version that records carry.
"""

import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).with_name("golden.json")

DATA = {
    "disc": [],
    "disc_heteroscedastic": ["task.noise=heteroscedastic"],
    "disc_correlated": ["task.noise=correlated"],
    "kitti": ["task.kind=kitti"],
    "pushing": ["task.kind=pushing"],
}
SIZES = {
    "disc": {
        "image_size": 42,
        "num_distractors": 2,
        "num_steps": 4,
        "num_train": 4,
        "num_validation": 2,
        "num_test": 2,
    },
    "kitti": {
        "image_size": [19, 35],
        "num_steps": 4,
        "num_frames": 8,
        "windows_per_variant": 1,
        "most_test_windows": 1,
    },
    "pushing": {
        "image_size": [48, 64],
        "num_steps": 4,
        "num_test_steps": 4,
        "num_train": 4,
        "num_validation": 4,
        "num_test": 4,
    },
}

FILTERS = {
    "ekf": [],
    "ukf": ["filter.kind=ukf"],
    "ukf_paper": ["filter.kind=ukf", "filter.redraw=false"],
    "ukf_learned": ["filter.kind=ukf", "filter.learned=true"],
    "mcukf": ["filter.kind=mcukf", "filter.num_samples=12"],
    "pf_m": ["filter.kind=particle", "filter.num_particles=10", "filter.learned_kernel=true"],
    "pf_g": ["filter.kind=particle", "filter.num_particles=10", "filter.belief=gaussian"],
    "pf_lrn": [
        "filter.kind=particle",
        "filter.num_particles=10",
        "model.likelihood=learned",
    ],
    "lstm": ["filter.kind=lstm", "filter.hidden_size=16"],
}
OF_ALL_TASKS = ("ekf", "ukf", "mcukf", "pf_m", "pf_lrn", "lstm")
"""The others are another arithmetic and no other task: on the disc alone."""

STAGES = {
    "sensor": ["model.sensor"],
    "process": ["model.process", "model.process_noise"],
    "likelihood": ["model.likelihood"],
}


def _stage(objective: str, train: list[str], batch: int) -> str:
    names = "[" + ", ".join(f'"{name}"' for name in train) + "]"
    return (
        f'stages=[{{objective="{objective}", train={names}, num_epochs=5, length=2, '
        f"frames_per_batch={2 * batch}, warmup_steps=1, learning_rates=[1e-3]}}]"
    )


def _sizes(task: str) -> list[str]:
    return [f"task.{name}={value}" for name, value in SIZES[task].items()]


def cases() -> dict[str, list[str]]:
    """Settings of each case, by its name."""
    found = {}
    for task in SIZES:
        # An epoch is one batch: two sub-sequences of each sequence.
        batch = {"disc": 8, "kitti": 68, "pushing": 8}[task]
        base = [f"task.kind={task}", *_sizes(task)]
        through = _stage("filter", ["model", "filter"], batch)
        names = FILTERS if task == "disc" else OF_ALL_TASKS
        for name in names:
            found[f"{task}_{name}"] = [*base, *FILTERS[name], through]
        for objective, train in STAGES.items():
            learned = ["model.likelihood=learned"] if objective == "likelihood" else []
            alone = _stage(objective, train, batch)
            found[f"{task}_{objective}"] = [*base, *learned, alone]
    contact = ["model.process=analytical", "model.modes=contact", "filter.kind=imm"]
    through = _stage("filter", ["model", "filter"], 8)
    found["pushing_imm"] = ["task.kind=pushing", *_sizes("pushing"), *contact, through]
    return found


def losses(name: str) -> list[float]:
    """The losses of five training steps."""
    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment
    from filtrax.lab.experiments.records import RunFolder
    from filtrax.lab.experiments.run import Run

    class Watch:
        """Keeps the losses of epochs, which are one step each."""

        def __init__(self):
            self.losses: list[float] = []

        def start(self, stage, num_epochs, num_steps_per_epoch):
            assert (num_epochs, num_steps_per_epoch) == (5, 1), (num_epochs, num_steps_per_epoch)

        def step(self, done):
            pass

        def epoch(self, record):
            self.losses += [m["loss"] for m in record["members"] if record["epoch"] > 0]

        def message(self, text):
            pass

    experiment, watch = config.build(Experiment, {}, cases()[name]), Watch()
    with tempfile.TemporaryDirectory() as folder:
        Run(experiment, RunFolder(Path(folder)), watch).fit(resume=False)
    return watch.losses


def data_hash(name: str) -> str:
    """A hash of all arrays of all splits, in single precision."""
    import jax
    import numpy as np

    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment

    task = name.partition("_")[0]
    with jax.enable_x64(False):
        settings = [*DATA[name], *_sizes(task), "stages=[]"]
        experiment = config.build(Experiment, {}, settings)
        digest = hashlib.sha256()
        for split in ("train", "validation", "test"):
            for leaf in jax.tree.leaves(experiment.task.data(split)):
                array = np.asarray(leaf)
                digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def golden() -> dict:
    """The numbers that are kept."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def main(only: list[str]) -> None:
    """Makes the numbers again."""
    import jaxlib

    kept = golden() if FILE.exists() else {"version": 1, "data": {}, "losses": {}}
    kept["made_with"] = {"jaxlib": jaxlib.__version__, "machine": platform.machine()}
    for name in DATA:
        if not only or name in only:
            kept["data"][name] = data_hash(name)
    for name in cases():
        if not only or name in only:
            kept["losses"][name] = [float(f"{loss:.10g}") for loss in losses(name)]
            sys.stdout.write(f"{name} {kept['losses'][name]}\n")
            FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    import conftest  # noqa: F401, the numerics of the tests

    main(sys.argv[1:])
