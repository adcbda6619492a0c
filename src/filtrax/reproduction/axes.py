"""What varies between the cells of a table, and how cells are named."""

import dataclasses
import re
from collections.abc import Callable, Iterable

from filtrax.experiments.parsing import PYTHON_ONLY
from filtrax.experiments.settings import Experiment
from filtrax.reproduction.rules import Selection

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
    """With which trained parts of a cell of another table the cells begin.

    - `table`: that table.
    - `axes`: the cell there has the same labels on these axes,
    - `labels`: and these on all others.
    - `parts`: what is taken over, named as in `train` of a stage.
    """

    table: str
    axes: tuple[str, ...] = ()
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ("model",)


def cell_name(labels: Iterable[str]) -> str:
    """The name of the cell with these labels, in the order of the axes."""
    return "_".join(_file_safe(label) for label in labels)


def _file_safe(label: str) -> str:
    for sign, word in {"/": " over ", "*": " times "}.items():
        label = label.replace(sign, word)
    return re.sub(r"[^a-z0-9.+-]+", "-", label.lower())
