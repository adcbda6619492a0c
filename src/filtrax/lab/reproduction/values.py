"""Numbers of records: metrics with their errors, and lost runs."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from filtrax.lab.reproduction.axes import Place, cell_name
from filtrax.lab.reproduction.tables import Table

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Measured:
    """A value, infinite if it is not finite, and its standard error where there is one.

    `parts` are the values that a mean over several cells is made of, by what they belong to.
    """

    value: float
    error: float | None = None
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.value:.4g}" + ("" if self.error is None else f" ± {self.error:.2g}")


def measured(record: Record | None, metric: str) -> Measured | None:
    """A metric of a record, or None if it has none.

    Besides the metrics of the evaluation there are "parameters"; "epoch_seconds", the training
    time of an epoch, divided by the number of members that trained together; and, of the first
    member of tables that keep what is shown, "velocity_noise_correlation", of the predicted and
    the true process noise over a sequence, and "occlusion_correlation", of the predicted position
    noise and how often the target is hidden, over the places of the image.
    """
    if record is None or "refused" in record:
        return None
    if metric in _OF_SHOWN:
        return _shown_correlation(record.get("shown") or {}, metric)
    if metric == "parameters":
        return Measured(float(record["parameters"]), 0.0)
    if metric == "epoch_seconds":
        epochs, seconds = record["epochs"]["done"], record["seconds"]
        return Measured(seconds["training"] / (epochs * seconds["members"])) if epochs else None
    if metric not in record["mean"]:
        return None
    value = _number(record["mean"][metric])
    error = record["standard_error"].get(metric)
    return Measured(value, error if math.isfinite(value) else None)


def mean_of(parts: Mapping[str, float]) -> Measured:
    """The mean of numbers, and its standard error if there are at least two."""
    values = np.asarray([*parts.values()])
    if not np.isfinite(values).all():
        return Measured(math.inf, None, parts)
    error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None
    return Measured(float(values.mean()), error, parts)


def measured_at(place: Place, records: Mapping[str, Record], metric: str) -> Measured | None:
    """A metric of a place: that of its cell, or the mean over those of its cells that have it.

    Seeds are averaged first; the standard error of a mean over cells is that of their means.
    """
    found = {label: measured(records.get(name), metric) for label, name in place.cells.items()}
    known = {label: value for label, value in found.items() if value is not None}
    if len(place.cells) == 1 or not known:
        return next(iter(known.values()), None)
    return mean_of({label: value.value for label, value in known.items()})


def lost_at(place: Place, counts: Mapping[str, int]) -> Measured | None:
    """The lost runs of a place, by those of cells."""
    known = [counts[name] for name in place.cells.values() if name in counts]
    return Measured(float(sum(known))) if known else None


def lost(table: Table, records: Mapping[str, Record]) -> dict[str, int]:
    """The number of lost runs of each cell, by its name, where it can be said."""
    if table.lost is None:
        return {}
    rule, found = table.lost, {}
    for labels in table.labels():
        record = records.get(cell_name(labels.values()))
        other = records.get(cell_name((labels | rule.against).values()))
        standard = measured(other, rule.metric)
        if record is None or "refused" in record or standard is None:
            continue
        values = [_number(member["metrics"].get(rule.metric)) for member in record["members"]]
        limit = rule.factor * standard.value
        is_lost = [not (math.isfinite(value) and value <= limit) for value in values]
        found[cell_name(labels.values())] = sum(is_lost)
    return found


def origin_of_data(record: Record) -> str:
    """Where the images and paths of a record's data come from; nothing if that goes without saying.

    The data of the disc task are always drawn.
    """
    task = (record.get("config") or {}).get("task") or {}
    if task.get("kind") == "pushing":
        return "simulated pushes, rendered images"
    if task.get("kind") != "kitti":
        return ""
    if task.get("root"):
        return "images and trajectories of a folder"
    return f"generated images, {'real' if task.get('poses') else 'generated'} trajectories"


_OF_SHOWN = {
    "velocity_noise_correlation": ("process_std", "true_process_std"),
    "occlusion_correlation": ("process_std_map", "occlusion"),
}


def _shown_correlation(shown: Mapping[str, Any], metric: str) -> Measured | None:
    if not {*_OF_SHOWN[metric], "counts"} <= {*shown}:
        return None
    one, other = (np.asarray(shown[name], float) for name in _OF_SHOWN[metric])
    weights = np.asarray(shown["counts"], float)
    if metric == "velocity_noise_correlation":
        one, other = one[:, 2:].mean(-1), other[:, 2:].mean(-1)
        weights = np.ones_like(one)
    seen = weights > 0  # Nothing is known of places that no target visits.
    covariance = np.cov(one[seen], other[seen], aweights=weights[seen])
    stds = np.sqrt(np.diagonal(covariance))
    return Measured(float(covariance[0, 1] / stds.prod())) if stds.all() else None


def _number(value: float | None) -> float:
    """Records have null for what is not finite."""
    return value if value is not None and math.isfinite(value) else math.inf
