"""Real pushes, for tests that look at them where they are found."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_pushes():
    """A folder with pushes of the MIT Push data set."""
    named = os.environ.get("FILTRAX_MIT_PUSH")
    beside = Path(__file__).parents[5] / "shared" / "data" / "mit_push"
    folder = Path(named) if named else beside
    if not any(folder.glob("push_endpoints*.csv*")):
        pytest.skip("no real pushes: name a folder with them in the variable FILTRAX_MIT_PUSH")
    return folder
