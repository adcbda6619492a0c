"""Plans: the selection of cells, their scale, and the time limit."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Collection, Mapping, Sequence

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.reproduction.tables import Cell, Table, cell_name

SHOWN_LABELS = 20
"""The number of labels to list in errors on unknown ones."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cells of tables to train, and how.

    - `scale`: the size of data and training; see `SCALES`.
    - `only`: glob patterns that match the name or a label of a cell; all cells if empty.
    - `num_seeds`, `num_epochs`: replace those of the tables. Epochs are distributed over stages in
      proportion.
    - `seconds`: the time after which training stops at the end of an epoch.
    - `together`: train several cells as one ensemble; by default, on GPUs only.
    - `most_data_sets`: the largest number of data sets in one ensemble; see `groups.group`.
    - `settings`: assignments for all cells, including those of tables that they start from.
    """

    scale: str = "paper"
    only: tuple[str, ...] = ()
    num_seeds: int | None = None
    num_epochs: int | None = None
    seconds: float | None = None
    together: bool | None = None
    most_data_sets: int | None = None
    settings: tuple[str, ...] = ()

    def check(self, tables: Collection[Table]) -> None:
        """Raises `ValueError` unless every pattern matches a cell."""
        if not self.only:
            return
        cells = [labels for table in tables for labels in table.labels()]
        wrong = [p for p in self.only if not any(_matches(labels, p) for labels in cells)]
        if not wrong:
            return
        axes = [axis for table in tables for axis in table.axes]
        labels = dict.fromkeys(label for axis in axes for label in axis.labels)
        names = [*labels, *(cell_name(each.values()) for each in cells)]
        closest = difflib.get_close_matches(wrong[0], names, n=1)
        shown = ", ".join([*labels][:SHOWN_LABELS]) + ", …" * (len(labels) > SHOWN_LABELS)
        raise ValueError(
            f"`only` must match a label or the name of a cell: got {wrong[0]!r}, but there are "
            f"the labels {shown} and names like {names[len(labels)]}."
            + (f" Did you mean {closest[0]!r}?" if closest else "")
        )

    def cells(self, table: Table) -> list[Cell]:
        """Returns the selected cells of a table. `settings` may be invalid for the others."""
        wanted = None
        if self.only:
            every = table.labels()
            wanted = [each for each in every if any(_matches(each, p) for p in self.only)]
        table = table.with_settings(self.settings) if self.settings else table
        cells = table.cells(self.scale, wanted)
        return [dataclasses.replace(cell, experiment=self._sized(cell)) for cell in cells]

    def _sized(self, cell: Cell) -> Experiment:
        experiment = cell.experiment
        # Seeds change nothing in cells without any trained parts.
        if self.num_seeds is not None and (experiment.stages or cell.start):
            experiment = dataclasses.replace(experiment, num_seeds=self.num_seeds)
        if self.num_epochs is not None and experiment.stages:
            stages = _shortened(experiment.stages, self.num_epochs)
            experiment = dataclasses.replace(experiment, stages=stages)
        return experiment


def _shortened(stages: Sequence[StageSettings], num_epochs: int) -> tuple[StageSettings, ...]:
    """Distributes a number of epochs over stages in proportion, with at least one each."""
    planned = sum(stage.num_epochs for stage in stages)
    if num_epochs < len(stages):
        raise ValueError(
            f"`num_epochs` must be at least 1 for each of the {len(stages)} stages of training, "
            f"got {num_epochs}."
        )
    ends = [sum(stage.num_epochs for stage in stages[: i + 1]) for i in range(len(stages))]
    shares: list[int] = []
    for i, end in enumerate(ends):
        wanted = round(end * num_epochs / planned) - sum(shares)
        left = num_epochs - sum(shares) - (len(stages) - 1 - i)
        shares.append(min(max(1, wanted), left))
    pairs = zip(stages, shares, strict=True)
    return tuple(dataclasses.replace(stage, num_epochs=share) for stage, share in pairs)


def _matches(labels: Mapping[str, str], pattern: str) -> bool:
    names = [cell_name(labels.values()), *labels.values()]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)
