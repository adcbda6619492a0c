"""Trials of the MIT Push data set: one push each, recorded at about 250 Hz.

A file has the tables `tip_pose` and `object_pose` (rows of time in s, x and y in m, orientation in
rad, all in the robot's frame) and `ft_wrench` (time, two forces in N, moment in N·m), as JSON or as
HDF5. Its name has the settings, such as `motion_surface=abs_shape=hex_a=0_v=50_i=1.000.json`.
"""

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from filtrax.lab.files import reason

TABLES = ("tip_pose", "object_pose", "ft_wrench")
MOST_NUMBERS = 4_000_000
"""The most numbers of a table, an hour at 250 Hz; a small file may claim any number."""

RATE = 5.0
"""Frames per second of the paper."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One recorded push, with lengths in mm, unwrapped angles in degrees, and times in s.

    Tip, object and force have separate time stamps, counted from the start.
    """

    name: str
    settings: Mapping[str, str]
    """Settings in the name of the file: surface, shape, v (speed in mm/s) and more."""
    tip: np.ndarray
    """Rows (time, x, y)."""
    object: np.ndarray
    """Rows (time, x, y, orientation), in the data set's frame of the object."""
    wrench: np.ndarray
    """Rows (time, force along x, along y, moment)."""


@dataclasses.dataclass(frozen=True)
class Frames:
    """A trial, resampled at regular times."""

    poses: np.ndarray
    """Poses of the object as in the trial, shape (n, 3)."""
    tips: np.ndarray
    """Positions of the pusher, shape (n, 2)."""


def read_trial(path: str | Path) -> Trial:
    """Reads a trial from a .json or an .h5 file."""
    path = Path(path)
    readers = {".json": _read_json, ".h5": _read_hdf5, ".hdf5": _read_hdf5}
    if path.suffix not in readers:
        raise ValueError(f"A trial must be a .json, .h5 or .hdf5 file, got {path}.")
    content = readers[path.suffix](path)
    missing = [name for name in TABLES if name not in content]
    if missing:
        raise ValueError(
            f"{path} must have the tables {', '.join(TABLES)}, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )
    tip, pose, wrench = (_table(path, name, content[name]) for name in TABLES)
    start = min(tip[0, 0], pose[0, 0])
    for table in (tip, pose, wrench):
        table[:, 0] -= start
    tip[:, 1:3] *= 1e3
    pose[:, 1:3] *= 1e3
    pose[:, 3] = np.degrees(np.unwrap(pose[:, 3]))
    return Trial(path.stem, settings_of(path.stem), tip[:, :3], pose, wrench)


def settings_of(name: str) -> dict[str, str]:
    """Parses the settings in the name of a file, as in surface=abs_shape=hex."""
    parts = [part.partition("=") for part in name.split("_")]
    return {key: value for key, equals, value in parts if equals}


def resampled(trial: Trial, rate: float = RATE) -> Frames:
    """Interpolates a trial at regular times, as long as both tip and object are recorded."""
    if not rate > 0:
        raise ValueError(f"`rate` must be a positive number of frames per second, got {rate}.")
    first = max(trial.tip[0, 0], trial.object[0, 0])
    last = min(trial.tip[-1, 0], trial.object[-1, 0])
    count = int((last - first) * rate + 1e-9) + 1
    if last < first or count < 2:
        raise ValueError(
            f"Trial {trial.name} must hold two frames at {rate:g} Hz at least, but tip and object "
            f"are recorded together for {max(last - first, 0.0):.3f} s: take a higher rate."
        )
    times = first + np.arange(count) / rate
    poses = [np.interp(times, trial.object[:, 0], column) for column in trial.object[:, 1:].T]
    tips = [np.interp(times, trial.tip[:, 0], column) for column in trial.tip[:, 1:].T]
    return Frames(np.stack(poses, -1), np.stack(tips, -1))


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} must be a JSON file, but it is damaged: {reason(error)}."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object of tables, got {type(content).__name__}.")
    return content


def _read_hdf5(path: Path) -> Mapping[str, Any]:
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            f"Reading {path.name} needs h5py: pip install 'filtrax[mit]', or use the data set's "
            "JSON files."
        ) from error
    try:
        with h5py.File(path, "r") as file:
            return {name: _read_numbers(h5py, file, name) for name in TABLES if name in file}
    except FileNotFoundError:
        raise
    except Exception as error:  # h5py raises nearly anything for damaged bytes
        reason = str(error).strip("'.\"")
        raise ValueError(f"{path} must be an HDF5 file, but it is damaged: {reason}.") from error


def _read_numbers(h5py: Any, file: Any, name: str) -> np.ndarray:
    """Reads a table that lies in the file itself: a stranger's links may lead to any other."""
    table: Any = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(table, h5py.Dataset) or table.external or table.is_virtual:
        raise ValueError(f"{name} is no table in this file")
    if not 0 < table.size <= MOST_NUMBERS or table.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a table of at most {MOST_NUMBERS} numbers")
    return np.asarray(table)


def _table(path: Path, name: str, content: Any) -> np.ndarray:
    try:
        table: np.ndarray = np.array(content, np.float64)
    except (TypeError, ValueError, OverflowError):
        table = np.array(0.0)
    if table.ndim != 2 or table.shape[1] != 4 or len(table) < 2:
        raise ValueError(
            f"{name} in {path} must have two rows of 4 numbers at least, got an array of shape "
            f"{table.shape}."
        )
    if not np.isfinite(table).all():
        raise ValueError(f"{name} in {path} must hold finite numbers only.")
    if (np.diff(table[:, 0]) < 0).any():
        row = int(np.flatnonzero(np.diff(table[:, 0]) < 0)[0]) + 1
        raise ValueError(f"The times of {name} in {path} must not decrease, but row {row} does.")
    return table
