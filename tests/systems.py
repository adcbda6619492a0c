"""Small systems that several tests use."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
import filtrax.filters
from filtrax import Gaussian, Space, StateSpaceModel, constant_noise
from filtrax.switching import AbstractTransitions
from oracles.kalman import LinearSystem
from oracles.switching import SwitchingSystem


def names(prefix: str, size: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i}" for i in range(size))


class Linear(eqx.Module):
    """A matrix as a process or an observation, so that one compiled program serves many."""

    state: jax.Array
    inputs: jax.Array | None = None

    def __call__(self, state, inputs=None):
        moved = self.state @ state
        return moved if self.inputs is None else moved + self.inputs @ inputs


def linear_model(system: LinearSystem, dtype=float) -> tuple[StateSpaceModel, Gaussian]:
    """The model and the prior of a linear system."""
    convert = functools.partial(jnp.asarray, dtype=dtype)
    size, observed = system.F.shape[0], system.H.shape[0]
    model = StateSpaceModel(
        state_space=Space(names("x", size)),
        observation_space=Space(names("z", observed)),
        process=Linear(convert(system.F), convert(system.G)),
        process_noise=constant_noise(convert(system.Q)),
        observe=Linear(convert(system.H)),
        sensor=filtrax.DirectSensor(constant_noise(convert(system.R))),
    )
    return model, Gaussian(convert(system.mean), convert(system.covariance))


def switching_model(
    system: SwitchingSystem, transitions: AbstractTransitions | None = None
) -> tuple[StateSpaceModel, Gaussian]:
    """The model and the prior of a switching linear system; all its modes are one program."""
    given = filtrax.Transitions(system.transitions) if transitions is None else transitions
    models = [linear_model(mode)[0] for mode in system.modes]
    modes = [filtrax.Mode(m.process, m.process_noise, m.observe, m.sensor.noise) for m in models]
    model, prior = linear_model(system.modes[0])
    process = filtrax.SwitchingProcess(model.process, tuple(modes), given, tuple(system.initial))
    return dataclasses.replace(model, process=process), prior


def _target(std: float) -> LinearSystem:
    """Position and velocity along a line, pushed by random accelerations."""
    return LinearSystem(
        F=np.array([[1.0, 1.0], [0.0, 0.95]]),
        G=np.zeros((2, 2)),
        H=np.array([[1.0, 0.0]]),
        Q=std**2 * np.array([[0.3, 0.5], [0.5, 1.0]]),
        R=np.eye(1),
        mean=np.zeros(2),
        covariance=np.eye(2),
    )


MANOEUVRES = SwitchingSystem(
    (_target(0.05), _target(3.0)), np.array([[0.95, 0.05], [0.2, 0.8]]), np.array([0.8, 0.2])
)
"""A target that moves smoothly most of the time, and sometimes does not."""


POSE = Space(("x", "y", "heading"), angles=("heading",))
POLAR = Space(("range", "bearing"), angles=("bearing",))


def drive(state, inputs):
    """A unicycle: inputs are (distance, turn)."""
    x, y, heading = state
    distance, turn = inputs
    return jnp.stack(
        [x + distance * jnp.cos(heading), y + distance * jnp.sin(heading), heading + turn]
    )


def see_beacon(state, inputs):
    """Range and bearing of a beacon."""
    del inputs
    offset = jnp.asarray([6.0, 2.0], state.dtype) - state[:2]
    bearing = jnp.arctan2(offset[1], offset[0]) - state[2]
    return jnp.stack([jnp.sqrt(offset @ offset), bearing])


def beacon_model(process_std=(0.1, 0.1, 0.05), sensor_std=(0.2, 0.1)) -> StateSpaceModel:
    """Localization by a beacon: nonlinear, with angles in state and observation."""
    return StateSpaceModel(
        state_space=POSE,
        observation_space=POLAR,
        process=drive,
        process_noise=constant_noise(jnp.asarray(process_std)),
        observe=see_beacon,
        sensor=filtrax.DirectSensor(constant_noise(jnp.asarray(sensor_std))),
    )


def skid(state, inputs):
    """A unicycle whose wheels spin: it turns, and hardly moves."""
    distance, turn = inputs
    return drive(state, jnp.stack([0.2 * distance, turn]))


def switching_beacon_model() -> StateSpaceModel:
    """The beacon system with a second mode, in which wheels spin and the sensor shakes."""
    model = beacon_model()
    skids = filtrax.Mode(
        process=skid,
        process_noise=constant_noise(jnp.asarray([0.2, 0.2, 0.1])),
        sensor_noise=constant_noise(jnp.asarray([0.3, 0.2])),
    )
    chances = filtrax.Transitions([[0.9, 0.1], [0.3, 0.7]])
    process = filtrax.SwitchingProcess(drive, (filtrax.Mode(), skids), chances)
    return dataclasses.replace(model, process=process)


def beacon_prior() -> Gaussian:
    """Starts close to where the heading wraps around."""
    return Gaussian(jnp.asarray([0.0, 0.0, 2.5]), jnp.diag(jnp.asarray([0.2, 0.2, 0.1])))


def beacon_trajectory(num_steps: int, seed: int = 0) -> filtrax.Trajectory:
    inputs = jnp.tile(jnp.asarray([0.3, 0.15]), (num_steps, 1))
    return filtrax.simulate(beacon_model(), beacon_prior(), inputs=inputs, key=jr.key(seed))


def kalman_filters() -> dict[str, filtrax.filters.AbstractFilter]:
    """The filters that equal the Kalman filter on linear models."""
    return {
        "ekf": filtrax.ExtendedKalmanFilter(),
        "iterated_ekf": filtrax.ExtendedKalmanFilter(iterations=3),
        "ukf": filtrax.UnscentedKalmanFilter(),
        "mcukf": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=24),
    }


def all_filters(space: Space = POSE, observed: int = 2, input_size: int = 2):
    """One of each kind, and the options that change their arithmetic."""
    scaled = filtrax.Scaling(kappa=-1.0)
    return kalman_filters() | {
        "ukf_paper": filtrax.UnscentedKalmanFilter(redraw=False),
        "ukf_dropped_centre": filtrax.UnscentedKalmanFilter(scaled, drop_negative_centre=True),
        "mcukf_paper": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=24, redraw=False),
        "imm": filtrax.IMMFilter(),
        "pf": filtrax.ParticleFilter(num_particles=30),
        "pf_whitened": filtrax.ParticleFilter(num_particles=30, whiten_noise=True),
        "lstm": filtrax.RecurrentFilter(
            filtrax.Features(space),
            observed,
            input_size=input_size,
            hidden_size=8,
            num_layers=2,
            decoder_sizes=(8,),
            key=jr.key(0),
        ),
    }


def as_float32(tree):
    """The same tree in single precision."""
    cast = lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf  # noqa: E731
    return jax.tree.map(cast, tree)
