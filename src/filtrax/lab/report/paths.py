"""Maps of sequences seen from above, for tasks whose images do not show positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtrax.lab.report.charts import Axis, Chart, Series, with_unit
from filtrax.lab.report.components import component_names, component_units, heading_component
from filtrax.lab.report.reading import Run
from filtrax.lab.report.summaries import mean_and_error
from filtrax.lab.report.tables import RATES, signed, value_and_error
from filtrax.lab.report.views import image_view

NO_BREAK = "\u00a0"
"""A no-break space."""


def paths(runs: Sequence[Run]) -> dict[str, Any]:
    """Charts the paths of all runs, one chart for each shown sequence.

    Runs whose images show positions have no charts, because the player shows their paths.
    """
    tracks = [track for style, run in enumerate(runs) for track in _tracks(run, style)]
    same: dict[bytes, list[_Track]] = {}
    for track in tracks:
        same.setdefault(track.truth.tobytes(), []).append(track)
    charts = [_chart(group) for group in same.values()]
    summaries = [_summary(run) for run in runs if _has_rates(run)] if charts else []
    return {"charts": charts, "summaries": summaries}


@dataclass(frozen=True)
class _Track:
    """The true and estimated path of one run in one sequence."""

    run: Run
    style: int
    index: int

    @property
    def truth(self) -> np.ndarray:
        return self.run.evaluation["states"][self.index, :, :2]

    @property
    def estimate(self) -> np.ndarray:
        return self.run.evaluation["means"][self.index, :, :2]

    def end(self) -> str:
        """Describes the error at the end of the sequence."""
        arrays, units = self.run.evaluation, component_units(self.run)
        errors = arrays["errors"] if "errors" in arrays else arrays["states"] - arrays["means"]
        last, heading = errors[self.index, -1], heading_component(self.run)
        text = f"{self.run.name} ends {_number(float(np.linalg.norm(last[:2])), units[0])}"
        if heading is not None:
            text += f" and {_number(abs(last[heading]), units[heading])}"
        return f"{text} off{self._rates()}."

    def _rates(self) -> str:
        """Describes the error rates of this sequence, averaged over initial states."""
        if not _has_rates(self.run):
            return ""
        rates = [
            _number(self.run.evaluation[name][self.index], unit) for name, unit in RATES.items()
        ]
        return f"; mean over starts {' and '.join(rates)}"


def _tracks(run: Run, style: int) -> list[_Track]:
    arrays = run.evaluation
    if not arrays or image_view(arrays) is not None or "projection" in arrays:
        return []
    units = component_units(run)[:2]
    if len(units) < 2 or units[0] != units[1]:
        return []  # the first two components are not a position
    return [_Track(run, style, index) for index in range(len(arrays["states"]))]


def _chart(tracks: Sequence[_Track]) -> Chart:
    first = tracks[0]
    named = zip(component_names(first.run), component_units(first.run), strict=True)
    x, y = [Axis(with_unit(name, unit)) for name, unit in named][:2]
    truth = first.truth
    estimates = [_line(track.run.name, track.estimate, track.style) for track in tracks]
    ends = [_place("", track.estimate[-1], track.style) for track in tracks]
    return Chart(
        title=f"Sequence {first.index + 1}",
        x=x,
        y=y,
        series=[
            _line("truth", truth, None),
            *estimates,
            _place("start", truth[0], None),
            _place("", truth[-1], None),
            *ends,
        ],
        note=" ".join(track.end() for track in tracks),
        plane=True,
    )


def _line(name: str, places: np.ndarray, style: int | None) -> Series:
    return Series(name, places[:, 0], places[:, 1], style=style)


def _place(name: str, place: np.ndarray, style: int | None) -> Series:
    return Series(name, place[:1], place[1:], style=style, points=True)


def _has_rates(run: Run) -> bool:
    return all(name in run.evaluation for name in RATES)


def _summary(run: Run) -> str:
    """Summarizes the error rates of the first member over all sequences of the split."""
    parts = []
    for name, unit in RATES.items():
        mean, error = mean_and_error(run.evaluation[name])
        parts.append(f"{''.join(value_and_error(mean, error))} {unit}")
    count = int(np.isfinite(run.evaluation["translation_error"]).sum())
    over = f"over {count} sequence{'' if count == 1 else 's'}"
    members = len((run.result or {}).get("members") or ())
    over += f" of the first of {members} members" if members > 1 else ""
    return f"{run.name}: {' and '.join(parts)}, mean ± standard error {over}."


def _number(value: float, unit: str) -> str:
    # No space before a degree sign, a no-break space before other units, including "°/m".
    space = "" if unit in ("", "°") else NO_BREAK
    return signed(f"{value:.3g}") + space + unit
