"""What varies between the cells of a table, and how cells are named."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

from filtrax.lab.config.parsing import PYTHON_ONLY
from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction.rules import Selection

Change = Callable[[Experiment], Experiment]


@dataclasses.dataclass(frozen=True)
class Value:
    """One place on an axis: what its cells have in common.

    - `label`: how it is called.
    - `set`: assignments as for `filtrax train --set`.
    - `change`: what assignments cannot say, as a function; made after all assignments.
    """

    label: str
    set: tuple[str, ...] = ()
    change: Change | None = dataclasses.field(default=None, metadata=PYTHON_ONLY)


@dataclasses.dataclass(frozen=True)
class Axis:
    """Something that varies between the cells of a table."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self):
        names = [_file_safe(label) for label in self.labels]
        if not names or len({*names}) < len(names):
            raise ValueError(
                f"Axis {self.name!r} must have labels that differ in letters and digits, "
                f"got {list(self.labels)}."
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its values."""
        return tuple(value.label for value in self.values)

    def value(self, label: str) -> Value:
        """The value of that name."""
        return self.values[self.labels.index(label)]


@dataclasses.dataclass(frozen=True)
class Adjustment:
    """Assignments for the cells with some labels only; `skip` leaves these cells out."""

    when: Selection
    set: tuple[str, ...] = ()
    skip: bool = False


@dataclasses.dataclass(frozen=True)
class Start:
    """With which trained parts of a cell of another table cells begin.

    - `table`: that table.
    - `when`: the cells that begin so; all if empty.
    - `axes`: the cell there has the same labels on these axes,
    - `labels`: and these on all others.
    - `parts`: what is taken over, named as in `train` of a stage.
    """

    table: str
    when: Selection = dataclasses.field(default_factory=dict)
    axes: tuple[str, ...] = ()
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ("model",)


@dataclasses.dataclass(frozen=True)
class Average:
    """Cells that differ in one axis alone are shown and judged as their mean.

    - `axis`: that axis.
    - `sets`: which of its labels are averaged, by the name of their mean. The rest of a table
      knows these names, and not the labels.
    """

    axis: str
    sets: dict[str, tuple[str, ...]]

    def __post_init__(self):
        if not self.sets or not all(self.sets.values()):
            raise ValueError(
                f"`average.sets` must name at least one mean, each of at least one label of axis "
                f"{self.axis!r}, got {self.sets}."
            )

    @property
    def shown(self) -> Axis:
        """The axis as the rest of the table knows it."""
        return Axis(self.axis, tuple(map(Value, self.sets)))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a number is shown: that of a cell, or the mean of several.

    - `labels`: by axis; on an averaged axis the name of the mean.
    - `cells`: the names of its cells by their label on the averaged axis, which is empty where
      there is no such axis.
    """

    labels: dict[str, str]
    cells: dict[str, str]


def places(cells: Sequence[dict[str, str]], average: Average | None) -> list[Place]:
    """What is shown of cells, in their order."""
    if average is None:
        return [Place(labels, {"": cell_name(labels.values())}) for labels in cells]
    found: dict[tuple[str, ...], Place] = {}
    for labels in cells:
        own = labels[average.axis]
        for name, averaged in average.sets.items():
            if own in averaged:
                shown = labels | {average.axis: name}
                place = found.setdefault((*shown.values(),), Place(shown, {}))
                place.cells[own] = cell_name(labels.values())
    return list(found.values())


def cell_name(labels: Iterable[str]) -> str:
    """The name of the cell with these labels, in the order of the axes."""
    return "_".join(_file_safe(label) for label in labels)


def _file_safe(label: str) -> str:
    for sign, word in {"/": " over ", "*": " times "}.items():
        label = label.replace(sign, word)
    return re.sub(r"[^a-z0-9.+-]+", "-", label.lower())
