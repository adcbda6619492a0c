"""What several tests of reproductions need."""

import pytest

from filtrax.reproduction import tables
from filtrax.reproduction.axes import Axis, Start
from reproduction.tiny_table import DATA, NOISE, source_of, tiny_table


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A table whose cells start from a table of this package."""
    source_of(tmp_path, "tiny_source")
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    yield tiny_table(
        Axis("noise", NOISE.values[1:]),
        DATA,
        start=Start("tiny_source", labels={"data": "3"}, parts=("model",)),
    )
    tables._packaged.cache_clear()
