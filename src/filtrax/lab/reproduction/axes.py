"""The axes of a table: how its cells vary, and how they are named."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

from filtrax.lab.config.parsing import PYTHON_ONLY
from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction.rules import Selection

Change = Callable[[Experiment], Experiment]


@dataclasses.dataclass(frozen=True)
class Value:
    """A value on an axis: the settings that its cells share.

    - `label`: its name.
    - `set`: assignments as for `filtrax train --set`.
    - `change`: a function for other changes, applied after all assignments.
    """

    label: str
    set: tuple[str, ...] = ()
    change: Change | None = dataclasses.field(default=None, metadata=PYTHON_ONLY)


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis along which the cells of a table vary."""

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
        """The labels of its values."""
        return tuple(value.label for value in self.values)

    def value(self, label: str) -> Value:
        """Returns the value with a label."""
        return self.values[self.labels.index(label)]


@dataclasses.dataclass(frozen=True)
class Adjustment:
    """Assignments for the cells that `when` selects; `skip` removes these cells."""

    when: Selection
    set: tuple[str, ...] = ()
    skip: bool = False


@dataclasses.dataclass(frozen=True)
class Start:
    """The initialization of cells with trained parts of a cell of another table.

    - `table`: the name of the other table.
    - `when`: selects the cells to initialize; all if empty.
    - `axes`: the axes on which the other cell has the same labels.
    - `labels`: the labels of the other cell on its other axes.
    - `parts`: the parts to copy, named as in `train` of a stage.
    """

    table: str
    when: Selection = dataclasses.field(default_factory=dict)
    axes: tuple[str, ...] = ()
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ("model",)


@dataclasses.dataclass(frozen=True)
class Average:
    """An average over one axis, so that means of cells are shown and judged.

    - `axis`: the name of the axis.
    - `sets`: the labels to average, by the name of their mean. The rest of the table uses these
      names instead of the labels.
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
        """The axis with the names of means as labels."""
        return Axis(self.axis, tuple(map(Value, self.sets)))


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a number in a table: that of a cell, or of the mean of several cells.

    - `labels`: labels by axis; the name of the mean on an averaged axis.
    - `cells`: the names of its cells by their labels on the averaged axis, or by "" without one.
    """

    labels: dict[str, str]
    cells: dict[str, str]


def places(cells: Sequence[dict[str, str]], average: Average | None) -> list[Place]:
    """Returns the places of cells with the given labels, in order."""
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
    """Returns the file-safe name of the cell with these labels, given in the order of the axes."""
    return "_".join(_file_safe(label) for label in labels)


def _file_safe(label: str) -> str:
    for sign, word in {"/": " over ", "*": " times "}.items():
        label = label.replace(sign, word)
    return re.sub(r"[^a-z0-9.+-]+", "-", label.lower())
