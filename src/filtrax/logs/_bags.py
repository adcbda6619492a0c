"""Topics of bags as tables of numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from filtrax._checks import check_known
from filtrax.logs._containers import Message, brief, messages
from filtrax.logs._messages import Decoder, types_of
from filtrax.logs._tables import Table

CLOCK = "time"
STAMP = "header.stamp"

MOST_BYTES = 2**32
"""Bytes of all messages that are kept: 4 GiB are a day of an IMU at 100 Hz."""


def read_bag(
    path: Path,
    topics: Mapping[str, str],
    *,
    received: bool,
    definitions: Mapping[str, str] | None,
) -> dict[str, Table]:
    """A table for each stream; its column "time" is the clock, in whole nanoseconds."""
    if not topics:
        raise ValueError("`topics` must name at least one topic, got none.")
    wanted: dict[str, list[Message]] = {topic: [] for topic in topics.values()}
    others: set[str] = set()
    size = 0
    for message in messages(path):
        if message.topic not in wanted:
            others.add(message.topic)
            continue
        wanted[message.topic].append(message)
        size += len(message.data)
        if size > MOST_BYTES:
            raise ValueError(
                f"{path} has more than {MOST_BYTES:,} bytes of messages of {[*wanted]}: split it."
            )
    missing = [topic for topic, found in wanted.items() if not found]
    check_known(
        f"{path}, topics must have messages", missing, sorted({*wanted} - {*missing} | others)
    )
    return {
        stream: _table(f"{path}, topic {topic}", wanted[topic], received, definitions or {})
        for stream, topic in topics.items()
    }


def _table(source: str, found: list[Message], received: bool, own: Mapping[str, str]) -> Table:
    first = found[0]
    kind = _normal(first.kind)
    rows = []
    try:
        types = types_of(kind, first.definition, own, first.ros1)
        decode = Decoder(types, kind, first.ros1)
    except ValueError as error:
        raise ValueError(f"{source}: {brief(error)}.") from error
    for index, message in enumerate(found):
        try:
            rows.append(decode(message.data))
        except (ValueError, RecursionError, OverflowError) as error:
            advice = "" if own else "; `definitions` takes that of a type that ROS does not have"
            raise ValueError(
                f"{source}, message {index}: cannot be decoded as {kind}: {brief(error)}{advice}."
            ) from error
    times = [_time(row, message, received) for row, message in zip(rows, found, strict=True)]
    return Table(
        source, {CLOCK: np.asarray(times), **_columns(rows)}, np.arange(len(rows)), {CLOCK: "ns"}
    )


def _time(row: Mapping[str, Any], message: Message, received: bool) -> int:
    """The stamp of the header; of messages without one the time at which they were recorded."""
    return message.time if received else int(row.get(STAMP, message.time))


def _columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {
        name: np.asarray([row[name] for row in rows], float)
        for name in names
        if name != STAMP and name != CLOCK
    }


def _normal(kind: str) -> str:
    """The name of a type in ROS 2: "sensor_msgs/Imu" is "sensor_msgs/msg/Imu"."""
    package, slash, name = kind.partition("/")
    return kind if not slash or "/" in name else f"{package}/msg/{name}"
