"""Messages in the files of ROS: bags of ROS 1, MCAP, and SQLite of ROS 2.

Files are read from their beginning to their end. No index is trusted, no type definition is
executed, nothing is written, and a chunk may not become larger than `LARGEST_CHUNK`.
"""

import bz2
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

LARGEST_CHUNK = 2**28
"""Bytes that a compressed chunk may become: 256 MiB. Recorders make chunks of about one."""

LARGEST_MESSAGE = 2**28

ZSTD = b"\x28\xb5\x2f\xfd"


class Message(NamedTuple):
    """A message as a file holds it; `time` is when it was recorded, in nanoseconds."""

    topic: str
    kind: str
    definition: str
    time: int
    data: bytes
    ros1: bool


class DamagedError(ValueError):
    """A file that is not as its format says."""


def brief(error: Exception) -> str:
    """The message of an error in one line, which may quote what a stranger wrote."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def messages(path: Path) -> Iterator[Message]:
    """All messages of a bag: of one file, or of the files in a folder of ROS 2, by name."""
    for file in _files(path):
        try:
            yield from _READERS[file.suffix](file)
        except KeyError as error:
            raise ValueError(f"{file} has a record without its field {error}.") from error
        except (struct.error, UnicodeDecodeError, sqlite3.Error, OverflowError) as error:
            raise ValueError(
                f"{file} is damaged or no {file.suffix} file: {brief(error)}."
            ) from error
        except DamagedError as error:
            raise ValueError(f"{file} {brief(error)}.") from error


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"There is no bag {path}.")
    if not path.is_dir():
        files = [path]
    else:
        files = sorted(file for file in path.iterdir() if file.suffix in (".mcap", ".db3", ".zstd"))
        outside = [file for file in files if file.resolve().parent != path.resolve()]
        if outside:
            raise ValueError(f"{outside[0]} is a link that leads out of the bag, and is not read.")
    unknown = [file for file in files if file.suffix not in _READERS]
    if unknown or not files:
        found = f"found {unknown[0].name}" if unknown else "found none"
        raise ValueError(
            f"{path} must be a .bag, .mcap or .db3 file, or a folder with such files of ROS 2, "
            f"{found}. Files that end with .zstd are decompressed by `zstd -d` first."
        )
    return files


class _Bytes:
    """A buffer that is read from its beginning to its end."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size < 0 or self.at + size > len(self.data):
            raise DamagedError(f"ends in the middle of a record of {size} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        """The next numbers, as `struct` names their types."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def text(self) -> str:
        """The next text, behind its length."""
        return self.take(*self.numbers("I")).decode()

    @property
    def more(self) -> bool:
        """True if bytes are left."""
        return self.at < len(self.data)


def _rosbag1(path: Path) -> Iterator[Message]:
    with path.open("rb") as file:
        if file.read(13) != b"#ROSBAG V2.0\n":
            raise DamagedError("must begin as a bag of ROS 1 of version 2.0 does")
        connections: dict[int, tuple[str, str, str]] = {}
        while head := file.read(4):
            fields = _fields(_exactly(file, *struct.unpack("<I", head)))
            data = _exactly(file, *struct.unpack("<I", _exactly(file, 4)))
            if fields.get(b"op") == b"\x05":
                kind = fields.get(b"compression", b"none").decode()
                yield from _records1(_Bytes(decompressed(data, kind)), connections)


def _records1(chunk: _Bytes, connections: dict[int, tuple[str, str, str]]) -> Iterator[Message]:
    while chunk.more:
        fields = _fields(chunk.take(*chunk.numbers("I")))
        data = chunk.take(*chunk.numbers("I"))
        operation = fields.get(b"op")
        if operation == b"\x07":
            about = _fields(data)
            (number,) = struct.unpack("<I", fields[b"conn"])
            kind, text = about.get(b"type", b""), about.get(b"message_definition", b"")
            connections[number] = (fields[b"topic"].decode(), kind.decode(), text.decode())
        elif operation == b"\x02":
            (number,), (seconds, rest) = (
                struct.unpack("<I", fields[b"conn"]),
                struct.unpack("<II", fields[b"time"]),
            )
            if number not in connections:
                raise DamagedError(
                    f"has a message of connection {number}, which it does not describe"
                )
            topic, kind, text = connections[number]
            yield Message(topic, kind, text, seconds * 10**9 + rest, data, True)


def _fields(header: bytes) -> dict[bytes, bytes]:
    buffer, fields = _Bytes(header), {}
    while buffer.more:
        name, equals, value = buffer.take(*buffer.numbers("I")).partition(b"=")
        if not equals:
            raise DamagedError("has a header without `=`")
        fields[name] = value
    return fields


def _exactly(file: Any, size: int) -> bytes:
    if size > LARGEST_CHUNK:
        raise DamagedError(
            f"has a record of {size:,} bytes, and at most {LARGEST_CHUNK:,} are read"
        )
    data = file.read(size)
    if len(data) < size:
        raise DamagedError(f"ends in the middle of a record of {size:,} bytes")
    return data


MAGIC = b"\x89MCAP0\r\n"


def _mcap(path: Path) -> Iterator[Message]:
    with path.open("rb") as file:
        if file.read(8) != MAGIC:
            raise DamagedError("must begin as an MCAP file does")
        schemas: dict[int, tuple[str, str]] = {}
        channels: dict[int, tuple[str, str, str]] = {}
        while operation := file.read(1):
            if operation in (b"\x02", b"\x0f") or operation == MAGIC[:1]:
                return  # the end of the data
            (size,) = struct.unpack("<Q", _exactly(file, 8))
            record = _Bytes(_exactly(file, size))
            if operation == b"\x06":
                yield from _chunk(record, schemas, channels)
            else:
                yield from _record(operation, record, schemas, channels)


def _chunk(record: _Bytes, schemas: dict, channels: dict) -> Iterator[Message]:
    record.numbers("QQ")
    size, _ = record.numbers("QI")
    kind, count = record.text(), record.numbers("Q")
    inside = _Bytes(decompressed(record.take(*count), kind or "none", size))
    while inside.more:
        operation = inside.take(1)
        yield from _record(operation, _Bytes(inside.take(*inside.numbers("Q"))), schemas, channels)


def _record(operation: bytes, record: _Bytes, schemas: dict, channels: dict) -> Iterator[Message]:
    if operation == b"\x03":
        (number,) = record.numbers("H")
        kind, encoding = record.text(), record.text()
        text = record.take(*record.numbers("I")).decode() if encoding == "ros2msg" else ""
        schemas[number] = (kind, text)
    elif operation == b"\x04":
        number, schema = record.numbers("HH")
        topic, encoding = record.text(), record.text()
        kind, text = schemas.get(schema, ("", ""))
        channels[number] = (topic, kind if encoding == "cdr" else "", text)
    elif operation == b"\x05":
        number, _, time, _ = record.numbers("HIQQ")
        if number not in channels:
            raise DamagedError(f"has a message of channel {number}, which it does not describe")
        topic, kind, text = channels[number]
        yield Message(topic, kind, text, time, record.data[record.at :], False)


def _sqlite(path: Path) -> Iterator[Message]:
    # Immutable: neither locks nor journals are written beside a file of somebody else.
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(address, uri=True)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = {name for (name,) in names}
        if not {"topics", "messages"} <= tables:
            raise DamagedError("must have the tables `topics` and `messages` of ROS 2")
        texts = {}
        if "message_definitions" in tables:
            query = (
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            )
            rows = connection.execute(query)
            texts = {kind: text for kind, encoding, text in rows if encoding == "ros2msg"}
        query = (
            "SELECT topics.name, topics.type, messages.timestamp, messages.data FROM messages "
            "JOIN topics ON messages.topic_id = topics.id ORDER BY messages.timestamp"
        )
        for topic, kind, time, data in connection.execute(query):
            if not isinstance(data, bytes) or not isinstance(time, int):
                raise DamagedError("must have bytes as messages and whole numbers as their times")
            yield Message(
                str(topic), str(kind), str(texts.get(kind, "")), time, _plain(data), False
            )
    finally:
        connection.close()


def _plain(data: bytes) -> bytes:
    """A message that may be compressed on its own: CDR does not begin as zstd does."""
    return decompressed(data, "zstd") if data.startswith(ZSTD) else data


def decompressed(data: bytes, kind: str, size: int | None = None) -> bytes:
    """The bytes of a chunk, if there are not too many."""
    if size is not None and size > LARGEST_CHUNK:
        raise DamagedError(f"has a chunk of {size:,} bytes, and at most {LARGEST_CHUNK:,} are read")
    if kind == "none":
        return data
    if kind not in ("bz2", "lz4", "zstd"):
        raise DamagedError(
            f"has a chunk compressed by {kind!r}, and only bz2, lz4 and zstd are known"
        )
    limit = LARGEST_CHUNK if size is None else size
    decompress = _decompressor(kind)
    try:
        result = decompress(data, limit + 1)
    except Exception as error:  # each library has errors of its own
        raise DamagedError(
            f"has a chunk that cannot be decompressed by {kind}: {brief(error)}"
        ) from error
    if len(result) > limit:
        raise DamagedError(f"has a chunk of more than the {limit:,} bytes that it may have")
    return result


def _decompressor(kind: str) -> Callable[[bytes, int], bytes]:
    if kind == "bz2":
        return bz2.BZ2Decompressor().decompress
    if kind == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor().decompress
    try:
        from compression import zstd  # pyright: ignore[reportMissingImports]
    except ImportError:
        from backports import zstd
    return zstd.ZstdDecompressor().decompress


_READERS = {".bag": _rosbag1, ".mcap": _mcap, ".db3": _sqlite}
