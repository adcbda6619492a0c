"""The experiments that a table consists of."""

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

    - `planned_epochs`: of all stages together, as the table says at this scale.
    - `start`: table and name of the cell that it begins with, and which parts of it; or None.
    """

    table: str
    labels: dict[str, str]
    experiment: Experiment
    planned_epochs: int
    start: tuple[str, str, tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        """All labels in the order of the axes, in letters that any file system takes."""
        return cell_name(self.labels.values())

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, as they stand in a record."""
        return json.loads(as_json(as_dict(self.experiment)))

    def made(self, record: Mapping[str, Any], *, ignoring: str = "") -> bool:
        """Whether a record was made with these settings, but perhaps for one of them."""
        found = completed(record["config"], self.experiment)
        return {**found, ignoring: None} == {**self.settings, ignoring: None}
