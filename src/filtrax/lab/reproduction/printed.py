"""Reads the printed numbers of a paper from a small table of text."""

import dataclasses
import functools
import re
from collections.abc import Container, Mapping

NOTHING = ("–", "-", "")
"""Entries without a number."""


@dataclasses.dataclass(frozen=True)
class PrintedNumbers:
    """Rows of entries under a header that names axes and metrics."""

    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def find(self, labels: Mapping[str, str], metric: str) -> tuple[float, float | None] | None:
        """Returns value and standard error of the first row with these labels and the metric.

        Labels of axes that are not in the header are ignored. The error is None if it is not
        printed, and the result is None without such a row.
        """
        for row in self._named:
            if row.get(metric, "") in NOTHING:
                continue
            if all(row[name] == label for name, label in labels.items() if name in row):
                return _number(row[metric])
        return None

    def labels(self, metrics: Container[str]) -> list[dict[str, str]]:
        """Returns the labels of all rows, by all names of the header that are no metrics."""
        return [
            {name: text for name, text in row.items() if name not in metrics} for row in self._named
        ]

    @functools.cached_property
    def _named(self) -> list[dict[str, str]]:
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


def printed_numbers(text: str) -> PrintedNumbers:
    """Reads lines of entries separated by bars: "value ± standard error", "value" or "–"."""
    lines = [line for line in text.splitlines() if line.strip()]
    entries = [tuple(entry.strip() for entry in line.split("|")) for line in lines]
    for row in entries:
        if len(row) != len(entries[0]):
            raise ValueError(
                f"`paper` must have the {len(entries[0])} entries of its header in every line, "
                f"got {list(row)}."
            )
    header, *rows = entries or [()]
    return PrintedNumbers(header, tuple(rows))


def _number(text: str) -> tuple[float, float | None]:
    found = re.fullmatch(r"([+-]?[\d.]+)(?:\s*±\s*([\d.]+))?", text)
    if found is None:
        raise ValueError(f"`paper` must hold numbers like 6.1 ± 0.54, or –, got {text!r}.")
    value, error = found.groups()
    return float(value), None if error is None else float(error)
