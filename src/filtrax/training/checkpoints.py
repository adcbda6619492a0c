"""Saving and loading filters and models.

A file holds arrays and numbers by their names, never code: NumPy's .npz format without pickle.
Loading fills a filter and a model of the same structure, built by the same program. Given arrays
(`filtrax.given`) are stored like all others, under the name of the field that holds them.
"""

import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

from filtrax._checks import check_known
from filtrax._files import read_arrays, write_whole
from filtrax._given import unwrap

Filter = TypeVar("Filter")
Model = TypeVar("Model")
State = TypeVar("State")

FORMAT = 1
_FORMAT, _CONSTANTS = "filtrax.format", "filtrax.constants"


MAY_DIFFER = ("num_particles", "num_samples")
"""Constants of filters that may differ between saving and loading, as between training and test."""


def save(path: str | os.PathLike, filt: Any, model: Any) -> None:
    """Writes all arrays and numbers of a filter and a model to a file.

    The file appears under its name only once it is complete.
    """
    _write(Path(path), _leaves(filt, model), _compiled(filt, model))


def save_parts(path: str | os.PathLike, **parts: Any) -> None:
    """Writes all arrays and numbers of named trees to a file, as `save` does."""
    leaves = [_named(tree, name) for name, tree in parts.items()]
    _write(Path(path), dict(itertools.chain(*(part.items() for part in leaves))), {})


def load_parts(path: str | os.PathLike, **templates: Any) -> tuple[Any, ...]:
    """Reads some of the trees that `save_parts` wrote, given trees of the same structure."""
    stored = _read(Path(path))
    parts = []
    for name, template in templates.items():
        begin = (f"{name}.", f"{name}[")
        own = {key: value for key, value in stored.items() if key.startswith(begin)}
        parts.append(_fill(path, template, _named(template, name), own))
    return tuple(parts)


def load(path: str | os.PathLike, filt: Filter, model: Model) -> tuple[Filter, Model]:
    """Reads a file that `save` wrote into a filter and a model of the same structure.

    Raises if names, shapes or types differ from those in the file, or a constant of either, like
    the floor of a noise or the iterations of an update. How many samples a filter draws may differ.
    """
    stored = _read(Path(path))
    saved = _saved_constants(path, stored.pop(_CONSTANTS, None))
    filled = _fill(path, (filt, model), _leaves(filt, model), stored)
    for name, value in _compiled(filt, model).items():
        if saved.get(name, value) != value:
            raise ValueError(
                f"{path} was saved with {name} = {saved[name]}, but what it is loaded into has "
                f"{value}."
            )
    return filled


def stored_shape(path: str | os.PathLike, name: str) -> tuple[int, ...] | None:
    """Returns the shape of an array in a file, by its name; None if there is none."""
    array = _read(Path(path)).get(name)
    return None if array is None else array.shape


def _fill(
    path: str | os.PathLike, tree: State, template: dict[str, Any], stored: dict[str, np.ndarray]
) -> State:
    """The tree with the stored numbers, or an error that names what does not fit."""
    message = f"{path} does not fit what it is loaded into"
    unknown = sorted(set(stored) - set(template))
    check_known(f"{message}: it has unknown entries", unknown, sorted(template))
    missing = sorted(set(template) - set(stored))
    if missing:
        raise ValueError(f"{message}: it lacks {missing}.")
    for name, leaf in template.items():
        expected, value = np.asarray(leaf), stored[name]
        if expected.shape != value.shape or expected.dtype != value.dtype:
            raise ValueError(
                f"{path} holds {name} with shape {value.shape} and type {value.dtype}, but what "
                f"it is loaded into has {expected.shape} and {expected.dtype}."
            )
    ordered = iter([_like(leaf, stored[name]) for name, leaf in template.items()])
    return jax.tree.map(lambda leaf: next(ordered) if _is_number(leaf) else leaf, tree)


def _write(path: Path, leaves: dict[str, Any], constants: dict[str, Any]) -> None:
    numbers: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    for name, number in numbers.items():
        if number.dtype.kind == "V":  # which NumPy would write as bytes without a type
            raise ValueError(
                f"{name} must be of a type that NumPy knows, got {number.dtype}: convert it to "
                "float32 before it is saved."
            )
    numbers[_FORMAT] = np.asarray(FORMAT)
    numbers[_CONSTANTS] = np.asarray(json.dumps(constants))
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **numbers))


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise FileNotFoundError(f"There is no saved filter at {path}.")
    try:
        stored = read_arrays(path)
    except ValueError as error:
        raise ValueError(f"{path} is not a complete file written by `save`: {error}.") from error
    version = stored.pop(_FORMAT, None)
    if version is None or version.tolist() != FORMAT:
        raise ValueError(f"{path} must be written by `save` in format {FORMAT}, got {version}.")
    return stored


def _saved_constants(path: str | os.PathLike, stored: np.ndarray | None) -> dict[str, Any]:
    try:
        saved = json.loads(str(stored))
    except (ValueError, RecursionError):
        saved = None
    if not isinstance(saved, dict):
        raise ValueError(f"{path} must hold the constants of a model, as `save` writes them.")
    return saved


def _leaves(filt: Any, model: Any) -> dict[str, Any]:
    """All arrays and numbers by their names, like `model.process_noise.bias`."""
    return _named(filt, "filter") | _named(model, "model")


def _named(tree: Any, root: str) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(unwrap(tree))
    return {root + jax.tree_util.keystr(path): leaf for path, leaf in leaves if _is_number(leaf)}


def _compiled(filt: Any, model: Any) -> dict[str, Any]:
    """The constants of a filter and a model that must be the same where they are loaded."""
    constants = _constants(filt, "filter") | _constants(model, "model")
    free = [name for name in constants if name.rpartition(".")[2] in MAY_DIFFER]
    return {name: value for name, value in constants.items() if name not in free}


def _constants(part: Any, name: str) -> dict[str, Any]:
    """The numbers and names that are compiled into a part, as JSON can hold them."""
    constants = {}
    for suffix, child, static in _fields(part):
        if static and _is_plain(child):
            constants[name + suffix] = json.loads(json.dumps(child))
        constants |= _constants(child, name + suffix)
    return constants


def _fields(part: Any) -> list[tuple[str, Any, bool]]:
    """Suffix of the name, value, and True if static, of everything that a part consists of."""
    if isinstance(part, tuple | list):
        return [(f"[{i}]", child, False) for i, child in enumerate(part)]
    if isinstance(part, eqx.Module):
        fields = dataclasses.fields(part)
        return [(f".{f.name}", getattr(part, f.name), "static" in f.metadata) for f in fields]
    return []


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, bool | int | float | str)


def _is_number(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, bool | int | float)


def _like(leaf: Any, stored: np.ndarray) -> Any:
    """A stored value of the kind of the leaf: an array, or a plain number."""
    return jax.device_put(stored) if eqx.is_array(leaf) else type(leaf)(stored.item())
