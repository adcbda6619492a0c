"""Filters: stateless objects, belief in and belief out."""

from filtrax.filters._online import OnlineFilter, as_dicts, online
from filtrax.filters._run import Filtered, filter_trajectory, run
from filtrax.filters.base import AbstractBayesFilter, AbstractFilter, Info
from filtrax.filters.extended import ExtendedKalmanFilter
from filtrax.filters.interacting import IMMFilter
from filtrax.filters.kernels import AdaptiveKernel
from filtrax.filters.links import Lagged, Link
from filtrax.filters.monte_carlo import MonteCarloUnscentedKalmanFilter
from filtrax.filters.particle import ParticleFilter
from filtrax.filters.recurrent import RecurrentFilter
from filtrax.filters.unscented import LearnedScaling, Scaling, UnscentedKalmanFilter

__all__ = [
    "AbstractBayesFilter",
    "AbstractFilter",
    "AdaptiveKernel",
    "ExtendedKalmanFilter",
    "Filtered",
    "IMMFilter",
    "Info",
    "Lagged",
    "LearnedScaling",
    "Link",
    "MonteCarloUnscentedKalmanFilter",
    "OnlineFilter",
    "ParticleFilter",
    "RecurrentFilter",
    "Scaling",
    "UnscentedKalmanFilter",
    "as_dicts",
    "filter_trajectory",
    "online",
    "run",
]
