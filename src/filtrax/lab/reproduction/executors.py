"""Who trains the groups of a schedule: this process and others, or the workers of a Ray cluster.

A worker gets a group of cells and what is known of them, as the bytes of a packed file: their
unfinished states, and the models that they start from. It trains for a while in a folder of its own
and sends back what it has then, so that no folder is shared, and what is lost with a worker is what
it did since. A group whose worker was lost is given to another one.
"""

import contextlib
import dataclasses
import importlib
import io
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from filtrax.lab.experiments.ensembles import Policy, Silent, Stopped
from filtrax.lab.reproduction.group_run import GroupRun
from filtrax.lab.reproduction.groups import Group
from filtrax.lab.reproduction.packing import pack_files, packed_of, unpack_files
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.scheduling import Schedule
from filtrax.lab.reproduction.tables import Table

SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""Large models take seconds to write, and less than a minute of training is soon done again."""

SECONDS_PER_TURN = 600.0
"""After that long a worker sends back what it has, and goes on from there."""

SECONDS_BETWEEN_LOOKS = 1.0
"""While others train what is left."""

MOST_LOSSES = 5
"""So many workers may be lost with a group before something must be wrong with it."""

LEFT_TO_OTHERS = "Other processes train what is left, or what it starts from."


def train_here(schedule: Schedule) -> None:
    """Trains one group after the other in this process."""
    while not schedule.stop() and schedule.left():
        if not _any_step(schedule):
            schedule.watch.message(LEFT_TO_OTHERS)
            return


def train_and_wait(schedule: Schedule) -> None:
    """Trains one group after the other in this process, and waits for what others train.

    A group whose process ends before it is done is free again, so that nothing is waited for in
    vain.
    """
    told = False
    while not schedule.stop() and schedule.left():
        if _any_step(schedule):
            told = False
            continue
        if not told:
            schedule.watch.message(LEFT_TO_OTHERS)
            told = True
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _any_step(schedule: Schedule) -> bool:
    """Trains the first group that can be trained now; False if there is none."""
    results = schedule.results
    policy = Policy(schedule.stop, SECONDS_BETWEEN_CHECKPOINTS)
    for candidate in schedule.ready():
        with results.claimed(candidate.table, candidate.name) as mine:
            if mine and candidate in schedule.left():
                schedule.begin(candidate)
                table = schedule.tables[candidate.table]
                run = GroupRun(candidate, table, results, schedule.scale, schedule.watch, policy)
                with contextlib.suppress(Stopped):
                    run.train()
                return True
    return False


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a worker is asked to do.

    Attributes:
        group: The cells.
        table: Their table.
        scale: At which they are trained.
        files: What is known of them, packed.
        seconds: After which the worker stops at the end of an epoch.
        x64: Whether numbers have 64 bits where nothing is said of it, as in the process that asks.
        arguments: The command line of that process.
    """

    group: Group
    table: Table
    scale: str
    files: bytes
    seconds: float
    x64: bool
    arguments: tuple[str, ...]


class LostError(RuntimeError):
    """Workers were lost with the same cells again and again."""


def train_turn(turn: Turn) -> tuple[bytes, list[str]]:
    """Trains a group for a while: what is known of it then, packed, and what was said of it."""
    watch = _Messages()
    end = time.monotonic() + turn.seconds
    with tempfile.TemporaryDirectory(prefix="filtrax-") as folder:
        results = Results(Path(folder))
        unpack_files(io.BytesIO(turn.files), results, "what a worker was sent")
        policy = Policy(stop=lambda: time.monotonic() >= end)
        run = GroupRun(turn.group, turn.table, results, turn.scale, watch, policy)
        with (
            jax.enable_x64(turn.x64),
            _started_by(turn.arguments),
            contextlib.suppress(Stopped),
        ):
            run.train()
        return _packed(turn.group, results), watch.messages


