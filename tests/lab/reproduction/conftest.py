"""What several tests of reproductions need."""

import numpy as np
import pytest
from reproduction.tiny_table import DATA, NOISE, source_of, tiny_table

from filtrax.lab.reproduction import tables
from filtrax.lab.reproduction.axes import Axis, Start
from filtrax.lab.reproduction.group_run import GroupRun


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A table whose cells start from a table of this package."""
    source_of(tmp_path, "tiny_source")
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    yield tiny_table(
        Axis("noise", NOISE.values[1:]),
        DATA,
        start=(Start("tiny_source", labels={"data": "3"}, parts=("model",)),),
    )
    tables._packaged.cache_clear()


class FakeTraining:
    """In the place of `GroupRun.train`: writes records at once, and models that hold nothing."""

    def __init__(self):
        self.names = []

    def __call__(self, run):
        self.names.append([cell.name for cell in run.group.cells])
        for cell in run.group.cells:
            header = run._header(cell, {})
            run.results.write(cell, header | {"epochs": {"done": run.group.num_epochs}})
            if run.table.models:
                folder = run.results.model(cell.table, cell.name)
                folder.path.mkdir(parents=True, exist_ok=True)
                np.savez(folder.model, nothing=np.zeros(1))


@pytest.fixture
def fake(monkeypatch):
    fake = FakeTraining()
    monkeypatch.setattr(GroupRun, "train", lambda run: fake(run))
    return fake
