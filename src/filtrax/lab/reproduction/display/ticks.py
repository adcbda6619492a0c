"""Scales of charts, which map numbers to pixels, and their ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from filtrax.lab.report.charts import Axis, Numbers


@dataclass(frozen=True)
class Scale:
    """Maps numbers of an axis to pixels.

    Attributes:
        low: The number at the start of the axis.
        high: The number at its end.
        start: The pixel of the start.
        stop: The pixel of the end.
        log: Use a logarithmic scale.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (
            (math.log(number) for number in (self.low, self.high, value))
            if self.log
            else (self.low, self.high, value)
        )
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Returns round numbers on the axis, usually four to seven."""
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)


def scale_of(axis: Axis, values: Sequence[Numbers | None], start: float, stop: float) -> Scale:
    """Returns a scale that contains all finite numbers with some margin."""
    numbers = np.concatenate([np.ravel(v) for v in values if v is not None] or [np.zeros(0)])
    finite = numbers[np.isfinite(numbers) & ((numbers > 0) | (not axis.log))]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (1.0, 2.0)
    if axis.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if axis.log:
        room = max((high / low) ** 0.06, 1.05)
        return Scale(low / room, high * room, start, stop, log=True)
    room = 0.06 * (high - low) or max(abs(high) * 0.1, 0.5)
    # No margin below an axis that starts at zero.
    bottom = low if axis.zero and low == 0 else low - room
    return Scale(bottom, high + room, start, stop)


def number(value: float) -> str:
    """Formats the number of a tick with at most six digits."""
    return f"{value:.6g}".replace("-", "−")


def _ticks(low: float, high: float) -> list[float]:
    step = _round_step((high - low) / 7)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(step for step in (1, 2, 5, 10) if step >= rough / power - 1e-9)


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 4:
            return inside
    return inside if len(inside) >= 2 else _ticks(low, high)
