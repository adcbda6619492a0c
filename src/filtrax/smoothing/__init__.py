"""Smoothing: beliefs about every state of a recording, given all of it."""

from filtrax.smoothing._smooth import run_parallel, sample_path, smooth, smooth_trajectory
from filtrax.smoothing.base import AbstractSmoother, Paths, Sequence, Smoothed, smoother_of
from filtrax.smoothing.chunks import (
    Chunk,
    FilteredChunk,
    likelihood_of_chunks,
    run_chunks,
    smooth_chunks,
)
from filtrax.smoothing.fixed_lag import FixedLag
from filtrax.smoothing.gaussian import RauchTungStriebel
from filtrax.smoothing.labels import self_label
from filtrax.smoothing.mixture import Kim
from filtrax.smoothing.parallel import ParallelInTime
from filtrax.smoothing.particle import BackwardSimulation, MarginalSmoother
from filtrax.smoothing.steady import SteadyState

__all__ = [
    "AbstractSmoother",
    "BackwardSimulation",
    "Chunk",
    "FilteredChunk",
    "FixedLag",
    "Kim",
    "MarginalSmoother",
    "ParallelInTime",
    "Paths",
    "RauchTungStriebel",
    "Sequence",
    "Smoothed",
    "SteadyState",
    "likelihood_of_chunks",
    "run_chunks",
    "run_parallel",
    "sample_path",
    "self_label",
    "smooth",
    "smooth_chunks",
    "smooth_trajectory",
    "smoother_of",
]
