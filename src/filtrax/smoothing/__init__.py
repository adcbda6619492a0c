"""Smoothing: beliefs about every state of a recording, given all of it."""

from filtrax.smoothing._smooth import sample_path, smooth, smooth_trajectory
from filtrax.smoothing.base import AbstractSmoother, Paths, Sequence, Smoothed, smoother_of
from filtrax.smoothing.fixed_lag import FixedLag
from filtrax.smoothing.gaussian import RauchTungStriebel
from filtrax.smoothing.labels import self_label
from filtrax.smoothing.mixture import Kim
from filtrax.smoothing.particle import BackwardSimulation, MarginalSmoother

__all__ = [
    "AbstractSmoother",
    "BackwardSimulation",
    "FixedLag",
    "Kim",
    "MarginalSmoother",
    "Paths",
    "RauchTungStriebel",
    "Sequence",
    "Smoothed",
    "sample_path",
    "self_label",
    "smooth",
    "smooth_trajectory",
    "smoother_of",
]
