"""Training filters and models end to end."""

from filtrax.training.checkpoints import load, save
from filtrax.training.fit import DivergenceError, History, Progress, fit
from filtrax.training.objectives import (
    Objective,
    filtering,
    l2,
    measurement_nll,
    process_nll,
    sensor_nll,
    weighted,
)

__all__ = [
    "DivergenceError",
    "History",
    "Objective",
    "Progress",
    "filtering",
    "fit",
    "l2",
    "load",
    "measurement_nll",
    "process_nll",
    "save",
    "sensor_nll",
    "weighted",
]
