"""Executors that train the groups of a schedule: in this process, or on a Ray cluster.

A Ray worker gets a group of cells with their files (unfinished states, and models that they start
from) as the bytes of a packed file. It trains for one turn in a temporary folder and sends the
files back, so that no folder is shared. If a worker is lost, another one repeats its last turn.
"""

import contextlib
import dataclasses
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
from filtrax.lab.plugins import Shipped
from filtrax.lab.reproduction.clusters import connect, import_ray
from filtrax.lab.reproduction.group_run import GroupRun
from filtrax.lab.reproduction.groups import Group
from filtrax.lab.reproduction.packing import pack_files, packed_of
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.scheduling import Schedule
from filtrax.lab.reproduction.tables import Table
from filtrax.lab.reproduction.unpacking import unpack_files

SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""Writing large models takes seconds, and at most a minute of training must be repeated."""

SECONDS_PER_TURN = 600.0
"""Default length of a turn, after which a worker sends its files back."""

SECONDS_BETWEEN_LOOKS = 1.0
"""The polling interval while other processes train the remaining cells."""

MOST_LOSSES = 5
"""The number of lost workers with the same group after which execution fails."""

LEFT_TO_OTHERS = "Other processes train what is left, or what it starts from."


def train_here(schedule: Schedule) -> None:
    """Trains groups one after another in this process; returns when others train the rest."""
    while not schedule.stop() and schedule.left():
        if not _any_step(schedule):
            schedule.watch.message(LEFT_TO_OTHERS)
            return


def train_and_wait(schedule: Schedule) -> None:
    """Trains groups one after another in this process, and waits for those that others train.

    If a process ends before its group is done, its claim is released, and this process continues
    the group.
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
    """Trains the first group that is ready and not claimed; returns False if there is none."""
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
    """The task of a worker.

    Attributes:
        plugins: Loads the plugins of the calling process, before anything that needs them is read.
        group: The cells to train.
        table: Their table.
        scale: The scale of training, one of `SCALES`.
        files: The files of the group, packed.
        seconds: The time after which the worker stops at the end of an epoch.
        x64: The setting `jax_enable_x64` of the calling process.
        arguments: The command line of the calling process.
    """

    plugins: Shipped
    group: Group
    table: Table
    scale: str
    files: bytes
    seconds: float
    x64: bool
    arguments: tuple[str, ...]


class LostError(RuntimeError):
    """Workers were lost repeatedly with the same cells."""


def train_turn(turn: Turn) -> tuple[bytes, list[str]]:
    """Trains a group for one turn; returns its packed files, and messages for the watch."""
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
    """Distributes groups to the workers of a Ray cluster.

    Attributes:
        address: The address of a running cluster; "auto" finds the one of this machine, and None
            starts one on this machine.
        cpus: The CPUs of a worker.
        gpus: The GPUs of a worker; 1 trains one group at a time on each GPU.
        seconds: The length of one turn.
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
        """Trains all groups that are ready until none is left or time is over."""
        ray = import_ray()
        began = not ray.is_initialized()
        if began:
            connect(ray, self.address)
        try:
            _Dealer(ray, self, schedule).run()
        finally:
            if began:
                ray.shutdown()


class _Dealer:
    """The execution of one schedule on a Ray cluster."""

    def __init__(self, ray: Any, executor: RayExecutor, schedule: Schedule):
        self.ray, self.executor, self.schedule = ray, executor, schedule
        # No retries by Ray, which would repeat a turn with its old files.
        options = {"num_cpus": executor.cpus, "num_gpus": executor.gpus, "max_retries": 0}
        self.remote = ray.remote(**options)(train_turn)
        self.running: dict[Any, tuple[Group, contextlib.ExitStack]] = {}
        self.losses: dict[str, int] = {}

    def run(self) -> None:
        """Submits turns and collects their results until no group is left or ready."""
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
        """Submits a turn for each group that is ready, unclaimed and not running."""
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
        """Returns the largest number of groups to submit at once.

        Without a time limit there is no bound: the cluster queues turns and may grow. With one,
        turns in the queue would start too late, so there are only as many as fit.
        """
        if self.schedule.end is None:
            return math.inf
        there = self.ray.cluster_resources()
        wanted = {"CPU": self.executor.cpus, "GPU": self.executor.gpus}
        fitting = [there.get(kind, 0.0) // need for kind, need in wanted.items() if need]
        return max(1.0, min(fitting, default=1.0))

    def _turn(self, group: Group) -> Turn:
        return Turn(
            Shipped(),
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
    """A watch that collects messages."""

    def __init__(self):
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def _packed(group: Group, results: Results) -> bytes:
    """Packs the files of a group into bytes."""
    target = io.BytesIO()
    pack_files(target, results, packed_of(group, results))
    return target.getvalue()


@contextlib.contextmanager
def _started_by(arguments: Sequence[str]) -> Iterator[None]:
    """Replaces `sys.argv`, so that records name the user's command and not the worker's."""
    before, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = before
