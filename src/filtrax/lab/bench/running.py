"""Running a suite, with one file of records that is written after each measurement."""

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from filtrax.lab.bench.measurements import Conditions, Measurement, Record
from filtrax.lab.bench.peaks import Peaks, measure_peaks
from filtrax.lab.bench.peers import FOLDER, load_peers, versions
from filtrax.lab.bench.problems import SEED
from filtrax.lab.bench.suites import suite
from filtrax.lab.files import as_json, read_json, write_text, writing
from filtrax.lab.provenance import provenance

Say = Callable[[str], None]


def run_suite(
    name: str,
    out: Path,
    *,
    only: Sequence[str] = (),
    seconds: float | None = None,
    seconds_each: float = 2.0,
    peers: Path = FOLDER,
    say: Say = lambda text: None,
) -> Path:
    """Runs the measurements of a suite that its file of records lacks; returns the file's path.

    **Arguments:**

    - `name`: the name of the suite.
    - `out`: the folder of the file.
    - `only`: glob patterns of names of measurements; all if empty.
    - `seconds`: the time after which no further measurement starts; `None`: no limit.
    - `seconds_each`: the time for each measurement, shared by its calls.
    - `peers`: the folder of adapters of other libraries.
    - `say`: called with messages on the progress.
    """
    wanted = chosen(suite(name), only)
    path = out / f"{name}.json"
    end = None if seconds is None else time.monotonic() + seconds
    found, missing = load_peers(peers)
    for file, package in missing.items():
        say(f"Not compared with {file}: {package} is not installed.")
    record = _begin(path, name, versions(found))
    peaks = Peaks(**record["peaks"])
    conditions = Conditions(peaks, found, seconds_each)
    for number, one in enumerate(wanted, start=1):
        if one.name in record["measurements"]:
            continue
        if end is not None and time.monotonic() >= end:
            say(f"Time is over with {number - 1} of {len(wanted)}; the same command goes on.")
            break
        record["measurements"][one.name] = _measured(one, conditions)
        write_text(path, as_text(record))
        say(f"{number} of {len(wanted)}: {one.name}: {described(record['measurements'][one.name])}")
        jax.clear_caches()  # hundreds of programs would fill the memory
    return path


def as_text(record: Mapping[str, Any]) -> str:
    """Serializes a record as JSON, with one line for each measurement."""
    head = {name: part for name, part in record.items() if name != "measurements"}
    lines = [f"{as_json(name)}: {as_json(one)}" for name, one in record["measurements"].items()]
    return f'{as_json(head)[:-1]}, "measurements": {{\n' + ",\n".join(lines) + "\n}}\n"


def chosen(measurements: Sequence[Measurement], only: Sequence[str]) -> list[Measurement]:
    """Returns the measurements whose names match a pattern (all without patterns)."""
    found = [
        one
        for one in measurements
        if not only or any(fnmatch.fnmatchcase(one.name, pattern) for pattern in only)
    ]
    if not found:
        raise ValueError(
            f"`only` must match the name of a measurement, like {measurements[0].name}: got "
            f"{list(only)}."
        )
    return found


def _measured(one: Measurement, conditions: Conditions) -> Record:
    try:
        return one.measure(conditions)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"refused": "The memory of the device is too small."}


def _begin(path: Path, name: str, peers: dict[str, str]) -> dict[str, Any]:
    """Reads the existing record, or starts a new one with the peaks of the device.

    Raises if an existing record is of another commit, device or versions of packages.
    """
    origin = provenance(seed=SEED)
    if path.is_file():
        record = read_json(path)
        for part in ("commit", "packages", "device"):
            if record["origin"][part] != origin[part]:
                raise ValueError(
                    f"{path} holds measurements of another {part}, {record['origin'][part]} and "
                    f"not {origin[part]}: choose another folder, or remove the file."
                )
        return record
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    peaks = measure_peaks()
    return {
        "suite": name,
        "origin": origin,
        "peers": peers,
        "peaks": vars(peaks),
        "measurements": {},
    }


def described(record: Record) -> str:
    """Summarizes a measurement in one line."""
    if "refused" in record:
        return record["refused"]
    words = [f"{name} {duration(each['median'])}" for name, each in record["seconds"].items()]
    if "floor" in record:
        words.append(f"floor {duration(record['floor']['floor'])}")
    return ", ".join(words)


def duration(seconds: float | int) -> str:
    """Formats seconds with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
