"""Metrics of beliefs, over any number of steps and sequences.

Arrays may have any leading axes (time, batch); `labelled` marks the entries that count.
"""

from filtrax.metrics.calibration import coverage, nees, nis
from filtrax.metrics.noise import bhattacharyya_distance, noise_correlation
from filtrax.metrics.odometry import end_errors
from filtrax.metrics.tracking import (
    component_errors,
    mean_distance,
    mean_mixture_nll,
    mean_nll,
    sensor_error,
)

__all__ = [
    "bhattacharyya_distance",
    "component_errors",
    "coverage",
    "end_errors",
    "mean_distance",
    "mean_mixture_nll",
    "mean_nll",
    "nees",
    "nis",
    "noise_correlation",
    "sensor_error",
]
