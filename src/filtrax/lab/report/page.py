"""Assembles the page: one file that contains all styles, scripts, images and numbers."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from filtrax._files import write_whole
from filtrax.lab.files import reason
from filtrax.lab.report.figures import coverage, learning_curves, nees, sensor_noise
from filtrax.lab.report.paths import paths
from filtrax.lab.report.reading import Run, read_runs
from filtrax.lab.report.sequences import playable
from filtrax.lab.report.tables import configuration, metrics_table, origin, run_facts

PROGRAMS = ("scales.js", "charts.js", "layers.js", "plane.js", "player.js", "page.js")
"""Scripts, sorted such that each one comes after those that it uses."""

SIGNIFICANT_DIGITS = 5
"""Significant digits of numbers in the page, more than a screen resolves."""


def write(runs: Sequence[Path], path: Path) -> Path:
    """Writes a report on run folders into one HTML file and returns its path.

    Runs that are still in training are shown up to their last epoch. The write is atomic.
    """
    if path.is_dir():
        raise ValueError(f"The report must be a file, but {path} is a folder.")
    read = read_runs(runs)
    try:
        page = _page(read)
    except (TypeError, AttributeError, ArithmeticError, LookupError) as error:
        places = " or ".join(map(str, runs))
        raise ValueError(
            f"A record in {places} is damaged, of those in run.json, metrics.jsonl, result.json "
            f"and evaluation.npz: {reason(error)}."
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(page.encode("utf-8", errors="replace")))
    return path


def _page(runs: Sequence[Run]) -> str:
    names = ", ".join(run.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs"
    return Template(_asset("page.html")).substitute(
        title=escape(f"filtrax: {names}"),
        names=escape(names),
        style=_asset("style.css"),
        origins="".join(origin(run) for run in runs),
        facts="".join(run_facts(run) for run in runs),
        metrics=metrics_table(runs),
        configurations="".join(configuration(run) for run in runs),
        data=_as_json(_data(runs)),
        programs="\n".join(_asset(name) for name in PROGRAMS),
    )


def _asset(name: str) -> str:
    return resources.files("filtrax.lab.report").joinpath(name).read_text(encoding="utf-8")


def _data(runs: Sequence[Run]) -> dict[str, Any]:
    images: dict[str, str] = {}
    # Diverged runs contain infinities, which charts and player show as gaps.
    with np.errstate(all="ignore"):
        return {
            "learning": learning_curves(runs),
            "players": _known(playable(run, images) for run in runs),
            "images": images,
            "paths": paths(runs),
            "sensorNoise": _known(sensor_noise(run) for run in runs),
            "calibration": _known([nees(runs), *(coverage(run) for run in runs)]),
        }


def _known(entries: Iterable[Any]) -> list[Any]:
    return [entry for entry in entries if entry is not None]


def _as_json(value: Any) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # HTML parsers react to "</script" and "<!--" even inside of strings.
    return text.replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """Converts a value for JSON: arrays to lists, rounded numbers, None if not finite."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float):
        return _rounded(value)
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
