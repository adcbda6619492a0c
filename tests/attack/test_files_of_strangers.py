"""Files that lie about their size, or lead elsewhere, are refused before they cost anything."""

import importlib
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from typer.testing import CliRunner

from filtrax import _files
from filtrax._files import read_arrays
from filtrax.cli import app
from filtrax.lab.experiments import demo
from filtrax.lab.experiments.ensembles import Silent
from filtrax.lab.experiments.records import RunFolder, check_output
from filtrax.lab.files import RecordError
from filtrax.lab.tasks.kitti.recordings import images
from filtrax.lab.tasks.pushing.recordings.trials import TABLES, read_trial


def npy(shape, data=b"", descr="<f8", order=False):
    header = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(path, entries, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


LIES = {
    "a header of 10^15 numbers": {"a.npy": npy("(1000000000000000,)")},
    "a negative size": {"a.npy": npy("(-1,)")},
    "a size of 400 digits": {"a.npy": npy(f"({'9' * 400},)")},
    "shorter than its header": {"a.npy": npy("(4,)", bytes(31))},
    "longer than its header": {"a.npy": npy("(4,)", bytes(33))},
    "no shape": {"a.npy": npy("'x'")},
    "Python objects": {"a.npy": npy("(1,)", bytes(8), "|O")},
    "an unknown type": {"a.npy": npy("(1,)", bytes(8), "<q9")},
    "a header that is code": {"a.npy": npy("__import__('os').system('true')")},
    "a header nested deeply": {"a.npy": npy("(" * 2000)},
    "a header that is no token": {"a.npy": npy("'''")},
    "an unknown version": {"a.npy": b"\x93NUMPY\x09\x00" + bytes(99)},
    "nothing": {"a.npy": b""},
    "another name": {"a.txt": npy("(1,)", bytes(8))},
}


@pytest.mark.parametrize("lie", LIES)
def test_an_npz_file_that_lies_is_one_reason(lie, tmp_path):
    path = zipped(tmp_path / "a.npz", LIES[lie])
    with pytest.raises(ValueError, match=r"\w") as caught:
        read_arrays(path)
    assert "pickle" not in str(caught.value)
    assert "unsafely" not in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("kind", [np.float32, "<U3", bool, ">i4"])
def test_honest_arrays_are_what_numpy_reads(kind, shape, order, tmp_path):
    rng = np.random.default_rng(0)
    array = np.asarray(rng.integers(0, 9, shape).astype(kind), order=order)
    np.savez_compressed(tmp_path / "a.npz", a=array, b=array)
    arrays = read_arrays(tmp_path / "a.npz", compressed=True)
    assert list(arrays) == ["a", "b"]
    assert arrays["a"].dtype == array.dtype
    np.testing.assert_array_equal(arrays["a"], array, strict=True)


def test_a_compressed_bomb_costs_no_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(4_000_000))
    monkeypatch.setattr(_files, "MOST_COMPRESSED", 10_000_000)
    tracemalloc.start()
    try:
        for compressed in (True, False):
            with pytest.raises(ValueError, match="would have 32000128 bytes"):
                read_arrays(path, compressed=compressed)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def png(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = (
        chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )
    return b"\x89PNG\r\n\x1a\n" + content


@pytest.mark.parametrize("size", [(60_000, 60_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 5)])
def test_an_image_of_any_claimed_size_is_refused(size, tmp_path):
    (tmp_path / "a.png").write_bytes(png(*size))
    with pytest.raises(ValueError, match=r"a\.png must be a complete PNG file"):
        images.read_image(tmp_path / "a.png")


def push():
    times = np.linspace(0, 1, 5)
    return {name: np.stack([times, *np.zeros((3, 5))], -1) for name in TABLES}


def test_a_trial_in_hdf5_lies_in_its_own_file(tmp_path):
    h5py = importlib.import_module("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        for name, table in push().items():
            file[name] = table
    read_trial(tmp_path / "other.h5")  # in its own file it is right
    layout = h5py.VirtualLayout((5, 4), float)
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "tip_pose", (5, 4))
    raw = [(str(tmp_path / "raw"), 0, 160)]
    (tmp_path / "raw").write_bytes(bytes(160))
    ways = {
        "link": lambda file: file.__setitem__(
            "tip_pose", h5py.ExternalLink(str(tmp_path / "other.h5"), "tip_pose")
        ),
        "soft": lambda file: file.__setitem__("tip_pose", h5py.SoftLink("/nothing")),
        "virtual": lambda file: file.create_virtual_dataset("tip_pose", layout),
        "raw": lambda file: file.create_dataset("tip_pose", (5, 4), float, external=raw),
        "group": lambda file: file.create_group("tip_pose"),
        "text": lambda file: file.create_dataset("tip_pose", data="text"),
        "empty": lambda file: file.create_dataset("tip_pose", data=h5py.Empty("f")),
        "huge": lambda file: file.create_dataset(
            "tip_pose", (10**12, 4), float, chunks=(1000, 4), compression="gzip"
        ),
    }
    for name, make in ways.items():
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w") as file:
            for table in TABLES[1:]:
                file[table] = push()[table]
            make(file)
        with pytest.raises(ValueError, match=f"{name}.h5 must be an HDF5 file"):
            read_trial(path)


OWN = (
    "config.toml",
    "run.json",
    "metrics.jsonl",
    "model.npz",
    "result.json",
    "evaluation.npz",
    "checkpoints/checkpoint-000001.npz",
    "events/member-0/events",
)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    for name in OWN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}" if name == "run.json" else 'name = "mine"\n')
    return folder


@pytest.mark.parametrize("name", OWN)
def test_no_verb_writes_over_a_file_of_a_run(name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(run / name)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for target in (run / name, f"run/../run/{name}", "link"):
        for words in (
            ["evaluate", "run", "--out"],
            ["report", "run", "--out"],
            ["bench", "--page"],
        ):
            result = CliRunner().invoke(app, [*words, str(target)])
            assert result.exit_code == 2, result.output
            assert "is a file of the run in" in result.output
        result = CliRunner().invoke(app, ["reproduce", "disc_loss", "--pack", str(target)])
        assert "is a file of the run in" in result.output
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_other_files_of_a_run_folder_may_be_written(run):
    for name in ("report.html", "validation.json", "events.json", "below/config.toml"):
        check_output(run / name)
    check_output(run.parent / "config.toml")


def test_the_demo_replaces_demos_alone(run, tmp_path):
    run.rename(tmp_path / "learned_noise")
    with pytest.raises(RecordError, match="holds another run"):
        demo.run(tmp_path, Silent())
    assert RunFolder(tmp_path / "learned_noise").model.is_file()


@pytest.mark.skipif(sys.platform == "darwin", reason="JAX has a device for Metal there")
@pytest.mark.parametrize("platform", ["cuda", "tpu", "nonsense"])
def test_a_device_that_is_not_there_is_one_sentence(platform):
    words = [sys.executable, "-m", "filtrax", "data", "disc"]
    environment = os.environ | {"JAX_PLATFORMS": platform}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(f"Error: JAX_PLATFORMS is '{platform}', but JAX finds no such")
    assert len(result.stderr.splitlines()) == 1
