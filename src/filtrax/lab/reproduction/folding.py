"""Records as short lines: what several records share is stored once, under its hash.

Shared are settings, origins, and the names of all values. What follows from other values, the
averages over members, is not stored but computed again, if that gives exactly the same. Numbers of
members in single precision have the few digits that tell these apart.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from filtrax.lab.experiments.run import averages

SHARED = ("task", "model", "filter", "start")
"""Settings of an experiment that are stored once for all records, as its stages are."""

_OWN = ("started", "command")
"""The parts of an origin that differ from record to record."""

_DIGITS = 8

Record = dict[str, Any]
Names = Sequence[Sequence[str]]


class Parts:
    """Contents that records share, by keys that begin their hashes."""

    def __init__(self):
        self.contents: dict[str, str] = {}

    def keep(self, content: Any) -> str:
        """Stores a part, if it is new, and returns its key."""
        text = compact(content)
        digest = hashlib.sha256(text.encode()).hexdigest()
        # A longer key tells parts apart whose hashes begin alike.
        keys = (digest[:length] for length in range(_DIGITS, len(digest)))
        key = next(key for key in keys if self.contents.get(key, text) == text)
        self.contents[key] = text
        return key


def compact(content: Any) -> str:
    """Serializes as JSON in one line, without spaces, with sorted names."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def fold(record: Mapping[str, Any], parts: Parts) -> Record:
    """Shortens a record to its values, and adds their names and what is shared to `parts`."""
    computed = _averages(record)
    kept = any(record.get(name) != computed[name] for name in computed)
    own = {name: value for name, value in record.items() if kept or name not in computed}
    folded = _shared(_with_split_origin(own), parts.keep)
    names, rows = _table(folded.get("members"))
    if names:
        del folded["members"]
    leaves = dict(_leaves(folded))
    single = [_is_single(column) for column in zip(*rows, strict=True)]
    form = {
        "values": [*leaves],
        "members": names,
        "single": [i for i, short in enumerate(single) if short],
    }
    line = {"form": parts.keep(form), "values": [*leaves.values()]}
    line |= {"averages": "as they are"} if kept else {}
    if not names:
        return line
    shortened = [[_short(*pair) for pair in zip(row, single, strict=True)] for row in rows]
    return line | {"members": shortened}


def unfold(line: Mapping[str, Any], parts: Mapping[str, Any]) -> Record:
    """Restores the record of a line; raises `KeyError` if a part is missing."""
    form = parts[line["form"]]
    record = _nested(form["values"], line["values"])
    if "members" in line:
        single = {*form["single"]}
        rows = [
            [_long(value) if i in single else value for i, value in enumerate(row)]
            for row in line["members"]
        ]
        record["members"] = [_nested(form["members"], row) for row in rows]
    averaged = {} if "averages" in line else _averages(record)
    return averaged | _with_joined_origin(_shared(record, parts.__getitem__))


def _is_single(column: Iterable[Any]) -> bool:
    """Returns True for floating-point numbers, or null, that are exact in single precision."""
    return all(
        value is None or (isinstance(value, float) and _long(value) == value) for value in column
    )


def _short(value: Any, single: bool) -> Any:
    return float(str(np.float32(value))) if single and value is not None else value


def _long(value: float | None) -> float | None:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and so is not kept
        return None if value is None else float(np.float32(value))


def _shared(record: Record, changed: Callable[[Any], Any]) -> Record:
    """Changes each value that records share: to its key, or back."""
    config = {name: changed(v) if name in SHARED else v for name, v in record["config"].items()}
    if "stages" in config:
        config["stages"] = [changed(stage) for stage in config["stages"]]
    origin = {name: v if name == "started" else changed(v) for name, v in record["origin"].items()}
    shown = {"shown": {name: changed(values) for name, values in record.get("shown", {}).items()}}
    return record | {"config": config, "origin": origin} | (shown if "shown" in record else {})


def _with_split_origin(record: Record) -> Record:
    """Separates time and command from the rest of an origin, which records share."""
    origin = record["origin"]
    own = {name: origin[name] for name in _OWN if name in origin}
    rest = {name: value for name, value in origin.items() if name not in _OWN}
    return record | {"origin": own | {"rest": rest}}


def _with_joined_origin(record: Record) -> Record:
    own = dict(record["origin"])
    return record | {"origin": own.pop("rest") | own}


def _averages(record: Mapping[str, Any]) -> dict[str, Any]:
    """Computes the averages over members; null stands for numbers that are not finite."""
    members = record.get("members")
    if not members or any(
        member["metrics"].keys() != members[0]["metrics"].keys() for member in members
    ):
        return {}
    metrics = [
        {name: math.nan if value is None else value for name, value in member["metrics"].items()}
        for member in members
    ]
    computed = averages([{"metrics": each} for each in metrics])
    return {
        kind: {name: _finite(v) for name, v in values.items()} for kind, values in computed.items()
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _table(members: Any) -> tuple[list[list[str]], list[list[Any]]]:
    """Returns the names that all members share and a row for each; empty if they differ."""
    leaves = [dict(_leaves(member)) for member in members or ()]
    if not leaves or any(each.keys() != leaves[0].keys() for each in leaves):
        return [], []
    return [[*name] for name in leaves[0]], [[*each.values()] for each in leaves]


def _leaves(
    tree: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the values of nested mappings with their paths, sorted."""
    for name, value in sorted(tree.items()):
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _nested(names: Names, values: Sequence[Any]) -> Record:
    """Restores nested mappings from the paths of their values."""
    tree: Record = {}
    for path, value in zip(names, values, strict=True):
        place = tree
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return tree
