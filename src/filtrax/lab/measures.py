"""The names, units and formats of the numbers that tables and pages show."""

import dataclasses
import math
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Measured:
    """A value, which is infinite if it was not finite, with its standard error, if known.

    `parts` are the values in a mean over several cells, by their labels on the averaged axis.
    """

    value: float
    error: float | None = None
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.value:.4g}" + ("" if self.error is None else f" ± {self.error:.2g}")


@dataclasses.dataclass(frozen=True)
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


def low(value: float) -> float:
    """The badness of a number that is good if it is low."""
    return value


def distance_to(ideal: float) -> Callable[[float], float]:
    """The badness of a number that is good if it is close to an ideal."""
    return lambda value: abs(value - ideal)
