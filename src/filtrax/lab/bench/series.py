"""Benchmarks of long series: a linear model, smoothed step by step and in parallel over time.

The model is that of `filtrax.lab.bench.problems` without its nonlinearity, so that both roads are
exact and other libraries have both.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from filtrax.filters import ExtendedKalmanFilter, filter_trajectory
from filtrax.lab.bench.calls import Call, check_agreement, compiled
from filtrax.lab.bench.measurements import OURS, Conditions, Record, timed
from filtrax.lab.bench.problems import (
    Parameters,
    Problem,
    Sizes,
    arguments_of,
    make_problem,
    noise_of,
)
from filtrax.sensors import DirectSensor
from filtrax.smoothing import (
    AbstractSmoother,
    ParallelInTime,
    RauchTungStriebel,
    SteadyState,
    smooth_trajectory,
)
from filtrax.state_space import Linear, StateSpaceModel
from filtrax.trajectory import Trajectory

PARALLEL, STEADY, FILTER = "filtrax in parallel", "filtrax constant gains", "filtrax filter alone"
"""Variants of ours: as a scan, with gains that stop being computed, and without smoothing."""

ROADS: dict[str, AbstractSmoother] = {
    OURS: RauchTungStriebel(),
    PARALLEL: ParallelInTime(),
    STEADY: SteadyState(),
}


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """Smoothed means, covariances and the likelihood of a batch of long series.

    Attributes:
        sizes: The sizes of the problem.
        ways: Further variants of ours.
        peers: Libraries to compare with, if they are installed and can smooth.
    """

    sizes: Sizes
    ways: tuple[str, ...] = (PARALLEL, FILTER)
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the measurement with its sizes."""
        return f"smoothing/{self.sizes.name(False)}"

    def measure(self, conditions: Conditions) -> Record:
        """Measures run times, compile times, memory and floor, after comparing the results."""
        problem = make_problem(self.sizes)
        calls = {way: smoothing_call(problem, way) for way in (OURS, *self.ways)}
        for name in self.peers:
            maker = getattr(conditions.peers.get(name), "make_smoothing", None)
            call = None if maker is None else maker(problem)
            for road, one in ({} if call is None else call).items():
                calls[f"{name}{road}"] = one
        expected = calls[OURS].run()
        for name, call in calls.items():
            if name != FILTER:  # whose beliefs are others
                found = call.run()
                pair = (
                    (found[2].sum(), {"mean": found[0]}),
                    (expected[2].sum(), {"mean": expected[0]}),
                )
                check_agreement(name, *pair)
        described = {"kind": "smoothing", "filter": "ekf", "sizes": dataclasses.asdict(self.sizes)}
        return described | timed(calls, conditions)


def linear_model(parameters: Parameters) -> StateSpaceModel:
    """Makes the model of a problem without its nonlinearity."""
    return StateSpaceModel(
        process=Linear(parameters["dynamics"]),
        process_noise=noise_of(parameters["process_std"]),
        observe=Linear(parameters["matrix"]),
        sensor=DirectSensor(noise_of(parameters["observation_std"])),
    )


def smoothing_call(problem: Problem, way: str = OURS) -> Call:
    """Compiles one of our variants: means, covariances and log likelihoods."""
    parameters, readings, _ = arguments_of(problem)
    return compiled(jax.vmap(smoothing_of(parameters, way)), readings)


def smoothing_of(parameters: Parameters, way: str) -> Callable[[Any], Any]:
    """Returns the function of the readings of one series."""
    model, filt = linear_model(parameters), ExtendedKalmanFilter()
    size = parameters["dynamics"].shape[0]

    def one(readings):
        prior = (jnp.zeros(size, readings.dtype), jnp.eye(size, dtype=readings.dtype))
        trajectory = Trajectory(*prior, readings)
        if way == FILTER:
            found = filter_trajectory(filt, model, trajectory)
        else:
            found = smooth_trajectory(filt, model, trajectory, smoother=ROADS[way])
        return found.beliefs.mean, found.beliefs.covariance, found.log_likelihood

    return one
