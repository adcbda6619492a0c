"""The folder of a run, with writes that survive crashes.

Files are written under a temporary name and renamed once they are complete; appended lines are
synced to disk before the call returns. After a crash, the last line of the metrics may be
incomplete: `read_metrics` ignores it, and `truncate_metrics` removes it.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from filtrax._files import write_whole
from filtrax.lab import plugins
from filtrax.lab.files import (
    RecordError,
    as_json,
    read_json,
    reason,
    refused,
    replace,
    writing,
)

OWN_FILES = ("config", "provenance", "metrics", "model", "result", "evaluation")
"""The files of a run, as `RunFolder` names them, without its report."""


_LOCK = ".lock"
"""The file that a process locks while it works on a run; it means nothing by being there."""


def check_output(path: Path) -> None:
    """Raises `RecordError` if a file to be written is one of the files of a run."""
    target = Path(path).resolve()
    for folder in map(RunFolder, target.parents[:3]):
        own = {getattr(folder, name).resolve() for name in OWN_FILES}
        below = {folder.events, folder.path / "checkpoints"}
        if folder.config.is_file() and ({target} & own or {*target.parents} & below):
            raise RecordError(
                f"{path} is a file of the run in {folder.path}, which is not overwritten: choose "
                "another file."
            )


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of one run. The object alone touches no files; `create` makes the folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The full configuration; its presence marks the folder of a run."""
        return self.path / "config.toml"

    @property
    def provenance(self) -> Path:
        """The provenance of the run: versions, commit, device, seed and command."""
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        """The metrics of training, one JSON object per epoch and line."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """The folder of TensorBoard events."""
        return self.path / "events"

    @property
    def model(self) -> Path:
        """Filter and model of every member at its best epoch."""
        return self.path / "model.npz"

    @property
    def result(self) -> Path:
        """The metrics of the trained filters."""
        return self.path / "result.json"

    @property
    def evaluation(self) -> Path:
        """The arrays that the report draws."""
        return self.path / "evaluation.npz"

    @property
    def report(self) -> Path:
        """The report of this run alone."""
        return self.path / "report.html"

    def checkpoint(self, number: int) -> Path:
        """Returns the path of a checkpoint; its number counts the lines of the metrics then."""
        return self.path / "checkpoints" / f"checkpoint-{number:06d}.npz"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Lists numbers and paths of the existing checkpoints, newest first."""
        paths = self.path.glob("checkpoints/checkpoint-*.npz")
        numbered = [(path.stem.removeprefix("checkpoint-"), path) for path in paths]
        return sorted(((int(n), path) for n, path in numbered if n.isdecimal()), reverse=True)

    def create(self, *, resume: bool = False) -> None:
        """Makes the folder; raises if it has content, unless `resume` continues the run in it."""
        if resume:
            self.check()
        elif self.path.is_dir() and self._has_content():
            advice = f"go on with `{self._resume_command}` or choose" if self._is_run else "choose"
            raise RecordError(f"{self.path} is not empty: {advice} another folder with --out.")
        with writing(self.path):
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()

    def check(self) -> None:
        """Raises `RecordError` unless this is the folder of a run."""
        if not self.path.exists():
            raise RecordError(f"There is no run folder at {self.path}.")
        if self._is_half_begun:
            raise RecordError(
                f"The run in {self.path} ended before its first file was complete: start it again, "
                "without --resume."
            )
        if not self._is_run:
            raise RecordError(f"{self.path} is not the folder of a run: it has no config.toml.")

    def check_plugins(self) -> list[str]:
        """Raises `MissingPluginError` unless the plugins of this run are loaded.

        Returns a sentence for each whose file has changed since.
        """
        facts = read_json(self.provenance) if self.provenance.is_file() else {}
        found = facts.get("plugins", []) if isinstance(facts, dict) else []
        return plugins.check(found, f"The run in {self.path}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder during the block; raises `RecordError` if another process does.

        The lock is released when the process ends, even by a crash.
        """
        path = self.path / _LOCK
        with writing(path):
            file = path.open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The file may be gone, if its last owner ended just before.
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    raise BlockingIOError
            except OSError as error:
                raise RecordError(
                    f"Another process works on the run in {self.path}: wait until it ends, or end "
                    "it first."
                ) from error
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes an earlier run from the folder, but no other files."""
        if not self._is_run:
            return
        with writing(self.path):
            self._remove_leftovers()
            for folder in (self.events, self.path / "checkpoints"):
                if folder.is_dir():
                    shutil.rmtree(folder)
            for name in ("provenance", "metrics", "model", "result", "evaluation", "report"):
                getattr(self, name).unlink(missing_ok=True)
            # Last, because it marks the folder of a run.
            self.config.unlink()

    def write_json(self, path: Path, content: Any) -> None:
        """Writes a file of this folder as JSON; numbers that are not finite become null."""
        with self.writing(path):
            replace(path, as_json(content, indent=2) + "\n")

    def write_arrays(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes named arrays into a compressed .npz file of this folder."""

        def write(file: IO[bytes]) -> None:
            np.savez_compressed(file, allow_pickle=False, **arrays)

        with self.writing(path):
            write_whole(path, write)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Appends the line of one epoch. Must be called before that epoch's checkpoint."""
        with self.writing(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(as_json(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """Reads the lines of all epochs, without an incomplete last line."""
        records = []
        for number, line in enumerate(self._metrics_lines(), start=1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("it must be an object")
                records.append(record)
            except (ValueError, RecursionError) as error:
                raise RecordError(
                    f"Line {number} of {self.metrics} is damaged: {reason(error)}."
                ) from error
        return records

    def truncate_metrics(self, num_records: int) -> None:
        """Keeps only the first lines, those that precede a checkpoint."""
        with self.writing(self.metrics):
            kept = self._metrics_lines()[:num_records]
            replace(self.metrics, "".join(f"{line}\n" for line in kept))

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Turns an `OSError` into a `RecordError` that says what is kept and how to continue."""
        try:
            yield
        except RecordError:
            raise
        except OSError as error:
            raise refused(path, error, f" {self._kept()}") from error

    @property
    def _is_run(self) -> bool:
        return self.config.is_file()

    @property
    def _is_half_begun(self) -> bool:
        """True if a process was killed here before its first file was complete."""
        begun = self.path.is_dir() and not self._is_run and any(self.path.iterdir())
        return begun and not self._has_content()

    @property
    def _resume_command(self) -> str:
        return f"filtrax train --resume {shlex.quote(str(self.path))}"

    def _has_content(self) -> bool:
        # A start that failed or was killed leaves an empty folder of checkpoints, and leftovers.
        empty = self.path / "checkpoints"
        entries = (path for path in self.path.iterdir() if path != empty or not path.is_dir())
        content = (path for path in entries if not _is_leftover(path) and path.name != _LOCK)
        return any(content) or (empty.is_dir() and any(empty.iterdir()))

    def _kept(self) -> str:
        try:
            checkpoints, records = self.checkpoints(), self.read_metrics()
        except OSError:
            return f"What was written before is in {self.path}."
        if not checkpoints or len(records) < checkpoints[0][0]:
            return "No epoch was kept before."
        last = records[checkpoints[0][0] - 1]
        return (
            f"Everything up to epoch {last['epoch']} of stage {last['stage']!r} is kept in "
            f"{self.path}; go on with `{self._resume_command}`."
        )

    def _remove_leftovers(self) -> None:
        """Removes the unfinished files of a process that was killed."""
        for path in self.path.rglob(".*"):
            if _is_leftover(path):
                path.unlink()

    def _metrics_lines(self) -> list[str]:
        if not self.metrics.is_file():
            return []
        # Ignore a line without a newline: half of a number may be a valid number.
        *lines, _ = self.metrics.read_text(encoding="utf-8", errors="replace").split("\n")
        return lines


def _is_leftover(path: Path) -> bool:
    """Tells if a file is an unfinished one of `write_whole`, which ends in a process number."""
    return path.is_file() and path.name.startswith(".") and path.suffix[1:].isdecimal()
