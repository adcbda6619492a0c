"""Named lists of measurements."""

import dataclasses
from collections.abc import Iterable

from filtrax._checks import check_known
from filtrax.lab.bench.measurements import (
    KEPT,
    PLAIN,
    RECOMPUTED,
    Gradient,
    Measurement,
    Online,
)
from filtrax.lab.bench.problems import DRAWN_FILTERS, FILTERS, Sizes
from filtrax.lab.bench.series import FILTER, PARALLEL, STEADY, Smoothing
from filtrax.lab.bench.trainings import RunTime, TrainingTime

COMPILED_PEERS = ("dynamax", "cuthbert")
PEERS = (*COMPILED_PEERS, "filterpy", "torch")
BASE = Sizes()

AXES = {
    "state": (2, 4, 8, 16, 32),
    "observation": (1, 2, 4, 8, 16),
    "batch": (1, 8, 64, 512, 4096),
    "steps": (10, 30, 100, 300, 1000),
    "particles": (10, 100, 1000, 10_000),
}
"""Values of each size whose cost is measured, with all other sizes as in `BASE`."""

CPU_LIMITS = {"batch": 512, "particles": 1000}
"""The largest values measured on CPUs; larger ones take minutes and tell nothing new."""


def quick() -> list[Measurement]:
    """One measurement of each kind, in about two minutes."""
    small = Sizes(batch=8, steps=20)
    gradients = [Gradient(name, small, peers=COMPILED_PEERS) for name in FILTERS]
    return [*gradients, Online("ekf", small, ("filterpy",)), TrainingTime("ekf", "tiny")]


def compared_on_cpu() -> list[Measurement]:
    """Gradients against compiled peers, and against eager ones for small problems."""
    found: list[Measurement] = []
    for name in ("ekf", "ukf"):
        for state, observation in ((4, 2), (10, 8)):
            for batch in (1, 32, 128):
                sizes = Sizes(state, observation, batch, 50)
                eager = name == "ekf" and state == 4 and batch < 128  # seconds a call
                peers = PEERS if eager else COMPILED_PEERS
                found.append(Gradient(name, sizes, peers=peers))
    particles = [Sizes(particles=count) for count in (100, 500)]
    return found + [Gradient("pf", sizes, peers=("torch",)) for sizes in particles]


def compared_on_gpu() -> list[Measurement]:
    """Gradients against all peers that run on GPUs."""
    found: list[Measurement] = []
    for name in ("ekf", "ukf"):
        for state, observation in ((4, 2), (10, 8)):
            for batch in (32, 256, 1024):
                sizes = Sizes(state, observation, batch, 50)
                found.append(Gradient(name, sizes, (PLAIN,), (*COMPILED_PEERS, "torch")))
    for count in (100, 500):
        for batch in (32, 256):
            sizes = Sizes(batch=batch, particles=count)
            found.append(Gradient("pf", sizes, peers=("torch",)))
    return found


def growing(limits: dict[str, int]) -> list[Measurement]:
    """Gradients for growing sizes, up to the given limits, and with and without recomputation."""
    found: list[Measurement] = []
    for axis, values in AXES.items():
        names = DRAWN_FILTERS if axis == "particles" else FILTERS
        for value in (value for value in values if value <= limits.get(axis, value)):
            sizes = dataclasses.replace(BASE, **{axis: value})
            found += [Gradient(name, sizes) for name in names]
    # Stored against recomputed residuals: memory against time.
    long = [Sizes(steps=steps) for steps in (100, 1000)]
    return found + [
        Gradient(name, sizes, (KEPT, RECOMPUTED)) for sizes in long for name in ("ekf", "pf")
    ]


def online_steps() -> list[Measurement]:
    """Online steps of all filters."""
    peers = ("filterpy",)
    return [
        Online(name, Sizes(state, observation, 1, 50), peers)
        for name in FILTERS
        for state, observation in ((4, 2), (10, 8))
    ]


def cpu() -> list[Measurement]:
    """The suite for CPUs, which takes about half an hour."""
    training = [TrainingTime(name, "small") for name in FILTERS] + [RunTime("ekf", "small")]
    return _once(online_steps() + compared_on_cpu() + training + growing(CPU_LIMITS))


def gpu() -> list[Measurement]:
    """The suite for GPUs, which takes about half an hour."""
    training: list[Measurement] = [TrainingTime(name, "paper", 2) for name in FILTERS]
    training += [RunTime("ekf", "paper")]
    return _once(compared_on_gpu() + training + growing({}) + online_steps())


def long() -> list[Measurement]:
    """Smoothing of growing series by both roads, and of batches, in about ten minutes."""
    found: list[Measurement] = []
    for steps in (100, 1000, 10_000, 100_000):
        ways = (PARALLEL, STEADY, FILTER)
        found.append(Smoothing(Sizes(batch=1, steps=steps), ways, COMPILED_PEERS))
    found += [
        Smoothing(Sizes(batch=batch, steps=steps), (FILTER,), COMPILED_PEERS)
        for batch, steps in ((32, 50), (32, 1000), (1024, 50))
    ]
    return found


def full() -> list[Measurement]:
    """All measurements."""
    return _once(gpu() + cpu() + long())


SUITES = {"quick": quick, "cpu": cpu, "gpu": gpu, "long": long, "full": full}


def suite(name: str) -> list[Measurement]:
    """Returns the measurements of the suite of a name."""
    check_known("A suite must be one of ours", {name} - {*SUITES}, [*SUITES])
    return SUITES[name]()


def _once(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Removes duplicate names; keeps the first measurement with the most variants and peers."""
    found: dict[str, Measurement] = {}
    for one in measurements:
        there = found.get(one.name)
        if there is None or _extent(one) > _extent(there):
            found[one.name] = one
    return list(found.values())


def _extent(one: Measurement) -> int:
    return len(getattr(one, "ways", ())) + len(getattr(one, "peers", ()))