class RayExecutor:
    """Deals groups out to the workers of a Ray cluster.

    Attributes:
        address: Of a cluster that there is; "auto" finds the one that this machine belongs to, and
            None starts one on this machine.
        cpus: That a worker needs.
        gpus: That a worker needs; 1 trains one group at a time on each.
        seconds: Of one turn.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
        seconds: float = SECONDS_PER_TURN,
    ):
        self.address, self.cpus, self.gpus, self.seconds = address, cpus, gpus, seconds

    def __call__(self, schedule: Schedule) -> None:
        """Trains all groups that can be trained, until none is left or time is over."""
        ray = importlib.import_module("ray")
        began = not ray.is_initialized()
        if began:
            ray.init(address=self.address, log_to_driver=False, configure_logging=False)
        try:
            _Dealer(ray, self, schedule).run()
        finally:
            if began:
                ray.shutdown()


class _Dealer:
    """One go through a schedule."""

    def __init__(self, ray: Any, executor: RayExecutor, schedule: Schedule):
        self.ray, self.executor, self.schedule = ray, executor, schedule
        # Ray's own retries would begin the same turn anew; here the files that came back count.
        options = {"num_cpus": executor.cpus, "num_gpus": executor.gpus, "max_retries": 0}
        self.remote = ray.remote(**options)(train_turn)
        self.running: dict[Any, tuple[Group, contextlib.ExitStack]] = {}
        self.losses: dict[str, int] = {}

    def run(self) -> None:
        """Deals and takes back until nothing is left to deal."""
        while True:
            if not self.schedule.stop():
                self._deal()
            if not self.running:
                if not self.schedule.stop() and self.schedule.left():
                    self.schedule.watch.message(LEFT_TO_OTHERS)
                return
            done, _ = self.ray.wait(list(self.running), num_returns=1)
            for reference in done:
                group, claim = self.running.pop(reference)
                with claim:
                    self._take_back(reference, group)
                self.schedule.end_of(group)

    def _deal(self) -> None:
        """Gives groups that can be trained, and are not yet, to the cluster."""
        results = self.schedule.results
        busy = {group.name for group, _ in self.running.values()}
        for group in self.schedule.ready():
            if len(self.running) >= self._most():
                return
            if group.name in busy:
                continue
            claim = contextlib.ExitStack()
            if not claim.enter_context(results.claimed(group.table, group.name)):
                claim.close()  # another process trains it
                continue
            self.schedule.begin(group)
            self.running[self.remote.remote(self._turn(group))] = (group, claim)

    def _most(self) -> float:
        """How many groups the cluster is given at once.

        It queues what is too much and may grow for it, but what waits does not know when time is
        over.
        """
        if self.schedule.end is None:
            return math.inf
        there = self.ray.cluster_resources()
        wanted = {"CPU": self.executor.cpus, "GPU": self.executor.gpus}
        fitting = [there.get(kind, 0.0) // need for kind, need in wanted.items() if need]
        return max(1.0, min(fitting, default=1.0))

    def _turn(self, group: Group) -> Turn:
        return Turn(
            group,
            self.schedule.tables[group.table],
            self.schedule.scale,
            _packed(group, self.schedule.results),
            self._seconds(),
            jnp.result_type(float) == jnp.float64,
            tuple(sys.argv),
        )

    def _seconds(self) -> float:
        left = self.schedule.seconds_left()
        return self.executor.seconds if left is None else min(self.executor.seconds, left)

    def _take_back(self, reference: Any, group: Group) -> None:
        errors = self.ray.exceptions
        try:
            files, messages = self.ray.get(reference)
        except errors.RayTaskError:
            raise
        except errors.RayError as error:
            self._lost(group, error)
            return
        unpack_files(io.BytesIO(files), self.schedule.results, "what a worker sent back")
        for message in messages:
            self.schedule.watch.message(message)

    def _lost(self, group: Group, error: Exception) -> None:
        count = self.losses[group.name] = self.losses.get(group.name, 0) + 1
        reason = type(error).__name__
        if count >= MOST_LOSSES:
            raise LostError(
                f"{count} workers were lost with {group.table} {group.name} ({reason}): see that "
                "they have enough memory, then run the same command again."
            ) from error
        self.schedule.watch.message(
            f"A worker was lost with {group.table} {group.name} ({reason}); another goes on."
        )


class _Messages(Silent):
    """Keeps what is said."""

    def __init__(self):
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def _packed(group: Group, results: Results) -> bytes:
    """What is known of a group, as bytes."""
    target = io.BytesIO()
    pack_files(target, results, packed_of(group, results))
    return target.getvalue()


@contextlib.contextmanager
def _started_by(arguments: Sequence[str]) -> Iterator[None]:
    """Lets the records of a worker name the command that began all, and not the worker's own."""
    before, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = before
