"""Filters: stateless objects, belief in and belief out."""

from filtrax.filters.base import AbstractBayesFilter, AbstractFilter, Info
from filtrax.filters.extended_kalman import ExtendedKalmanFilter
from filtrax.filters.interacting import InteractingFilter
from filtrax.filters.kernels import AdaptiveKernel
from filtrax.filters.monte_carlo_kalman import MonteCarloUnscentedKalmanFilter
from filtrax.filters.online import OnlineFilter, online
from filtrax.filters.particle import ParticleFilter
from filtrax.filters.recurrent import RecurrentFilter
from filtrax.filters.run import filter_trajectory, run, run_with_info
from filtrax.filters.unscented_kalman import LearnedScaling, Scaling, UnscentedKalmanFilter

__all__ = [
    "AbstractBayesFilter",
    "AbstractFilter",
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
    "filter_trajectory",
    "online",
    "run",
    "run_with_info",
]
