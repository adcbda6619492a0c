"""TensorBoard events of a run, if tensorboardX is installed."""

import contextlib
import importlib
import importlib.util
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class EventLog:
    """Writes the numbers of every epoch, one TensorBoard run for each member.

    Without tensorboardX it writes nothing; see `available`. Events are flushed before `write`
    returns. The package's own `SummaryWriter` uses a thread instead, which dies silently when the
    disk is full, so that the next write blocks forever.
    """

    def __init__(self, folder: Path, *, first_step: int | None = None):
        """Creates no files yet.

        With `first_step`, TensorBoard hides events of earlier processes from that step on.
        """
        self._folder = folder
        self._first_step = first_step
        self._writers: list[Any] = []

    @staticmethod
    def available() -> bool:
        """Returns True if tensorboardX is installed."""
        return importlib.util.find_spec("tensorboardX") is not None

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes the record of one epoch, a line of metrics.jsonl."""
        if not self.available():
            return
        stage = record["stage"].replace(" ", "_")  # TensorBoard allows no spaces in tags.
        for index, member in enumerate(record["members"]):
            values = [
                {"tag": f"{stage}/{name}", "simple_value": value}
                for name, value in _numbers(member)
            ]
            _add(self._writer(index), step=record["step"], summary={"value": values})

    def close(self) -> None:
        """Closes all files."""
        while self._writers:
            self._writers.pop().close()

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, error: object, *details: object) -> None:
        # An error on closing must not hide the first one.
        with contextlib.suppress(OSError) if error is not None else contextlib.nullcontext():
            self.close()

    def _writer(self, index: int) -> Any:
        from tensorboardX import RecordWriter  # optional dependency

        while len(self._writers) <= index:
            folder = self._folder / f"member-{len(self._writers)}"
            folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time()):010d}.{os.getpid()}"
            writer = RecordWriter(str(folder / name))
            self._writers.append(writer)
            _add(writer, file_version="brain.Event:2")
            if self._first_step is not None:
                _add(writer, step=self._first_step, session_log={"status": "START"})
        return self._writers[index]


def _add(writer: Any, **content: Any) -> None:
    # A generated module, whose content type checkers cannot see.
    messages: Any = importlib.import_module("tensorboardX.proto.event_pb2")
    writer.write(messages.Event(wall_time=time.time(), **content).SerializeToString())
    writer.flush()


def _numbers(member: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields names and values of all finite numbers, including those of nested mappings."""
    for name, value in member.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif value is not None and name != "seed" and math.isfinite(value):
            yield f"{prefix}{name}", float(value)
