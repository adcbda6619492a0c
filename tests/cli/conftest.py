"""What several tests of the command line need."""

import pytest

LOUD = ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE", "FILTRAX_DEBUG")


@pytest.fixture(autouse=True)
def plain_output(monkeypatch):
    """No colours and no tracebacks, whatever the tests run in."""
    for name in LOUD:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_folder(monkeypatch, tmp_path):
    """Relative paths lead into a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
