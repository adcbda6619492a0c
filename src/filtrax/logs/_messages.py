"""Numbers in messages of ROS, decoded by their definitions without making code of them."""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from filtrax.logs._containers import brief

LONGEST_DEFINITION = 200_000
LONGEST_ARRAY = 36
"""Arrays of fixed length become columns up to this one: a covariance of a pose has 36."""

DEEPEST = 20

NUMBERS = {
    **{"bool": "?", "byte": "B", "char": "B", "octet": "B", "uint8": "B", "int8": "b"},
    **{"uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "int64": "q"},
    **{"float32": "f", "float64": "d"},
}
BASE, NAME, ARRAY, SEQUENCE = 1, 2, 3, 4
"""Kinds of fields, as `rosbags` numbers them."""

STAMP = "builtin_interfaces/msg/Time"


class Decoder:
    """Decodes messages of one type to numbers by name."""

    def __init__(self, types: Mapping[str, Any], kind: str, ros1: bool):
        self.types, self.kind, self.ros1 = types, kind, ros1

    def __call__(self, data: bytes) -> dict[str, Any]:
        """The numbers of a message, named as in `pose.position.x`; times in nanoseconds."""
        reader = _Reader(data, self.ros1)
        return dict(self._struct(reader, self.kind, "", 0))

    def _struct(self, reader: "_Reader", kind: str, prefix: str, depth: int) -> Iterator:
        if depth > DEEPEST:
            raise ValueError(f"the type {self.kind!r} contains itself")
        if kind == STAMP:
            seconds, rest = reader.number("I" if self.ros1 else "i"), reader.number("I")
            yield prefix, seconds * 10**9 + rest
            return
        if kind not in self.types:
            raise ValueError(f"the type {kind!r} has no definition")
        numbers = {}
        for name, description in self.types[kind][1]:
            full = f"{prefix}.{name}" if prefix else name
            for key, value in self._field(reader, description, full, depth + 1):
                numbers[key] = value
                yield key, value
        yield from _yaw(prefix, kind, numbers)

    def _field(self, reader: "_Reader", description: Any, name: str, depth: int) -> Iterator:
        kind, about = int(description[0]), description[1]
        if kind == BASE:
            yield from _base(reader, about[0], name)
        elif kind == NAME:
            yield from self._struct(reader, about, name, depth)
        else:
            inner, length = about
            fixed = kind == ARRAY
            count = length if fixed else reader.length()
            yield from self._elements(reader, inner, name, count, fixed, depth)

    def _elements(self, reader, inner, name, count, fixed, depth) -> Iterator:
        """The numbers of a short array; others are skipped."""
        shown = fixed and count <= LONGEST_ARRAY
        if int(inner[0]) == BASE and inner[1][0] in NUMBERS:
            values = reader.numbers(NUMBERS[inner[1][0]], count)
            if shown:
                yield from ((f"{name}[{i}]", float(value)) for i, value in enumerate(values))
            return
        for index in range(count):
            element = list(self._field(reader, inner, f"{name}[{index}]", depth))
            if shown:
                yield from element


class _Reader:
    """The bytes of a message, aligned as CDR does for ROS 2."""

    def __init__(self, data: bytes, ros1: bool):
        self.data, self.at, self.ros1 = data, 0, ros1
        self.order = "<"
        if not ros1:
            if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1):
                raise ValueError("the message must begin as plain CDR does")
            self.order = "<" if data[1] == 1 else ">"
            self.at = 4

    def number(self, form: str) -> Any:
        """The next number."""
        return self.numbers(form, 1)[0]

    def numbers(self, form: str, count: int) -> Any:
        """The next numbers of one type."""
        size = struct.calcsize("=" + form)
        if not self.ros1 and count:
            self.at += (4 - self.at) % size  # counted from the end of the header
        end = self.at + size * count
        if end > len(self.data):
            raise ValueError(f"the message ends after {len(self.data)} bytes, in the middle of it")
        values = np.frombuffer(self.data, self.order + form, count, self.at).tolist()
        self.at = end
        return values

    def length(self) -> int:
        """The length of a sequence, which must fit into the message."""
        count = self.number("I")
        if count > len(self.data) - self.at:
            raise ValueError(
                f"the message has a sequence of {count} entries, more than fit into it"
            )
        return count

    def skip(self, size: int) -> None:
        """Leaves out bytes."""
        self.at += size


def _base(reader: _Reader, kind: str, name: str) -> Iterator:
    if kind in NUMBERS:
        yield name, float(reader.number(NUMBERS[kind]))
    elif kind == "string":
        reader.skip(reader.length())
    elif kind in ("time", "duration"):  # of ROS 1
        form = "I" if kind == "time" else "i"
        seconds, rest = reader.numbers(form, 2)
        yield name, seconds * 10**9 + rest
    else:
        raise ValueError(f"fields of type {kind!r} are not known")


def _yaw(prefix: str, kind: str, numbers: Mapping[str, Any]) -> Iterator:
    if not kind.endswith("/Quaternion"):
        return
    x, y, z, w = (numbers[f"{prefix}.{axis}" if prefix else axis] for axis in "xyzw")
    name = f"{prefix}.yaw" if prefix else "yaw"
    yield name, math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def types_of(kind: str, text: str, own: Mapping[str, str], ros1: bool) -> dict[str, Any]:
    """The definitions that a type needs: one's own, those of the bag, those of ROS."""
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError as error:
        raise ImportError(
            'Bags are read by the package rosbags: install it by `pip install "filtrax[logs]"`.'
        ) from error
    if len(text) > LONGEST_DEFINITION:
        raise ValueError(f"the definition of {kind!r} has more than {LONGEST_DEFINITION} letters")
    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.LATEST)
    types = dict(store.fielddefs)
    try:
        if text:
            types |= get_types_from_msg(text, kind)
        for name, definition in own.items():
            types |= get_types_from_msg(definition, name)
    except Exception as error:  # of the parser: what a stranger wrote may be anything
        raise ValueError(f"the definition of {kind!r} cannot be read: {brief(error)}") from error
    return types
