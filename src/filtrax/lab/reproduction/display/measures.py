"""Names, formats and order of the metrics that are compared with the paper."""

from filtrax.lab.measures import Measure, distance_to, low
from filtrax.lab.registry import registered
from filtrax.lab.tasks import AbstractTask

_MEASURES = {
    "distance": Measure("mean distance", badness=low),
    "nll": Measure("NLL", badness=low),
    "moment_nll": Measure("NLL of the moments", badness=low),
    "sensor_error": Measure("sensor error", badness=low),
    "sensor_std_visible": Measure("predicted sensor std, target visible"),
    "sensor_std_hidden": Measure("predicted sensor std, target hidden"),
    "nees": Measure("NEES"),
    "coverage_50": Measure("coverage of 50 % intervals", "", 1, True, distance_to(0.5)),
    "coverage_90": Measure("coverage of 90 % intervals", "", 1, True, distance_to(0.9)),
    "noise_correlation": Measure(
        "correlation of sensor noise and visible pixels", badness=low, undefined="constant noise"
    ),
    "process_noise_distance": Measure("distance D_Q to the true process noise", "", 3, False, low),
    "parameters": Measure("trained parameters", decimals=0),
    "epoch_seconds": Measure("training time of an epoch and seed", "s"),
    "lost": Measure("lost runs", decimals=0),
}
"""Measures of all tasks. A task names those that differ, or are its own, in its `measures`."""


def measure_of(metric: str, task: str = "disc") -> Measure:
    """Returns the measure of a metric; unknown metrics have their name and no order."""
    cls = (registered(AbstractTask) or {}).get(task)
    known = _MEASURES | (dict(cls.measures) if cls is not None else {})  # pyright: ignore
    return known.get(metric) or Measure(metric.replace("_", " "))
