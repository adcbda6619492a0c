"""Reads TOML files into frozen dataclasses, and writes them.

The annotations of the dataclasses are the schema of the file; see `parse`.
"""

import copy
import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from filtrax.lab.config.parsing import ConfigurationError, parse
from filtrax.lab.files import reason, write_text

__all__ = [
    "ConfigurationError",
    "as_dict",
    "as_toml",
    "build",
    "differences",
    "load",
    "override",
    "parse",
    "read",
    "write",
]

Config = TypeVar("Config")


def read(
    cls: type[Config], path: str | os.PathLike | None, overrides: Iterable[str] = ()
) -> Config:
    """Reads the configuration in a TOML file, or returns the default one if `path` is `None`.

    **Arguments:**

    - `cls`: the dataclass of the whole configuration.
    - `path`: the file.
    - `overrides`: assignments like "filter.kappa=1.5", applied to the content of the file.
        Assignments of a `kind` are applied first, and reset its table to the defaults of that
        kind.
    """
    return build(cls, {} if path is None else load(Path(path)), overrides)


def build(cls: type[Config], mapping: Mapping[str, Any], overrides: Iterable[str] = ()) -> Config:
    """Builds a configuration from a mapping and the overrides of `read`."""
    overrides = list(overrides)
    # Kinds first, outer ones before inner ones, because each resets the defaults below it.
    kinds = sorted(filter(_chooses_kind, overrides), key=lambda text: text.count("."))
    others = [assignment for assignment in overrides if not _chooses_kind(assignment)]
    for assignments in (kinds, others):
        if not assignments:
            continue
        changed = copy.deepcopy(dict(_resolved(cls, mapping)))
        for assignment in assignments:
            _forget_followers(cls, changed, assignment)
            _assign(changed, assignment)
        mapping = changed
    return parse(cls, mapping)


def write(path: str | os.PathLike, config: Any) -> None:
    """Writes a configuration with all defaults; `read` restores it."""
    write_text(path, as_toml(config))


def as_toml(config: Any) -> str:
    """Returns a configuration as TOML text."""
    return tomli_w.dumps(as_dict(config))


def as_dict(config: Any) -> dict[str, Any]:
    """Returns a configuration as nested dicts, lists and values; `parse` restores it."""
    kind = getattr(type(config), "kind", None)
    named = {} if kind is None else {"kind": kind}
    return named | {
        field.name: plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if field.init
    }


def completed(mapping: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Adds the defaults of settings that are missing in a mapping, as in records of old versions.

    `config` is a configuration of the same structure; settings without a default stay missing.
    """
    found = dict(mapping)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in found:
            if field.default is not dataclasses.MISSING:
                found[field.name] = plain(field.default)
        elif dataclasses.is_dataclass(value) and isinstance(found[field.name], Mapping):
            found[field.name] = completed(found[field.name], value)
        elif isinstance(value, tuple) and all(map(dataclasses.is_dataclass, value)):
            pairs = zip(found[field.name], value, strict=False)
            own = [completed(entry, like) for entry, like in pairs]
            found[field.name] = own + found[field.name][len(own) :]
    return found


def differences(before: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields dotted key, old and new value of all settings that differ; what is missing is None."""
    if isinstance(before, list) and isinstance(now, list):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        if before != now:
            yield key, before, now
        return
    for name in dict.fromkeys([*before, *now]):
        below = f"{key}.{name}" if key else str(name)
        yield from differences(before.get(name), now.get(name), below)


def override(mapping: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """Returns a copy of the mapping with one setting changed, as in "stages.0.num_epochs=3".

    The value is parsed as TOML; a value that is not TOML is a string, so words need no quotes.
    """
    changed = copy.deepcopy(dict(mapping))
    _assign(changed, assignment)
    return changed


def load(path: Path) -> dict[str, Any]:
    """Loads a TOML file; raises `ConfigurationError` if it is missing, unreadable or invalid."""
    if path.is_dir():
        inside = path / "config.toml"
        advice = f" Did you mean {inside}?" if inside.is_file() else ""
        raise ConfigurationError(f"A configuration is a TOML file, but {path} is a folder.{advice}")
    try:
        # Some editors write a byte-order mark, which TOML does not allow.
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"There is no configuration file at {path}.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} could not be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not a valid TOML file: {reason(error)}.") from error


def _assign(place: Any, assignment: str) -> None:
    """Changes one setting of a mapping in place."""
    key, sign, text = assignment.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not sign or not all(parts):
        raise ConfigurationError(
            f"A setting is changed with key=value, as in filter.kappa=1.5, got {assignment!r}."
        )
    for depth, part in enumerate(parts[:-1]):
        place = _enter(place, part, parts[:depth])
    value = _parse_value(text.strip())
    if parts[-1] == "kind" and isinstance(place, dict) and place.get("kind", value) != value:
        place.clear()  # Settings of the previous kind do not apply.
    if isinstance(place, dict):
        place[parts[-1]] = value
    else:
        place[_index(place, parts[-1], parts[:-1])] = value


def _forget_followers(cls: type, mapping: dict[str, Any], assignment: str) -> None:
    """Removes fields that follow a section if the assignment changes the section's kind."""
    key, _, value = assignment.partition("=")
    leader, _, last = key.strip().rpartition(".")
    section = mapping.get(leader)
    present = section.get("kind") if isinstance(section, Mapping) else None
    if last == "kind" and present not in (None, _parse_value(value.strip())):
        for field in dataclasses.fields(cls):
            if field.metadata.get("follows") == leader:
                mapping.pop(field.name, None)


def _resolved(cls: type, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fills in defaults, so that overrides can address them."""
    try:
        return as_dict(parse(cls, mapping))
    except ConfigurationError:
        return mapping  # An override may make it valid; otherwise the final `parse` raises.


def _chooses_kind(assignment: str) -> bool:
    return assignment.partition("=")[0].strip().endswith(".kind")


def _parse_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        # TOML requires 0.5 and 1.0; accept .5 and 1. as well.
        is_number = re.fullmatch(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", text, re.IGNORECASE)
        return float(text) if is_number else text
    except (ValueError, RecursionError) as error:  # of thousands of digits or brackets
        raise ConfigurationError(
            f"A value must be of ordinary size, got {text[:20]} and {len(text)} signs in all."
        ) from error
    return found["value"] if len(found) == 1 else text


def _enter(place: Any, part: str, parents: Sequence[str]) -> Any:
    """Returns the table or list at one part of a dotted key; creates missing tables."""
    if isinstance(place, dict):
        place = place.setdefault(part, {})
    else:
        place = place[_index(place, part, parents)]
    if not isinstance(place, dict | list):
        name = ".".join([*parents, part])
        raise ConfigurationError(f"`{name}` is the single value {place!r} and has no parts.")
    return place


def _index(place: list[Any], part: str, parents: Sequence[str]) -> int:
    if not part.isdecimal() or int(part) >= len(place):
        raise ConfigurationError(
            f"`{'.'.join(parents)}` is a list whose {len(place)} entries are numbered from 0, "
            f"got {part!r}."
        )
    return int(part)


def plain(value: Any) -> Any:
    """Returns a setting as dicts, lists and values that a file can hold."""
    if dataclasses.is_dataclass(value):
        return as_dict(value)
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    return "none" if value is None else value
