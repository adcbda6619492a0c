"""What is wanted of tables: which cells, how large, and for how long."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Collection, Mapping, Sequence

from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.reproduction.tables import Cell, Table, cell_name

SHOWN_LABELS = 20
"""So many are named to who asks for one that does not exist."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is wanted of the tables.

    - `scale`: how large data and training are; see `SCALES`.
    - `only`: patterns as for file names; a cell whose name, or one of whose labels, matches.
    - `num_seeds`, `num_epochs`: in the place of the tables' own; the epochs are of all stages
      together, which keep their proportion.
    - `seconds`: after which training stops at the end of an epoch.
    - `together`: whether cells that can be are trained as one ensemble; if None, on a GPU.
    - `most_data_sets`: in one ensemble; if None, few where an encoder trains.
    - `settings`: assignments for all cells, also of tables that they start from.
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
        """Raises unless every pattern matches a cell, because one that does not is a mistake."""
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
        """The cells of a table that are wanted. Settings need not suit the others."""
        wanted = None
        if self.only:
            every = table.labels()
            wanted = [each for each in every if any(_matches(each, p) for p in self.only)]
        table = table.with_settings(self.settings) if self.settings else table
        cells = table.cells(self.scale, wanted)
        return [dataclasses.replace(cell, experiment=self._sized(cell)) for cell in cells]

    def _sized(self, cell: Cell) -> Experiment:
        experiment = cell.experiment
        # What neither trains nor begins with what was trained has nothing that seeds change.
        if self.num_seeds is not None and (experiment.stages or cell.start):
            experiment = dataclasses.replace(experiment, num_seeds=self.num_seeds)
        if self.num_epochs is not None and experiment.stages:
            stages = _shortened(experiment.stages, self.num_epochs)
            experiment = dataclasses.replace(experiment, stages=stages)
        return experiment


def _shortened(stages: Sequence[StageSettings], num_epochs: int) -> tuple[StageSettings, ...]:
    """The stages with so many epochs in all, at least one each."""
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
