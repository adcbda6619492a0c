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

    Without tensorboardX it writes nothing; `available` says so. With it, an event is on its way
    to the disk when `write` returns: the package's own summary writer has a thread for that,
    which a full disk ends without a word, and whoever writes next waits for it forever.
    """

    def __init__(self, folder: Path, *, first_step: int | None = None):
        """Makes nothing yet. What an earlier process wrote from the first step on is hidden."""
        self._folder = folder
        self._first_step = first_step
        self._writers: list[Any] = []

    @staticmethod
    def available() -> bool:
        """Whether events can be written."""
        return importlib.util.find_spec("tensorboardX") is not None

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes the record of one epoch, as it stands in the metrics."""
        if not self.available():
            return
        stage = record["stage"].replace(" ", "_")  # TensorBoard's names have no spaces.
        for index, member in enumerate(record["members"]):
            values = [
                {"tag": f"{stage}/{name}", "simple_value": value}
                for name, value in _numbers(member)
            ]
            _add(self._writer(index), step=record["step"], summary={"value": values})

    def close(self) -> None:
        """Ends the files."""
        while self._writers:
            self._writers.pop().close()

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, error: object, *details: object) -> None:
        # What went wrong first is what matters.
        with contextlib.suppress(OSError) if error is not None else contextlib.nullcontext():
            self.close()

    def _writer(self, index: int) -> Any:
        from tensorboardX import RecordWriter  # It is optional.

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
    # A generator makes this module, so type checkers do not know what is in it.
    messages: Any = importlib.import_module("tensorboardX.proto.event_pb2")
    writer.write(messages.Event(wall_time=time.time(), **content).SerializeToString())
    writer.flush()


def _numbers(member: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of all finite numbers, those of nested mappings included."""
    for name, value in member.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif value is not None and name != "seed" and math.isfinite(value):
            yield f"{prefix}{name}", float(value)
