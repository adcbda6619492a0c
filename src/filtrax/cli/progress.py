"""Progress of a run: a bar on a terminal, one line per epoch elsewhere.

Both implement `filtrax.lab.experiments.ensembles.Watch`, which is not imported here to keep help
fast.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from filtrax.cli.tables import metric_name, number

Clock = Callable[[], float]


class Stage:
    """The progress of one stage, with an estimate of the remaining time."""

    def __init__(self, name: str, num_epochs: int, num_steps_per_epoch: int, now: float):
        self.name = name
        self.num_epochs = num_epochs
        self.num_steps_per_epoch = num_steps_per_epoch
        self.started = now
        self.steps_done = 0
        self.record: Mapping[str, Any] = {"epoch": 0, "members": []}
        self._marks: list[tuple[int, float]] = []

    @property
    def epoch(self) -> int:
        """The last finished epoch; 0 before training."""
        return self.record["epoch"]

    @property
    def done(self) -> float:
        """The number of finished epochs, including the fraction of the current one."""
        return self.epoch + self.steps_done / max(self.num_steps_per_epoch, 1)

    def add(self, record: Mapping[str, Any], now: float) -> None:
        """Adds the record of a finished epoch."""
        self.record = record
        self.steps_done = 0
        self._marks.append((record["epoch"], now))

    def time_left(self, now: float) -> float | None:
        """Estimates the seconds until the stage ends; None before two epochs were recorded."""
        if len(self._marks) < 2:
            return None
        # The first two epochs compile: one evaluates for the first time, the other trains.
        first_epoch, first_time = self._marks[min(1, len(self._marks) - 2)]
        last_epoch, last_time = self._marks[-1]
        pace = (last_time - first_time) / max(last_epoch - first_epoch, 1)
        return max((self.num_epochs - last_epoch) * pace - (now - last_time), 0.0)

    def numbers(self) -> list[str]:
        """Describes loss, validation metrics and rollbacks of the last epoch."""
        members = self.record["members"]
        if not members:
            return []
        validation = [member.get("validation") or {} for member in members]
        names = dict.fromkeys(name for metrics in validation for name in metrics)
        parts = [f"loss {_mean(members, 'loss')}"]
        parts += [f"validation {metric_name(name)} {_mean(validation, name)}" for name in names]
        parts += [f"rollbacks {sum(member.get('rollbacks') or 0 for member in members)}"]
        if len(members) > 1:
            parts += [f"means of {len(members)} members"]
        return parts


class BarWatch:
    """Shows a bar with the numbers of the last epoch under it."""

    def __init__(self, console: Console, clock: Clock = time.monotonic):
        self._console = console
        self._clock = clock
        self._stage: Stage | None = None
        self._live = Live(console=console, get_renderable=self._render, transient=True)

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        self._finish_stage()
        self._stage = Stage(stage, num_epochs, num_steps_per_epoch, self._clock())
        self._live.start()
        self._live.refresh()

    def step(self, done: int) -> None:
        if self._stage is not None:
            self._stage.steps_done = done

    def epoch(self, record: Mapping[str, Any]) -> None:
        if self._stage is not None:
            self._stage.add(record, self._clock())
        self._live.refresh()

    def message(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"))

    def __enter__(self) -> "BarWatch":
        return self

    def __exit__(self, error: object, *details: object) -> None:
        if error is None:
            self._finish_stage()
        self._live.stop()

    def _finish_stage(self) -> None:
        """Replaces the bar of a finished stage by one line."""
        stage, self._stage = self._stage, None
        if stage is not None and stage.epoch > 0:
            took = duration(self._clock() - stage.started)
            parts = [f"{stage.name}: {stage.epoch} epochs in {took}", *stage.numbers()]
            self._console.print(Text(", ".join(parts)))

    def _render(self) -> Group:
        stage = self._stage
        if stage is None:
            return Group()
        left = stage.time_left(self._clock())
        idle = left is None and stage.steps_done == 0
        clock = f"step {stage.steps_done}" if left is None else f"{duration(left)} left"
        clock = "compiling" if idle else clock
        clock = "finished" if stage.epoch >= stage.num_epochs else clock
        line = Table.grid(padding=(0, 1), expand=False)
        bar = ProgressBar(stage.num_epochs, stage.done, width=24, pulse=idle)
        line.add_row(Text(stage.name, style="bold"), bar, _epochs(stage), clock)
        return Group(line, Text(", ".join(stage.numbers()), style="cyan"))


class LineWatch:
    """Prints one line per epoch, for files and logs."""

    def __init__(self, console: Console, clock: Clock = time.monotonic):
        self._console = console
        self._clock = clock
        self._stage: Stage | None = None

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        self._stage = Stage(stage, num_epochs, num_steps_per_epoch, self._clock())
        self._print(f"{stage}: {num_epochs} epochs of {num_steps_per_epoch} steps")

    def step(self, done: int) -> None:
        pass

    def epoch(self, record: Mapping[str, Any]) -> None:
        stage, now = self._stage, self._clock()
        if stage is None:
            return
        stage.add(record, now)
        left = stage.time_left(now)
        parts = [f"{stage.name}: {_epochs(stage)}", *stage.numbers()]
        parts += [duration(now - stage.started)]
        parts += [] if left is None else [f"{duration(left)} left"]
        self._print(", ".join(parts))

    def message(self, text: str) -> None:
        self._print(text)

    def __enter__(self) -> "LineWatch":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def watch(console: Console | None = None, clock: Clock = time.monotonic) -> BarWatch | LineWatch:
    """Returns a bar for a terminal and lines otherwise; the default console is stderr."""
    console = Console(stderr=True) if console is None else console
    return (BarWatch if console.is_terminal else LineWatch)(console, clock)


@contextlib.contextmanager
def counting(name: str, console: Console | None = None) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on a terminal, and nothing elsewhere; yields `update(done, total)`."""
    console = Console(stderr=True) if console is None else console
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(name)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def duration(seconds: float) -> str:
    """Formats seconds as 4:05 or 1:04:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _epochs(stage: Stage) -> str:
    return f"epoch {stage.epoch} of {stage.num_epochs}"


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Averages over members with a finite number; diverged members have none."""
    values = [row[name] for row in rows if row.get(name) is not None]
    finite = [float(value) for value in values if math.isfinite(value)]
    return number(sum(finite) / len(finite) if finite else None)
