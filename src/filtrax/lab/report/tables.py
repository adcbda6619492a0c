"""The text of a report: metrics, provenance and configurations of the runs, as HTML."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from filtrax.lab.report.charts import with_unit
from filtrax.lab.report.components import MIXED_UNITS, distance_unit
from filtrax.lab.report.reading import Run
from filtrax.lab.report.summaries import mean_and_error

MISSING = "–"

RATES = {"translation_error": "m/m", "rotation_error": "°/m"}
"""Units of errors at the end of a sequence, per metre driven."""

ERRORS = {"translation": "mm", "rotation": "°"}
"""Units of errors of position and orientation, averaged over steps."""


@dataclass(frozen=True)
class Column:
    """A column of the table: a metric's name in records, heading and explanation.

    Smaller values of `badness` are better; without it, values are not compared.
    """

    name: str
    heading: str
    meaning: str
    badness: Callable[[float], float] | None = None


def _as_it_is(value: float) -> float:
    return value


def _columns(runs: Sequence[Run]) -> list[Column]:
    """Returns the known metrics, then all others that the runs report.

    Once a run is finished, known metrics that no run reports are omitted.
    """
    means = [run.result.get("mean") or {} for run in runs if run.result]
    found = dict.fromkeys(name for mean in means for name in mean)
    known = _known_columns(runs)
    kept = found if means else {column.name for column in known} - RATES.keys() - ERRORS.keys()
    known = [column for column in known if column.name in kept]
    others = [name for name in found if name not in {column.name for column in known}]
    return known + [Column(name, _words(name), "") for name in others]


def _known_columns(runs: Sequence[Run]) -> list[Column]:
    return [
        _distance_column(runs),
        *_rate_columns(),
        *_error_columns(),
        Column("nll", "NLL", "mean negative log density of the truth", _as_it_is),
        Column(
            "moment_nll", "NLL of the moments", "that of a Gaussian with these moments", _as_it_is
        ),
        Column("sensor_error", "Sensor error", "mean distance of the sensor's values", _as_it_is),
        _nees_column(runs),
        *(_coverage_column(percent) for percent in (50, 90)),
        Column(
            "noise_correlation",
            "Noise correlation",
            "correlation of predicted sensor noise and visible pixels; good is near −1",
            _as_it_is,
        ),
        Column(
            "process_noise_distance",
            "Process noise distance",
            "Bhattacharyya distance of predicted and true process noise",
            _as_it_is,
        ),
    ]


def _distance_column(runs: Sequence[Run]) -> Column:
    mixed = any(distance_unit(run) == MIXED_UNITS for run in runs)
    heading = with_unit("Distance", MIXED_UNITS if mixed else "")
    return Column("distance", heading, "mean distance of estimate and truth", _as_it_is)


def _rate_columns() -> list[Column]:
    meaning = "error of {} at the end of a sequence, for each metre driven"
    what = {"translation_error": "the position", "rotation_error": "the heading"}
    return [
        Column(name, f"{_words(name)} ({unit})", meaning.format(what[name]), _as_it_is)
        for name, unit in RATES.items()
    ]


def _error_columns() -> list[Column]:
    what = {"translation": "position", "rotation": "orientation"}
    return [
        Column(name, f"{_words(name)} ({unit})", f"mean error of the {what[name]}", _as_it_is)
        for name, unit in ERRORS.items()
    ]


def _coverage_column(percent: int) -> Column:
    meaning = f"how often the truth lies in the central {percent} % interval"
    far = lambda value: abs(value - percent / 100)  # noqa: E731
    return Column(f"coverage_{percent}", f"Coverage {percent} %", meaning, far)


def _nees_column(runs: Sequence[Run]) -> Column:
    degrees = {float(run.evaluation["degrees"]) for run in runs if "degrees" in run.evaluation}
    ideal = degrees.pop() if len(degrees) == 1 else None
    return Column(
        "nees",
        "NEES" if ideal is None else f"NEES (ideal {ideal:g})",
        "mean normalized estimation error squared",
        None if ideal is None else lambda value: abs(value - ideal),
    )


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def metrics_table(runs: Sequence[Run]) -> str:
    """Renders the metrics of all runs with a caption; marks the best value of each column."""
    columns = _columns(runs)
    cells = [[_mean_and_error(run, column.name) for run in runs] for column in columns]
    marked = [
        _best([mean for mean, _ in values], column.badness)
        for column, values in zip(columns, cells, strict=True)
    ]
    rollbacks = [_rollbacks(run) for run in runs]
    # Runs in training may still roll back, so they are not compared.
    fewest = _best(
        [total if run.result else None for run, total in zip(runs, rollbacks, strict=True)],
        _as_it_is,
    )
    headings = "".join(
        f'<th scope="col" title="{escape(column.meaning)}">{escape(column.heading)}</th>'
        for column in columns
    )
    rows = []
    for i, run in enumerate(runs):
        body = "".join(
            _cell(*value_and_error(*values[i]), best=i in best)
            for values, best in zip(cells, marked, strict=True)
        )
        total = rollbacks[i]
        body += _cell(MISSING if total is None else f"{total:g}", best=i in fewest)
        rows.append(f'<tr><th scope="row">{_run_label(run)}</th>{body}</tr>')
    return (
        f'<p class="note">{escape(_caption(runs))}</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of metrics">'
        "<table><thead><tr>"
        f'<th scope="col">Run</th>{headings}'
        '<th scope="col" title="of all members together">Rollbacks</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _run_label(run: Run) -> str:
    result = run.result or {}
    members = len(result.get("members") or ()) or _last_members(run)
    details = [str(result["filter"])] if result.get("filter") else []
    details += [f"{members} member{'' if members == 1 else 's'}"] if members else []
    details += [] if run.result else ["in training"]
    return f"{escape(run.name)}<small>{escape(', '.join(details))}</small>"


def _last_members(run: Run) -> int:
    return len(run.epochs[-1]["members"]) if run.epochs else 0


def _caption(runs: Sequence[Run]) -> str:
    keys = ("split", "num_sequences", "perturbations")
    settings = {tuple(run.result.get(key) for key in keys) for run in runs if run.result}
    text = "Mean ± standard error over members"
    alone = any(_error_over_sequences(run, name) for run in runs for name in RATES | ERRORS)
    text += ", or over sequences where there is one member." if alone else "."
    if len(settings) == 1:
        split, count, perturbations = settings.pop()
        if split and count:
            text += f" {str(split).capitalize()} split, {count} sequences"
            text += f", {perturbations} initial perturbations." if perturbations else "."
    return text + (" The best value of each column is marked." if len(runs) > 1 else "")


def _mean_and_error(run: Run, name: str) -> tuple[float | None, float | None]:
    """Returns mean and standard error over members, or over sequences if there is one member."""
    means, errors = ((run.result or {}).get(kind) or {} for kind in ("mean", "standard_error"))
    error = _error_over_sequences(run, name) if errors.get(name) is None else errors[name]
    return _finite(means.get(name)), _finite(error)


def _error_over_sequences(run: Run, name: str) -> float | None:
    members = (run.result or {}).get("members") or ()
    known = len(members) == 1 and name in RATES | ERRORS and name in run.evaluation
    return mean_and_error(run.evaluation[name])[1] if known else None


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _rollbacks(run: Run) -> float | None:
    members: Sequence[Mapping[str, Any]] = (run.result or {}).get("members") or (
        run.epochs[-1]["members"] if run.epochs else ()
    )
    counts = [_finite(member.get("rollbacks")) for member in members]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _best(
    values: Sequence[float | None], badness: Callable[[float], float] | None
) -> frozenset[int]:
    """Returns the indices of the best values; none if all are equal or fewer than two."""
    if badness is None:
        return frozenset()
    scores = {i: badness(value) for i, value in enumerate(values) if value is not None}
    if len(scores) < 2 or len(set(scores.values())) == 1:
        return frozenset()
    smallest = min(scores.values())
    return frozenset(i for i, score in scores.items() if score == smallest)


def value_and_error(mean: float | None, error: float | None) -> tuple[str, str]:
    """Formats an error with two digits, and the mean with as many decimals."""
    if mean is None:
        return MISSING, ""
    if error is None or error <= 0:
        return signed(f"{mean:.4g}"), ""
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return signed(f"{mean:.{decimals}f}"), f" ± {error:.{decimals}f}"


def signed(text: str) -> str:
    """Replaces hyphens by minus signs."""
    return text.replace("-", "−")


def _cell(value: str, error: str = "", *, best: bool) -> str:
    content = escape(value) + (f"<small>{escape(error)}</small>" if error else "")
    if best:
        return f'<td class="best">{content}<span class="unseen"> (best)</span></td>'
    return f"<td>{content}</td>"


def origin(run: Run) -> str:
    """Renders the provenance of a run in one line."""
    facts = _facts(run)
    parts = [facts["State"], facts["Device"], f"commit {facts['Commit']}"]
    parts += [f"seed {facts['Seed']}"] if facts["Seed"] else []
    parts += [", ".join(f"{name} {text}" for name, text in list(_versions(run).items())[:3])]
    text = escape(" · ".join(part for part in parts if part))
    return f"<li><strong>{escape(run.name)}</strong> {text}</li>"


def run_facts(run: Run) -> str:
    """Renders all recorded facts on the provenance of a run."""
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in _facts(run).items()
        if text
    )
    return f'<article class="facts"><h3>{escape(run.name)}</h3><dl>{rows}</dl></article>'


def _facts(run: Run) -> dict[str, str]:
    facts = run.facts
    return {
        "State": _progress(run),
        "Device": _device(facts.get("device")),
        "Commit": _commit(facts),
        "Seed": str(facts.get("seed", "")),
        "Versions": ", ".join(f"{name} {text}" for name, text in _versions(run).items()),
        "Started": str(facts.get("started") or ""),
        "Command": str(facts.get("command") or ""),
    }


def _versions(run: Run) -> dict[str, str]:
    packages = {"filtrax": run.facts.get("filtrax"), "python": run.facts.get("python")}
    packages |= run.facts.get("packages") or {}
    return {name: str(version) for name, version in packages.items() if version}


def _progress(run: Run) -> str:
    if run.result:
        return "finished"
    if not run.epochs:
        return "in training, no epoch recorded yet"
    last = run.epochs[-1]
    return f"in training, {last['stage']}, epoch {last['epoch']}"


def _device(device: Any) -> str:
    if not isinstance(device, Mapping):
        return ""
    kind, platform = str(device.get("kind") or ""), str(device.get("platform") or "")
    count = device.get("count")
    name = kind if platform.lower() in kind.lower() else f"{kind} ({platform})"
    return f"{count} × {name}" if isinstance(count, int) and count > 1 else name


def _commit(facts: Mapping[str, Any]) -> str:
    commit = facts.get("commit")
    if not commit:
        return "unknown"
    return str(commit)[:12] + (" with local changes" if facts.get("dirty") else "")


def configuration(run: Run) -> str:
    """Renders the run's configuration as collapsible text."""
    return (
        f"<details><summary>{escape(run.name)}</summary>"
        f"<pre><code>{escape(run.config)}</code></pre></details>"
    )
