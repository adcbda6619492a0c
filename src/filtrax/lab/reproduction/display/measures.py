"""Names, formats and order of the metrics that are compared with the paper."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from filtrax.lab.reproduction.values import Measured


@dataclass(frozen=True)
class Measure:
    """The heading, unit and format of a metric.

    Smaller values of `badness` are better; without it, values are not compared. `undefined` is
    the text for values that are not finite.
    """

    heading: str
    unit: str = ""
    decimals: int = 2
    percent: bool = False
    badness: Callable[[float], float] | None = None
    undefined: str = "not finite"

    @property
    def label(self) -> str:
        """The heading with its unit."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    def text(self, measured: Measured | None) -> str:
        """Formats a number with its standard error; a dash if it is missing."""
        if measured is None:
            return "–"
        if not math.isfinite(measured.value):
            return self.undefined
        value = self._number(measured.value)
        # Exact numbers, like counts of parameters, have an error of zero, which is not shown.
        value += f" ± {self._number(measured.error)}" if measured.error else ""
        return f"{value} %" if self.percent else value

    def _number(self, value: float) -> str:
        text = f"{100 * value if self.percent else value:,.{self.decimals}f}"
        return text.replace("-", "−").replace(",", " ")

    def outcome(self, ours: Measured, paper: Measured) -> str:
        """Returns "better" or "worse" beyond two standard errors of the difference, else "within".

        The standard error of the difference is √(a² + b²), where unknown errors count as zero.
        Without `badness` the result is "".
        """
        if self.badness is None:
            return ""
        spread = 2 * math.hypot(ours.error or 0.0, paper.error or 0.0)
        # Numbers that are equal as printed are not different.
        digit = 10.0**-self.decimals * (0.01 if self.percent else 1.0)
        if abs(ours.value - paper.value) <= max(spread, 0.5 * digit):
            return "within"
        return "better" if self.badness(ours.value) < self.badness(paper.value) else "worse"


def _low(value: float) -> float:
    return value


def _distance_to(ideal: float) -> Callable[[float], float]:
    return lambda value: abs(value - ideal)


_MEASURES = {
    "distance": Measure("mean distance", "px", badness=_low),
    "nll": Measure("NLL", badness=_low),
    "moment_nll": Measure("NLL of the moments", badness=_low),
    "sensor_error": Measure("sensor error", "px", badness=_low),
    "sensor_std_visible": Measure("predicted sensor std, disc visible", "px"),
    "sensor_std_hidden": Measure("predicted sensor std, disc hidden", "px"),
    "nees": Measure("NEES (ideal 4)", badness=_distance_to(4.0)),
    "coverage_50": Measure("coverage of 50 % intervals", "", 1, True, _distance_to(0.5)),
    "coverage_90": Measure("coverage of 90 % intervals", "", 1, True, _distance_to(0.9)),
    "noise_correlation": Measure(
        "correlation of sensor noise and visible pixels", badness=_low, undefined="constant noise"
    ),
    "process_noise_distance": Measure("distance D_Q to the true process noise", "", 3, False, _low),
    "parameters": Measure("trained parameters", decimals=0),
    "epoch_seconds": Measure("training time of an epoch and seed", "s"),
    "lost": Measure("lost runs", decimals=0),
}


_OF_TASK = {
    "kitti": {
        "distance": Measure("mean distance", "m, °, m/s, °/s together", badness=_low),
        "sensor_error": Measure("sensor error", "m/s, °/s together", badness=_low),
        "nll": Measure("NLL", decimals=1, badness=_low),
        "nees": Measure("NEES (ideal 5)", badness=_distance_to(5.0)),
        "translation_error": Measure("translation error at the end", "m/m", 3, False, _low),
        "rotation_error": Measure("rotation error at the end", "°/m", 3, False, _low),
    },
    "pushing": {
        "distance": Measure("mean distance", "mm, °, cm² together", badness=_low),
        "sensor_error": Measure("sensor error", "mm, ° together", badness=_low),
        "nll": Measure("NLL", decimals=1, badness=_low),
        "nees": Measure("NEES (ideal 10)", badness=_distance_to(10.0)),
        "translation": Measure("translation error", "mm", badness=_low),
        "rotation": Measure("rotation error", "°", badness=_low),
    },
}
"""Measures of a task that differ from `_MEASURES`, or are not in it."""


def measure_of(metric: str, task: str = "disc") -> Measure:
    """Returns the measure of a metric; unknown metrics have their name and no order."""
    known = _MEASURES | _OF_TASK.get(task, {})
    return known.get(metric) or Measure(metric.replace("_", " "))
