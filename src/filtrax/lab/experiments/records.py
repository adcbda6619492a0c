"""The folder of a run: what is in it, and how it is written so that nothing is ever lost.

A file appears under its name only once it is complete, and lines that are appended are on the
disk before the call returns. After a crash there is at most one broken line at the end of the
metrics, which `read_metrics` leaves out and `truncate_metrics` removes.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from filtrax._files import write_whole
from filtrax.lab.files import RecordError, as_json, refused, replace, writing


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Making the object touches nothing; `create` makes the folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The full configuration."""
        return self.path / "config.toml"

    @property
    def provenance(self) -> Path:
        """Where the run comes from: versions, commit, device, seed, command."""
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        """One line per epoch."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """TensorBoard's events."""
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
        """What the report draws."""
        return self.path / "evaluation.npz"

    @property
    def report(self) -> Path:
        """The report of this run alone."""
        return self.path / "report.html"

    def checkpoint(self, number: int) -> Path:
        """Where a checkpoint is; its number says how many lines the metrics had then."""
        return self.path / "checkpoints" / f"checkpoint-{number:06d}.npz"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Numbers and files of the checkpoints that are there, newest first."""
        paths = self.path.glob("checkpoints/checkpoint-*.npz")
        numbered = [(path.stem.removeprefix("checkpoint-"), path) for path in paths]
        return sorted(((int(n), path) for n, path in numbered if n.isdecimal()), reverse=True)

    def create(self, *, resume: bool = False) -> None:
        """Makes the folder. One with content is refused, replace, unless the run in it goes on."""
        if resume:
            self.check()
        elif self.path.is_dir() and self._has_content():
            advice = f"go on with `{self._resume_command}` or choose" if self._is_run else "choose"
            raise RecordError(f"{self.path} is not empty: {advice} another folder with --out.")
        with writing(self.path):
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()

    def check(self) -> None:
        """Raises unless this is the folder of a run."""
        if not self.path.exists():
            raise RecordError(f"There is no run folder at {self.path}.")
        if not self._is_run:
            raise RecordError(f"{self.path} is not the folder of a run: it has no config.toml.")

    def clear(self) -> None:
        """Removes an earlier run from the folder, and nothing that a run did not write."""
        if not self._is_run:
            return
        with writing(self.path):
            self._remove_leftovers()
            for folder in (self.events, self.path / "checkpoints"):
                if folder.is_dir():
                    shutil.rmtree(folder)
            for name in ("provenance", "metrics", "model", "result", "evaluation", "report"):
                getattr(self, name).unlink(missing_ok=True)
            # Last, because it is what makes the folder one of a run.
            self.config.unlink()

    def write_json(self, path: Path, content: Any) -> None:
        """Writes a file of this folder as JSON; numbers that are not finite become null."""
        with self.writing(path):
            replace(path, as_json(content, indent=2) + "\n")

    def write_arrays(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes a file of this folder with named arrays."""

        def write(file: IO[bytes]) -> None:
            np.savez_compressed(file, allow_pickle=False, **arrays)

        with self.writing(path):
            write_whole(path, write)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds the line of one epoch. To be called before the checkpoint of that epoch."""
        with self.writing(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(as_json(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of all epochs; a last line that was never finished is left out."""
        records = []
        for number, line in enumerate(self._metrics_lines(), start=1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise RecordError(
                    f"Line {number} of {self.metrics} is damaged: {error}."
                ) from error
        return records

    def truncate_metrics(self, num_records: int) -> None:
        """Keeps the first lines alone: those that were there when a checkpoint was made."""
        with self.writing(self.metrics):
            kept = self._metrics_lines()[:num_records]
            replace(self.metrics, "".join(f"{line}\n" for line in kept))

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Turns the refusal of a disk into a sentence that says what is kept and how to go on."""
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
    def _resume_command(self) -> str:
        return f"filtrax train --resume {shlex.quote(str(self.path))}"

    def _has_content(self) -> bool:
        # A disk that is full from the start leaves the folder of checkpoints alone.
        empty = self.path / "checkpoints"
        entries = (path for path in self.path.iterdir() if path != empty or not path.is_dir())
        return any(entries) or (empty.is_dir() and any(empty.iterdir()))

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
            if path.is_file() and path.suffix[1:].isdecimal():
                path.unlink()

    def _metrics_lines(self) -> list[str]:
        if not self.metrics.is_file():
            return []
        # A line counts only with its end: half of a number is a number too.
        *lines, _ = self.metrics.read_text(encoding="utf-8", errors="replace").split("\n")
        return lines
