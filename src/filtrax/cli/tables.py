"""Tables of results."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_NAMES = {
    "nll": "NLL",
    "nees": "NEES",
    "moment_nll": "NLL of the moments",
    "coverage_50": "coverage of 50 % intervals",
    "coverage_90": "coverage of 90 % intervals",
    "translation_error": "translation error (m/m)",
    "rotation_error": "rotation error (°/m)",
}


def console() -> Console:
    """Returns the console for tables: as wide as a terminal, 160 columns for files."""
    console = Console()
    return console if console.is_terminal else Console(width=160)  # Files need no wrapping.


def metric_name(name: str) -> str:
    """Returns the display name of a metric, with its unit if it has one of its own."""
    return _NAMES.get(name, name.replace("_", " "))


def number(value: SupportsFloat | None) -> str:
    """Formats a number with three decimals or digits; a dash if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return "–"
    value = float(value)
    return f"{value:.3f}" if _is_handy(value) else f"{value:.3g}"


def number_with_error(value: SupportsFloat | None, error: SupportsFloat | None) -> str:
    """Formats a number with its standard error, if both are finite."""
    if value is None or error is None or not (math.isfinite(value) and math.isfinite(error)):
        return number(value)
    value, error = float(value), float(error)
    return f"{number(value)} ± {error:.3f}" if _is_handy(value) else f"{value:.3g} ± {error:.3g}"


def print_metrics(result: Mapping[str, Any], *, members: bool = False) -> None:
    """Prints mean and standard error of all metrics, and optionally those of each member."""
    count = len(result["members"])
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("metric")
    table.add_column("mean ± standard error" if count > 1 else "value", justify="right")
    for member in result["members"] if members else ():
        table.add_column(f"seed {member['seed']}", justify="right")
    for name, mean in result["mean"].items():
        value = number_with_error(mean, result["standard_error"].get(name))
        own = [member["metrics"].get(name) for member in result["members"]] if members else []
        table.add_row(_name_among(result["mean"], name), value, *map(number, own))
    title = f"{result['name']}: {result['split']}, {result['num_sequences']} sequences"
    _print(title, table)


def check_convergence(result: Mapping[str, Any]) -> str | None:
    """Raises if no seed has finite metrics; returns a sentence about those that have none."""

    def is_finite(member: Mapping[str, Any]) -> bool:
        known = [member["metrics"].get(name) for name in ("distance", "nll")]
        return all(value is not None and math.isfinite(value) for value in known)

    bad = [str(member["seed"]) for member in result["members"] if not is_finite(member)]
    if bad and len(bad) == len(result["members"]):
        raise ValueError(
            "All seeds have diverged: neither their distance nor their NLL is finite. Train with a "
            "lower learning rate, or with settings that are closer to the default ones."
        )
    return f"Seeds that have diverged: {', '.join(bad)}." if bad else None


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a table; all rows have a "name" and the keys of the first row."""
    table = Table(box=box.SIMPLE_HEAD)
    names = [name for name in rows[0] if name != "name"]
    table.add_column("")
    for name in names:
        table.add_column(metric_name(name), justify="right")
    for row in rows:
        table.add_row(row["name"], *(number(row.get(name)) for name in names))
    _print(title, table)


def _name_among(metrics: Mapping[str, Any], name: str) -> str:
    """Returns the display name of a metric among others.

    The distance of states with a rotation error adds lengths and angles, and is marked as such.
    """
    mixed = name == "distance" and "rotation_error" in metrics
    return f"{metric_name(name)} (mixed units)" if mixed else metric_name(name)


def _is_handy(value: float) -> bool:
    return value == 0 or 0.01 <= abs(value) < 1e5


def _print(title: str, table: Table) -> None:
    console().print(Text(title, style="bold"), table)
