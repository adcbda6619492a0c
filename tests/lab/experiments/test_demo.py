"""The demo: two runs of which the second has the first one's sensor and process."""

import dataclasses

import jax
import numpy as np
import pytest

import tiny_run
from filtrax.lab.config import write
from filtrax.lab.experiments import demo, run
from filtrax.lab.experiments.records import RunFolder
from filtrax.training.parts import trainable, transfer

pytestmark = pytest.mark.xdist_group("tiny_run")

RESULTS = {"learned noise": (6.0, 8.0), "constant noise": (10.0, 9.5)}


@pytest.fixture
def trained(monkeypatch):
    """The experiments that the demo trains, which takes no time here."""
    experiments = {}

    def train(experiment, folder, watch):
        RunFolder(folder).create()
        write(folder / "config.toml", experiment)
        experiments[folder] = experiment
        distance, nll = RESULTS[experiment.name]
        return {"mean": {"distance": distance, "nll": nll}}

    monkeypatch.setattr(demo, "train", train)
    return experiments


def test_the_demo_compares_learned_noise_with_the_best_constant_noise(trained, tmp_path):
    outcome = demo.run(tmp_path / "demo", run.Silent(), seed=3)
    assert list(trained) == outcome["runs"]
    learned, constant = trained.values()
    assert dataclasses.replace(learned, seed=0, task=demo.TASK) == demo.LEARNED
    assert learned.task == constant.task
    assert learned.seed == 3
    assert constant.start.run == str(outcome["runs"][0])
    assert (constant.start.parts, constant.seed) == (demo.KEPT, 3)
    assert [row["name"] for row in outcome["comparison"]] == list(RESULTS)
    assert [(row["distance"], row["nll"]) for row in outcome["comparison"]] == list(
        RESULTS.values()
    )
    assert "40% shorter" in outcome["summary"]
    assert "1.50 nats higher, on 100 sequences" in outcome["summary"]
    demo.run(tmp_path / "demo", run.Silent())  # an earlier demo is replaced


def test_the_second_model_has_everything_of_the_first_but_its_noise():
    # Rejects parts that do not fit, and a second training that changes what both share.
    experiments = [tiny_run.changed(model=e.model) for e in (demo.LEARNED, demo.CONSTANT)]
    learned, constant = (tiny_run.build_once(experiment, None) for experiment in experiments)
    _, model = transfer(*constant, learned, demo.KEPT)
    for part in (lambda m: m.sensor.encoder, lambda m: m.sensor.head, lambda m: m.process):
        pairs = zip(*(jax.tree.leaves(part(m)) for m in (model, learned[1])), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs if hasattr(a, "shape"))
    assert model.process_noise.head is None
    mask = trainable(*constant, demo.CONSTANT.stages[0].train)
    trained = [leaf for leaf in jax.tree.leaves(mask) if leaf]
    assert len(trained) == 2
    assert demo.LEARNED.task == demo.CONSTANT.task == demo.TASK
    assert demo.LEARNED.filter == demo.CONSTANT.filter
