"""Reading run folders.

A run folder has `config.toml` and `run.json` from the start, one line of `metrics.jsonl` per
finished epoch, and `result.json` and `evaluation.npz` at the end. Runs that are still in training
are read up to their last epoch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filtrax._files import read_arrays
from filtrax.lab.files import reason

SHAPES = {
    "names": "x",
    "units": "x",
    "meanings": "x",
    "states": "n t x",
    "means": "n t x",
    "covariances": "n t x x",
    "errors": "n t x",
    "frames": "n t h w 3",
    "view_matrix": "2 x",
    "view_offset": "2",
    "projection": "3 3",
    "true_outlines": "n t k 2",
    "outlines": "n t k 2",
    "true_arrows": "n t a 2 2",
    "arrows": "n t a 2 2",
    "companion_names": "c",
    "companions": "n t c 2",
    "particles": "n t p x",
    "log_weights": "n t p",
    "mode_chances": "n t m",
    "measurements": "n t z",
    "measurement_covariances": "n t z z",
    "visible": "n t",
    "measured_components": "z",
    "all_visible": "N T",
    "all_sensor_std": "N T z",
    "process_std": "n t x",
    "true_process_std": "n t x",
    "nees": "M S",
    "degrees": "",
    "coverage_levels": "l",
    "coverage": "l x",
    "translation_error": "N",
    "rotation_error": "N",
    "translation": "N",
    "rotation": "N",
}
"""The arrays of `evaluation.npz` and their axes; equal letters are equal sizes.

Only those in `REQUIRED` must be there. `units` are the units of the state's components, `errors`
the differences of truth and mean, for states with angles, and `measured_components` the indices of
the state's components in `measurements`, by default the first ones.
"""

REQUIRED = ("names", "states", "means", "covariances")
_TEXT = ("names", "units", "meanings", "companion_names")
_AS_THEY_ARE = ("frames", "measured_components")


@dataclass(frozen=True)
class Run:
    """The content of a run folder.

    Attributes:
        name: The name of the run in the report.
        config: The text of `config.toml`.
        facts: The content of `run.json`: versions, device, commit, seed.
        epochs: The lines of `metrics.jsonl`, one for each epoch of each stage.
        result: The content of `result.json`; None before the end.
        evaluation: The arrays of `evaluation.npz`; empty before the end.
    """

    name: str
    config: str
    facts: Mapping[str, Any]
    epochs: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any] | None
    evaluation: Mapping[str, np.ndarray]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Reads run folders without duplicates; raises if one is not the folder of a run."""
    if not folders:
        raise ValueError("A report needs at least one run folder, got none.")
    unique = list(dict.fromkeys(_existing(folder) for folder in folders))
    return [
        _read_run(folder, name) for folder, name in zip(unique, _short_names(unique), strict=True)
    ]


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"A run must be an existing folder, but there is none at {folder}.")
    lacking = [name for name in ("config.toml", "run.json") if not (folder / name).is_file()]
    if lacking:
        raise ValueError(
            f"{folder} must be a run folder, as `filtrax train` writes it, but it has no "
            f"{' and no '.join(lacking)}."
        )
    return folder.resolve()


def _short_names(folders: Sequence[Path]) -> list[str]:
    """Names folders by the fewest last parts of their paths that distinguish them."""
    length = 1
    while len(set(names := ["/".join(folder.parts[-length:]) for folder in folders])) < len(names):
        length += 1
    return names


def _read_run(folder: Path, name: str) -> Run:
    result = folder / "result.json"
    return Run(
        name=name,
        config=_read_text(folder / "config.toml"),
        facts=_read_object(folder / "run.json"),
        epochs=_read_epochs(folder / "metrics.jsonl"),
        result=_read_object(result) if result.is_file() else None,
        evaluation=_read_evaluation(folder / "evaluation.npz"),
    )


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} must hold JSON, but it cannot be read: {reason(error)}."
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(content).__name__}.")
    return content


def _read_epochs(path: Path) -> list[dict[str, Any]]:
    """Reads the lines of `metrics.jsonl`; of repeated epochs, as in resumed runs, the last one."""
    lines = _read_text(path).splitlines() if path.is_file() else []
    epochs: dict[Any, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            epoch = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # a killed run may leave an incomplete line
            raise ValueError(
                f"Line {number} of {path} must hold JSON, but it cannot be read: {reason(error)}."
            ) from None
        if not _is_epoch(epoch):
            raise ValueError(
                f"Line {number} of {path} must hold an object with `stage`, `epoch` and a list of "
                f"`members`, got {line[:80]!r}."
            )
        epochs[epoch["stage"], epoch["epoch"]] = epoch
    return list(epochs.values())


def _is_epoch(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("stage"), str)
        and isinstance(value.get("epoch"), int)
        and isinstance(value.get("members"), list)
        and all(isinstance(member, dict) for member in value["members"])
    )


def _read_evaluation(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    try:
        stored = read_arrays(path, compressed=True)
        arrays = {name: _as_read(name, array) for name, array in stored.items()}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be a complete .npz file of arrays: {error}.") from error
    lacking = [name for name in REQUIRED if name not in arrays]
    if lacking:
        raise ValueError(f"{path} must hold {', '.join(REQUIRED)}, but it lacks {lacking}.")
    _check_shapes(path, arrays)
    return arrays


def _as_read(name: str, array: np.ndarray) -> np.ndarray:
    if name in _TEXT:
        return array.astype(str)
    return array if name in _AS_THEY_ARE else array.astype(np.float64)


def _check_shapes(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    sizes: dict[str, int] = {}
    for name, axes in SHAPES.items():
        if name not in arrays:
            continue
        letters, shape = axes.split(), arrays[name].shape
        expected = len(letters) == len(shape) and all(
            size == (int(letter) if letter.isdigit() else sizes.setdefault(letter, size))
            for letter, size in zip(letters, shape, strict=True)
        )
        if not expected:
            raise ValueError(
                f"`{name}` in {path} must have the axes ({', '.join(letters)}), in agreement with "
                f"the arrays before it, got shape {shape}."
            )
    if "frames" in arrays and arrays["frames"].dtype != np.uint8:
        raise ValueError(f"`frames` in {path} must be of type uint8, got {arrays['frames'].dtype}.")
    measured, size = arrays.get("measured_components", np.zeros(0, int)), sizes["x"]
    if measured.dtype.kind not in "iu" or ((measured < 0) | (measured >= size)).any():
        raise ValueError(
            f"`measured_components` in {path} must be whole numbers from 0 to {size - 1}, the "
            f"places of components of the state, got {measured.tolist()}."
        )
