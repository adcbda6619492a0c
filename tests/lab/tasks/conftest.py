"""Real drives, for tests that look at them where they are found."""

import pytest

from kitti_data import find_real_kitti, find_real_poses


@pytest.fixture(scope="session")
def real_kitti():
    """A folder in KITTI's layout that holds real images of drive 00 at least."""
    folder = find_real_kitti()
    if folder is None:
        pytest.skip("no real images: name a folder in KITTI's layout in the variable FILTRAX_KITTI")
    return folder


@pytest.fixture(scope="session")
def real_poses():
    """A folder with the poses of KITTI's drives 00 to 10."""
    folder = find_real_poses()
    if folder is None:
        pytest.skip("no real poses: name a folder in KITTI's layout in the variable FILTRAX_KITTI")
    return folder


@pytest.fixture(scope="session")
def real_drive(real_kitti, pytestconfig, tmp_path_factory):
    """Drive 00, with its smaller images kept among pytest's own files from one run to the next."""
    from filtrax.lab.tasks.kitti.recordings.files import read_drive

    kept = getattr(pytestconfig, "cache", None)
    folder = tmp_path_factory.mktemp("kitti") if kept is None else kept.mkdir("kitti")
    return read_drive(real_kitti, "00", cache=folder)
