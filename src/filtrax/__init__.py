"""Differentiable Bayesian filters whose models are trained end to end."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from filtrax import (
        logs,
        losses,
        metrics,
        models,
        networks,
        noise,
        plot,
        poses,
        resampling,
        smoothing,
        training,
        trajectory,
    )
    from filtrax._given import given, given_field
    from filtrax._hooks import acceleration
    from filtrax.beliefs import Gaussian, GaussianMixture, Particles, RecurrentBelief
    from filtrax.filters import (
        AdaptiveKernel,
        ExtendedKalmanFilter,
        Filtered,
        IMMFilter,
        Info,
        LearnedScaling,
        MonteCarloUnscentedKalmanFilter,
        OnlineFilter,
        ParticleFilter,
        RecurrentFilter,
        Scaling,
        UnscentedKalmanFilter,
        online,
        run,
    )
    from filtrax.likelihoods import GaussianLikelihood, LearnedLikelihood
    from filtrax.networks import Features, fast
    from filtrax.noise import StateHead, constant_noise, heteroscedastic_noise
    from filtrax.sensors import DirectSensor, Measurement, NetworkSensor, stack_sensors
    from filtrax.smoothing import Smoothed, sample_path, smooth
    from filtrax.spaces import Euclidean, Space
    from filtrax.state_space import Linear, ResidualProcess, StateSpaceModel, simulate
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

_HOMES = {
    "filtrax": (
        "logs",
        "losses",
        "metrics",
        "models",
        "networks",
        "noise",
        "plot",
        "poses",
        "resampling",
        "smoothing",
        "training",
        "trajectory",
    ),
    "filtrax._given": ("given", "given_field"),
    "filtrax._hooks": ("acceleration",),
    "filtrax.beliefs": ("Gaussian", "GaussianMixture", "Particles", "RecurrentBelief"),
    "filtrax.filters": (
        "AdaptiveKernel",
        "ExtendedKalmanFilter",
        "Filtered",
        "IMMFilter",
        "Info",
        "LearnedScaling",
        "MonteCarloUnscentedKalmanFilter",
        "OnlineFilter",
        "ParticleFilter",
        "RecurrentFilter",
        "Scaling",
        "UnscentedKalmanFilter",
        "online",
        "run",
    ),
    "filtrax.likelihoods": ("GaussianLikelihood", "LearnedLikelihood"),
    "filtrax.networks": ("Features", "fast"),
    "filtrax.noise": ("StateHead", "constant_noise", "heteroscedastic_noise"),
    "filtrax.sensors": ("DirectSensor", "Measurement", "NetworkSensor", "stack_sensors"),
    "filtrax.smoothing": ("Smoothed", "sample_path", "smooth"),
    "filtrax.spaces": ("Euclidean", "Space"),
    "filtrax.state_space": ("Linear", "ResidualProcess", "StateSpaceModel", "simulate"),
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
"""The public names, by the module that has them."""

_RENAMED = {
    "run_with_info": "`run(filter, model, prior, readings, inputs=..., info=True)` returns beliefs "
    "and info in one object",
    "InteractingFilter": "it is called `IMMFilter`",
}

__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore


def __getattr__(name: str) -> typing.Any:
    """Imports a public name when it is first used: the command line answers before JAX loads."""
    if name in _RENAMED:
        raise AttributeError(f"filtrax has no `{name}`: {_RENAMED[name]}.")
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == __name__:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
