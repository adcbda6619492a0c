"""The benchmark problem for all libraries, and its implementation with ours.

A nonlinear model of any size whose four arrays are trained:

    x' = A (x + s sin x) + q ε,   z = C (x + s sin x) + r η,   s = 0.1

The loss is the mean over a batch of -ln p(z_1, ..., z_T) / T, which every library computes. The
model takes few operations, so that timings are those of the filter.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._types import Inputs, Observation, State
from filtrax.filters import (
    AbstractFilter,
    ExtendedKalmanFilter,
    MonteCarloUnscentedKalmanFilter,
    ParticleFilter,
    UnscentedKalmanFilter,
    filter_trajectory,
)
from filtrax.noise import DiagonalNoise
from filtrax.sensors import DirectSensor
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

SWING = 0.1
"""The strength s of the nonlinearity; 0 is a linear model."""

FILTERS = ("ekf", "ukf", "mcukf", "pf")
DRAWN_FILTERS = ("mcukf", "pf")
"""Random filters, whose values differ between implementations."""

SEED = 0

Parameters = dict[str, Any]
"""`dynamics` A, `matrix` C, `process_std` q and `observation_std` r."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a problem; `particles` is the number of samples of random filters."""

    state: int = 4
    observation: int = 2
    batch: int = 32
    steps: int = 50
    particles: int = 100

    def name(self, drawn: bool) -> str:
        """Returns a name like x4_z2_b32_t50, with _n100 appended if samples are drawn."""
        sizes = f"x{self.state}_z{self.observation}_b{self.batch}_t{self.steps}"
        return f"{sizes}_n{self.particles}" if drawn else sizes


@dataclasses.dataclass(frozen=True)
class Problem:
    """Parameters and readings as NumPy arrays, which every library accepts."""

    sizes: Sizes
    parameters: Parameters
    readings: np.ndarray

    @property
    def dtype(self) -> Any:
        """The dtype of all arrays."""
        return self.readings.dtype


def make_problem(sizes: Sizes, dtype: Any = np.float32) -> Problem:
    """Draws a random stable model, and readings from it."""
    draw = np.random.default_rng(SEED)
    dynamics = draw.normal(size=(sizes.state, sizes.state))
    dynamics *= 0.85 / np.linalg.norm(dynamics, 2)
    matrix = draw.normal(size=(sizes.observation, sizes.state)) / np.sqrt(sizes.state)
    process_std = draw.uniform(0.5, 1.0, sizes.state)
    observation_std = draw.uniform(0.5, 1.0, sizes.observation)
    states = draw.normal(size=(sizes.batch, sizes.state))
    readings = np.empty((sizes.batch, sizes.steps, sizes.observation))
    for t in range(sizes.steps):
        moved = (states + SWING * np.sin(states)) @ dynamics.T
        states = moved + process_std * draw.normal(size=states.shape)
        seen = (states + SWING * np.sin(states)) @ matrix.T
        readings[:, t] = seen + observation_std * draw.normal(size=seen.shape)
    parameters = {
        "dynamics": dynamics,
        "matrix": matrix,
        "process_std": process_std,
        "observation_std": observation_std,
    }
    typed = {name: value.astype(dtype) for name, value in parameters.items()}
    return Problem(sizes, typed, readings.astype(dtype))


def make_filter(name: str, sizes: Sizes) -> AbstractFilter:
    """Makes the filter of a name (see `FILTERS`) with its default settings."""
    check_known("A filter must be one of ours", {name} - {*FILTERS}, FILTERS)
    if name == "mcukf":
        return MonteCarloUnscentedKalmanFilter(num_samples=sizes.particles)
    if name == "pf":
        return ParticleFilter(num_particles=sizes.particles)
    return {"ekf": ExtendedKalmanFilter, "ukf": UnscentedKalmanFilter}[name]()


class Bent(eqx.Module):
    """The function M (x + s sin x), for process and observations."""

    matrix: Float[Array, "y x"]

    def __call__(self, state: State, inputs: Inputs) -> Observation:
        """Maps a state."""
        del inputs
        return self.matrix @ (state + SWING * jnp.sin(state))


def make_model(parameters: Parameters) -> StateSpaceModel:
    """Makes the state-space model of a problem."""
    return StateSpaceModel(
        process=Bent(parameters["dynamics"]),
        process_noise=noise_of(parameters["process_std"]),
        observe=Bent(parameters["matrix"]),
        sensor=DirectSensor(noise_of(parameters["observation_std"])),
    )


def noise_of(std: Any) -> DiagonalNoise:
    """Returns noise of these standard deviations, to train."""
    return DiagonalNoise(std, jnp.ones_like(std), (0.0,) * std.shape[0])


def loss_of(name: str, sizes: Sizes, recompute: bool | None = None) -> Any:
    """Returns the benchmarked `loss(parameters, readings, keys)`."""
    filt = make_filter(name, sizes)

    def loss(parameters, readings, keys):
        model = make_model(parameters)
        size, dtype = len(parameters["dynamics"]), readings.dtype

        def one(readings, key):
            prior = (jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
            trajectory = Trajectory(*prior, readings)
            key = key if name in DRAWN_FILTERS else None
            result = filter_trajectory(filt, model, trajectory, recompute=recompute, key=key)
            assert result.log_likelihood is not None
            return -result.log_likelihood / readings.shape[0]

        return jax.vmap(one)(readings, keys).mean()

    return loss


def arguments_of(problem: Problem) -> tuple[Any, ...]:
    """Returns the arguments of the loss as arrays on the device."""
    keys = jr.split(jr.key(SEED), problem.sizes.batch)
    parameters = {name: jnp.asarray(value) for name, value in problem.parameters.items()}
    return parameters, jnp.asarray(problem.readings), keys
