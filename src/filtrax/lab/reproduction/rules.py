"""What the file of a table says about claims: which cells, which metric, which order."""

import dataclasses
from collections.abc import Mapping

Selection = dict[str, str | tuple[str, ...]]
"""Labels by axis, one or several. An axis that is not named is not restricted."""


def matches(labels: Mapping[str, str], selection: Mapping[str, str | tuple[str, ...]]) -> bool:
    """Whether a cell has the selected labels; an axis that it lacks is never selected."""
    return all(labels.get(axis) in chosen(names) for axis, names in selection.items())


def chosen(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """The labels of one axis in a selection."""
    return (names,) if isinstance(names, str) else names


@dataclasses.dataclass(frozen=True)
class Rule:
    """One statement on the cells of a table, of exactly one form.

    - `lower`, `higher`: in every combination of the axes that neither names, each cell of the one
      has a lower value than each of the other.
    - `same`: in every combination of the axes that it does not name, no two of these cells differ
      by more than their errors, or by more than `tolerance` times the smaller one.
    - `below` or `above` or both: bounds for all cells that `where` selects.
    - `best`, `of`: in every combination of the axes that neither names, the lowest value among the
      cells of the one is below `share` times that of each cell of the other. With `over`, both
      count from the value of the cell that it selects.
    - `refused`: all these cells have settings that are refused.

    And besides:

    - `metric`: what is compared; `filtrax.lab.reproduction.claims.measured` says what there is, and
      "lost" is the number of lost runs of a cell.
    - `where`: restricts all forms to some cells.
    - `total`: the metric is added up over these axes before it is compared.
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
    """A sentence of the paper in our words, and the rules that must all hold if it is true.

    A goal of ours is one, too.
    """

    says: str
    rules: tuple[Rule, ...]
    section: str = ""

    def __post_init__(self):
        if not self.rules:
            raise ValueError(f"A claim must have at least one rule, got none for {self.says!r}.")


@dataclasses.dataclass(frozen=True)
class Lost:
    """When a run counts as lost.

    Its metric is not finite, or more than `factor` times the mean of the cell that has the labels
    `against` and is otherwise the same.
    """

    metric: str
    factor: float
    against: dict[str, str]
