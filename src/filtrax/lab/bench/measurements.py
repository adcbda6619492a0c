"""Benchmarks of filters: value and gradient of a batch, and single online steps.

Benchmarks of training are in `filtrax.lab.bench.trainings`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import jax
import jax.random as jr
import numpy as np

from filtrax._hooks import accelerated, acceleration
from filtrax.beliefs import Gaussian
from filtrax.filters import online
from filtrax.lab.bench import problems
from filtrax.lab.bench.calls import Call, check_agreement, value_and_gradient
from filtrax.lab.bench.clocks import Rounds, interleaved, ratio, rounded, summary
from filtrax.lab.bench.costs import program_costs
from filtrax.lab.bench.peaks import Peaks
from filtrax.lab.bench.problems import DRAWN_FILTERS, Problem, Sizes

OURS = "filtrax"
PLAIN, KEPT, RECOMPUTED = "filtrax plain loop", "filtrax kept", "filtrax recomputed"
"""Variants of ours: without kernels, with stored residuals, and with recomputed residuals."""

DRAWS = 4
"""Repeated runs of another library, whose spread bounds the difference of random filters."""

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Conditions:
    """The conditions of measurements.

    Attributes:
        peaks: The best rates of the device.
        peers: Other libraries by name.
        seconds: The time for each measurement, shared by its calls.
    """

    peaks: Peaks
    peers: Mapping[str, ModuleType] = dataclasses.field(default_factory=dict)
    seconds: float = 2.0


@runtime_checkable
class Measurement(Protocol):
    """Something that can be measured."""

    @property
    def name(self) -> str:
        """The unique name of the measurement with its sizes, which `only` patterns match."""
        ...

    def measure(self, conditions: Conditions) -> Record:
        """Measures, and returns the numbers of a record."""
        ...


@dataclasses.dataclass(frozen=True)
class Gradient:
    """Value and gradient of the loss of a batch.

    Attributes:
        filter: One of `problems.FILTERS`.
        sizes: The sizes of the problem.
        ways: Further variants of ours: `PLAIN`, `KEPT` or `RECOMPUTED`.
        peers: Libraries to compare with, if they are installed and have the filter.
    """

    filter: str
    sizes: Sizes
    ways: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the measurement with its sizes."""
        return f"gradient/{self.filter}/{self.sizes.name(self.filter in DRAWN_FILTERS)}"

    def measure(self, conditions: Conditions) -> Record:
        """Measures run times, compile times, memory and floor, after comparing the results."""
        problem = problems.make_problem(self.sizes)
        calls = {OURS: ours(self.filter, problem)}
        calls |= {way: ours(self.filter, problem, way) for way in self.ways}
        for name in self.peers:
            peer = conditions.peers.get(name)
            call = None if peer is None else peer.make_call(self.filter, problem)
            if call is not None:
                self._check(name, calls[OURS], call)
                calls[name] = call
        return _described("gradient", self.filter, self.sizes) | timed(calls, conditions)

    def _check(self, name: str, ours: Call, theirs: Call) -> None:
        if self.filter in DRAWN_FILTERS:
            check_draws(name, ours.run()[0], [theirs.run()[0] for _ in range(DRAWS)])
        else:
            check_agreement(name, ours.run(), theirs.run())


def ours(name: str, problem: Problem, way: str = OURS) -> Call:
    """Compiles value and gradient in one of our variants."""
    arguments = problems.arguments_of(problem)
    recompute = {OURS: None, PLAIN: None, KEPT: False, RECOMPUTED: True}[way]
    loss = problems.loss_of(name, problem.sizes, recompute)
    with acceleration(accelerated() and way != PLAIN):
        return value_and_gradient(loss, *arguments)


def check_draws(name: str, value: Any, values: list[Any]) -> None:
    """Raises unless a value is within the scatter of those of another random filter.

    The tolerance is six standard deviations plus one percent.
    """
    mean = float(np.mean(values))
    spread = 6 * float(np.std(values, ddof=1)) + 1e-2 * abs(mean)
    check_agreement(name, (value, {}), mean, value=spread / abs(float(value)))


