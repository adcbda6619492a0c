"""Numbers in records: metrics with standard errors, and lost runs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from filtrax.lab.measures import Measured
from filtrax.lab.registry import registered
from filtrax.lab.reproduction.axes import Place, cell_name
from filtrax.lab.reproduction.tables import Table
from filtrax.lab.tasks import AbstractTask

Record = Mapping[str, Any]


def measured(record: Record | None, metric: str) -> Measured | None:
    """Returns a metric of a record, or None if it is missing.

    Besides the metrics of the evaluation there are

    - "parameters": the number of trained parameters.
    - "epoch_seconds": the training time of an epoch, divided by the number of members that trained
      together.
    - "velocity_noise_correlation": the correlation of predicted and true process noise of the
      velocity over a sequence, for the first member of tables with `shown`.
    - "occlusion_correlation": the correlation of predicted position noise and the frequency of
      occlusion over the cells of the image, for the first member of tables with `shown`.
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
    """Averages numbers; the standard error is None unless there are at least two."""
    values = np.asarray([*parts.values()])
    if not np.isfinite(values).all():
        return Measured(math.inf, None, parts)
    error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None
    return Measured(float(values.mean()), error, parts)


def measured_at(place: Place, records: Mapping[str, Record], metric: str) -> Measured | None:
    """Returns a metric of a place: that of its cell, or the mean over the cells that have it.

    Seeds are averaged first; the standard error of a mean over cells is that of the cells' means.
    """
    found = {label: measured(records.get(name), metric) for label, name in place.cells.items()}
    known = {label: value for label, value in found.items() if value is not None}
    if len(place.cells) == 1 or not known:
        return next(iter(known.values()), None)
    return mean_of({label: value.value for label, value in known.items()})


def lost_at(place: Place, counts: Mapping[str, int]) -> Measured | None:
    """Sums the lost runs over the cells of a place; None without any count."""
    known = [counts[name] for name in place.cells.values() if name in counts]
    return Measured(float(sum(known))) if known else None


def lost(table: Table, records: Mapping[str, Record]) -> dict[str, int]:
    """Counts the lost runs of cells by name, for cells with a record and a reference."""
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
    """Describes the origin of a record's data, if its task says it."""
    settings = (record.get("config") or {}).get("task") or {}
    cls: Any = (registered(AbstractTask) or {}).get(settings.get("kind", ""))
    return "" if cls is None else cls.origin(settings)


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
    seen = weights > 0  # places without any target have no numbers
    covariance = np.cov(one[seen], other[seen], aweights=weights[seen])
    stds = np.sqrt(np.diagonal(covariance))
    return Measured(float(covariance[0, 1] / stds.prod())) if stds.all() else None


def _number(value: float | None) -> float:
    """Converts null, which stands for numbers that are not finite, to infinity."""
    return value if value is not None and math.isfinite(value) else math.inf
