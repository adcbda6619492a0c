"""Differentiable Bayesian filters whose models are trained end to end."""

from filtrax import losses, metrics, networks, noise, resampling, training, trajectory
from filtrax.beliefs import Gaussian, Particles, RecurrentBelief
from filtrax.filters import (
    ExtendedKalmanFilter,
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
    run_with_info,
)
from filtrax.likelihoods import GaussianLikelihood, LearnedLikelihood
from filtrax.model import ResidualProcess, StateSpaceModel, simulate
from filtrax.noise import StateHead, constant_noise, heteroscedastic_noise
from filtrax.sensors import DirectSensor, Measurement, NetworkSensor, stack_sensors
from filtrax.spaces import Space
from filtrax.training import fit, load, save
from filtrax.trajectory import Trajectory

__version__ = "0.1.0"

__all__ = [
    "DirectSensor",
    "ExtendedKalmanFilter",
    "Gaussian",
    "GaussianLikelihood",
    "Info",
    "LearnedLikelihood",
    "LearnedScaling",
    "Measurement",
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
    "Trajectory",
    "UnscentedKalmanFilter",
    "constant_noise",
    "fit",
    "heteroscedastic_noise",
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