@dataclasses.dataclass(frozen=True)
class Online:
    """One step of an online filter, which gets one reading at a time, as on a robot."""

    filter: str
    sizes: Sizes
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the measurement with its sizes."""
        sizes = self.sizes.name(self.filter in DRAWN_FILTERS)
        return f"online/{self.filter}/{sizes}"

    def measure(self, conditions: Conditions) -> Record:
        """Measures single steps; the summary has their 99th percentile, too."""
        problem = problems.make_problem(self.sizes)
        makers: dict[str, Callable[[], Call]] = {OURS: lambda: online_step(self.filter, problem)}
        for name in self.peers:
            maker = getattr(conditions.peers.get(name), "make_online", None)
            if maker is not None and maker(self.filter, problem) is not None:
                makers[name] = lambda maker=maker: maker(self.filter, problem)
        self._check(makers)
        calls = {name: make() for name, make in makers.items()}
        return _described("online", self.filter, self.sizes) | timed(calls, conditions)

    def _check(self, makers: Mapping[str, Callable[[], Call]]) -> None:
        """Runs all of them over five readings, and compares the final means."""
        if len(makers) == 1:
            return
        means = {}
        for name, make in makers.items():
            call = make()
            means[name] = [call.run() for _ in range(5)][-1]
        for name in makers:
            check_agreement(name, (means[OURS], {}), means[name])


def online_step(name: str, problem: Problem) -> Call:
    """Returns a call that makes one online step of ours, and blocks until its mean is ready."""
    model = problems.make_model(problems.arguments_of(problem)[0])
    loop = online(problems.make_filter(name, problem.sizes), model)
    size = problem.sizes.state
    key = jr.key(problems.SEED) if name in DRAWN_FILTERS else None
    prior = Gaussian(np.zeros(size, problem.dtype), np.eye(size, dtype=problem.dtype))
    belief = loop.init(prior, key=key)
    readings, count = problem.readings[0], 0

    def run() -> Any:
        nonlocal belief, count
        belief, _ = loop.step(belief, readings[count % len(readings)], key=key)
        count += 1
        return jax.block_until_ready(getattr(belief, "mean", belief))

    return Call(run)


def timed(calls: Mapping[str, Call], conditions: Conditions) -> Record:
    """Times interleaved calls, with the ratios of ours to the others, and our lower bound."""
    times = interleaved(
        {name: call.run for name, call in calls.items()}, seconds=conditions.seconds
    )
    record: Record = {
        "seconds": {name: summary(rounds) for name, rounds in times.items()},
        "ratios": _ratios(times),
        "compile_seconds": _known(calls, lambda call: call.compile_seconds),
        "memory_bytes": _known(calls, lambda call: call.memory_bytes),
    }
    program = calls[OURS].program
    if program is not None:
        costs = program_costs(program)
        if PLAIN in calls:  # the same operations, but none hidden inside of kernels
            hidden = program_costs(calls[PLAIN].program).operations
            costs = dataclasses.replace(costs, operations=max(costs.operations, hidden))
        record["costs"] = dataclasses.asdict(costs)
        record["floor"] = conditions.peaks.floor(costs)
    return record


def _described(kind: str, name: str, sizes: Sizes) -> Record:
    return {"kind": kind, "filter": name, "sizes": dataclasses.asdict(sizes)}


def _ratios(times: Mapping[str, Rounds]) -> dict[str, Any]:
    return {name: ratio(times[OURS], rounds) for name, rounds in times.items() if name != OURS}


def _known(calls: Mapping[str, Call], value: Callable[[Call], Any]) -> dict[str, float]:
    found = {name: value(call) for name, call in calls.items()}
    return {name: rounded(number) for name, number in found.items() if number is not None}
