"""Comparisons of numbers with standard errors."""

import math
from collections.abc import Callable
from typing import Literal

from filtrax.lab.measures import Measured
from filtrax.lab.reproduction.values import mean_of

Outcome = Literal["holds", "open", "contradicts", "missing"]
Compare = Callable[[Measured, Measured], Outcome]
"""Judges a statement on two numbers."""


def order(low: Measured, high: Measured) -> Outcome:
    """Judges that the first number is below the second; "open" within two standard errors."""
    if low.value == high.value:  # also if both are infinite
        return "open"
    gap, errors = high.value - low.value, spread(low, high) or 0.0
    if abs(gap) <= errors:
        return "open"
    return "holds" if gap > 0 else "contradicts"


def likeness(tolerance: float) -> Compare:
    """Makes a comparison that holds if two values agree within two standard errors or `tolerance`.

    `tolerance` is relative to the smaller magnitude. Values that are not finite never agree; a
    larger difference without a standard error is "open".
    """

    def compare(one: Measured, other: Measured) -> Outcome:
        if not (math.isfinite(one.value) and math.isfinite(other.value)):
            return "contradicts"
        errors = spread(one, other)
        allowed = max(errors or 0.0, tolerance * min(abs(one.value), abs(other.value)))
        if abs(one.value - other.value) <= allowed:
            return "holds"
        return "open" if errors is None else "contradicts"

    return compare


def both(
    one: Measured | None, other: Measured | None, *, common: bool
) -> tuple[Measured, Measured] | None:
    """Returns both values, or None if one is missing.

    With `common`, they become means over their common parts; None if there are none.
    """
    if one is None or other is None:
        return None
    if not (common and one.parts and other.parts):
        return one, other
    labels = [label for label in one.parts if label in other.parts]
    if not labels:
        return None
    means = [mean_of({label: value.parts[label] for label in labels}) for value in (one, other)]
    return means[0], means[1]


def part_of(share: float, value: Measured | None, start: Measured | None) -> Measured | None:
    """Interpolates from a start to a value by a share, and propagates their errors."""
    if value is None or start is None:
        return None
    number = start.value + share * (value.value - start.value)
    if value.error is None or start.error is None:
        return Measured(number)
    return Measured(number, math.hypot(share * value.error, (1 - share) * start.error))


def paired(one: Measured, other: Measured) -> Measured | None:
    """Returns the mean paired difference, if both are means over the same parts; else None."""
    if not one.parts or one.parts.keys() != other.parts.keys() or one.error is None:
        return None
    gap = mean_of({label: value - one.parts[label] for label, value in other.parts.items()})
    return gap if math.isfinite(gap.value) else None


def spread(one: Measured, other: Measured) -> float | None:
    """Returns two standard errors of the difference; None if one is unknown."""
    gap = paired(one, other)
    if gap is not None and gap.error is not None:
        return 2 * gap.error
    if one.error is None or other.error is None:
        return None
    return 2 * math.hypot(one.error, other.error)
