"""The experiments of a table."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from filtrax.lab.config import as_dict, completed
from filtrax.lab.config.settings import Experiment
from filtrax.lab.files import as_json
from filtrax.lab.reproduction.axes import cell_name


@dataclasses.dataclass(frozen=True)
class Cell:
    """One experiment of a table.

    - `planned_epochs`: the table's number of epochs at this scale, summed over stages.
    - `start`: table and name of the cell that it starts from, and the parts to copy; or None.
    """

    table: str
    labels: dict[str, str]
    experiment: Experiment
    planned_epochs: int
    start: tuple[str, str, tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        """The file-safe name made of its labels, in the order of the axes."""
        return cell_name(self.labels.values())

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, as in a record."""
        return json.loads(as_json(as_dict(self.experiment)))

    def made(self, record: Mapping[str, Any], *, ignoring: str = "") -> bool:
        """Returns True if a record has these settings, apart from the one named `ignoring`."""
        found = completed(record["config"], self.experiment)
        return {**found, ignoring: None} == {**self.settings, ignoring: None}
