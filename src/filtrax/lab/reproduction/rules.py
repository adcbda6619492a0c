"""Claims in the file of a table, as rules on selected cells and their metrics."""

import dataclasses
from collections.abc import Mapping

Selection = dict[str, str | tuple[str, ...]]
"""One label or several labels by axis. Axes that are not named are not restricted."""


def matches(labels: Mapping[str, str], selection: Mapping[str, str | tuple[str, ...]]) -> bool:
    """Returns True if a cell has the selected labels; False if it lacks a selected axis."""
    return all(labels.get(axis) in chosen(names) for axis, names in selection.items())


def chosen(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the labels of one axis in a selection as a tuple."""
    return (names,) if isinstance(names, str) else names


@dataclasses.dataclass(frozen=True)
class Rule:
    """A statement on the cells of a table, in exactly one of these forms.

    - `lower`, `higher`: each cell of `lower` has a lower value than each cell of `higher` with the
      same labels on all axes that neither of them names.
    - `same`: no two of these cells with the same labels on all other axes differ by more than
      their errors, or by more than `tolerance` times the smaller value.
    - `below`, `above` or both: bounds on all cells that `where` selects.
    - `best`, `of`: the lowest value among the cells of `best` is below `share` times the value of
      each cell of `of`, for the same labels on all axes that neither names. With `over`, both
      values are relative to that of the cell that it selects.
    - `refused`: the settings of all these cells are refused as invalid.

    Further fields:

    - `metric`: the metric to compare, one of `filtrax.lab.reproduction.claims.measured`, or "lost",
      the number of lost runs of a cell.
    - `where`: restricts the rule to some cells.
    - `total`: axes over which the metric is summed before the comparison.
    """

    metric: str = ""
    where: Selection = dataclasses.field(default_factory=dict)
    lower: Selection | None = None
    higher: Selection | None = None
    same: Selection | None = None
    tolerance: float = 0.0
    below: float | None = None
    above: float | None = None
    best: Selection | None = None
    of: Selection | None = None
    share: float = 1.0
    over: Selection | None = None
    refused: Selection | None = None
    total: tuple[str, ...] = ()

    def __post_init__(self):
        forms = {
            "`lower` with `higher`": self.lower is not None and self.higher is not None,
            "`same`": self.same is not None,
            "`below` or `above`": self.below is not None or self.above is not None,
            "`best` with `of`": self.best is not None and self.of is not None,
            "`refused`": self.refused is not None,
        }
        pairs = ((self.lower, self.higher), (self.best, self.of))
        if sum(forms.values()) != 1 or any((a is None) != (b is None) for a, b in pairs):
            raise ValueError(f"A rule must have exactly one of {', '.join(forms)}.")
        if (self.refused is None) == (not self.metric):
            raise ValueError("A rule must have a `metric`, unless it is about `refused` cells.")

    @property
    def selections(self) -> tuple[Selection, ...]:
        """All selections of the rule."""
        found = (self.where, self.lower, self.higher, self.same, self.refused)
        found += (self.best, self.of, self.over)
        return tuple(selection for selection in found if selection is not None)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, or a goal of ours, with the rules that it implies.

    - `says`: the claim in our words.
    - `rules`: the rules that must all hold.
    - `section`: the section of the paper, if any.
    """

    says: str
    rules: tuple[Rule, ...]
    section: str = ""

    def __post_init__(self):
        if not self.rules:
            raise ValueError(f"A claim must have at least one rule, got none for {self.says!r}.")


@dataclasses.dataclass(frozen=True)
class Lost:
    """The criterion for lost runs.

    A run is lost if its metric is not finite, or exceeds `factor` times the mean of the cell with
    the labels `against` and otherwise the same labels.
    """

    metric: str
    factor: float
    against: dict[str, str]
