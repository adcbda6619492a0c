"""Differentiable Bayesian filters whose models are trained end to end."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from filtrax import losses, metrics, networks, noise, resampling, training, trajectory
    from filtrax.beliefs import Gaussian, GaussianMixture, Particles, RecurrentBelief
    from filtrax.filters import (
        AdaptiveKernel,
        ExtendedKalmanFilter,
        Info,
        InteractingFilter,
        LearnedScaling,
        MonteCarloUnscentedKalmanFilter,
        OnlineFilter,
        ParticleFilter,
        RecurrentFilter,
        Scaling,
        UnscentedKalmanFilter,
        online,
        run,
        run_with_info,
    )
    from filtrax.likelihoods import GaussianLikelihood, LearnedLikelihood
    from filtrax.model import ResidualProcess, StateSpaceModel, simulate
    from filtrax.noise import StateHead, constant_noise, heteroscedastic_noise
    from filtrax.sensors import DirectSensor, Measurement, NetworkSensor, stack_sensors
    from filtrax.spaces import Space
    from filtrax.switching import (
        LearnedTransitions,
        Mode,
        SwitchingProcess,
        TransitionHead,
        Transitions,
        in_mode,
    )
    from filtrax.training import fit, load, save
    from filtrax.trajectory import Trajectory

__version__ = "0.1.0"

__all__ = [
    "AdaptiveKernel",
    "DirectSensor",
    "ExtendedKalmanFilter",
    "Gaussian",
    "GaussianLikelihood",
    "GaussianMixture",
    "Info",
    "InteractingFilter",
    "LearnedLikelihood",
    "LearnedScaling",
    "LearnedTransitions",
    "Measurement",
    "Mode",
    "MonteCarloUnscentedKalmanFilter",
    "NetworkSensor",
    "OnlineFilter",
    "ParticleFilter",
    "Particles",
    "RecurrentBelief",
    "RecurrentFilter",
    "ResidualProcess",
    "Scaling",
    "Space",
    "StateHead",
    "StateSpaceModel",
    "SwitchingProcess",
    "Trajectory",
    "TransitionHead",
    "Transitions",
    "UnscentedKalmanFilter",
    "constant_noise",
    "fit",
    "heteroscedastic_noise",
    "in_mode",
    "load",
    "losses",
    "metrics",
    "networks",
    "noise",
    "online",
    "resampling",
    "run",
    "run_with_info",
    "save",
    "simulate",
    "stack_sensors",
    "training",
    "trajectory",
]

_HOMES = {
    "filtrax.beliefs": ("Gaussian", "GaussianMixture", "Particles", "RecurrentBelief"),
    "filtrax.filters": (
        "AdaptiveKernel",
        "ExtendedKalmanFilter",
        "Info",
        "InteractingFilter",
        "LearnedScaling",
        "MonteCarloUnscentedKalmanFilter",
        "OnlineFilter",
        "ParticleFilter",
        "RecurrentFilter",
        "Scaling",
        "UnscentedKalmanFilter",
        "online",
        "run",
        "run_with_info",
    ),
    "filtrax.likelihoods": ("GaussianLikelihood", "LearnedLikelihood"),
    "filtrax.model": ("ResidualProcess", "StateSpaceModel", "simulate"),
    "filtrax.noise": ("StateHead", "constant_noise", "heteroscedastic_noise"),
    "filtrax.sensors": ("DirectSensor", "Measurement", "NetworkSensor", "stack_sensors"),
    "filtrax.spaces": ("Space",),
    "filtrax.switching": (
        "LearnedTransitions",
        "Mode",
        "SwitchingProcess",
        "TransitionHead",
        "Transitions",
        "in_mode",
    ),
    "filtrax.training": ("fit", "load", "save"),
    "filtrax.trajectory": ("Trajectory",),
}
"""Where the names are that are no modules of this package."""


def __getattr__(name: str) -> typing.Any:
    """Imports a public name when it is first used: the command line answers before JAX loads."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
