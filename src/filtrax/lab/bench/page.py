"""The page of benchmarks and its charts, written from records alone."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from filtrax.lab.bench.charts import growth_charts
from filtrax.lab.bench.measurements import KEPT, OURS, RECOMPUTED, Record
from filtrax.lab.bench.running import duration
from filtrax.lab.files import read_json, write_text
from filtrax.lab.reproduction.display.sections import markdown_table

FIGURES = "figures"
"""The folder of the charts, beside the page."""

PREFIX = "bench_"
"""Prefix of the file names of the charts."""

_TEMPLATE = Path(__file__).with_name("page.md")


def write_page(records: Path, page: Path) -> None:
    """Writes the page and its charts from a folder of records, and removes outdated charts."""
    files = page_files(records, page)
    (page.parent / FIGURES).mkdir(parents=True, exist_ok=True)
    for path in {*(page.parent / FIGURES).glob(f"{PREFIX}*.svg")} - {*files}:
        path.unlink()
    for path, text in files.items():
        write_text(path, text)


def page_is_current(records: Path, page: Path) -> bool:
    """Returns True if the page and its charts are exactly those that the records give."""
    files = page_files(records, page)
    there = {page, *(page.parent / FIGURES).glob(f"{PREFIX}*.svg")} == {*files} and page.is_file()
    return there and all(path.read_text(encoding="utf-8") == text for path, text in files.items())


def page_files(records: Path, page: Path) -> dict[Path, str]:
    """Returns the texts of the page and its charts by path."""
    sections, files = [], {}
    for path in sorted(records.glob("*.json")):
        record = read_json(path)
        pictures = growth_charts(record["measurements"])
        names = {axis: f"{PREFIX}{path.stem}_{axis}.svg" for axis in pictures}
        sections.append(_section(path.stem, record, names))
        files |= {page.parent / FIGURES / names[axis]: svg for axis, svg in pictures.items()}
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(devices="\n\n".join(sections))
    return {page: text.rstrip("\n") + "\n"} | files


def _section(name: str, record: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    measured = {name: one for name, one in record["measurements"].items() if "refused" not in one}
    parts = [f"## {_device(record)}, record `{name}`", _origin(record)]
    parts += _titled("Against other libraries", _compared(measured))
    parts += _titled("One step of a loop", _online(measured))
    parts += _titled("Training", _training(measured))
    parts += _titled("Memory of the backward pass", _memory(measured))
    if pictures:
        parts.append("### How cost grows")
        parts += [f"![Time over {axis}]({FIGURES}/{name})" for axis, name in pictures.items()]
    parts.append(_everything(record["measurements"]))
    return "\n\n".join(parts)


def _titled(title: str, table: str) -> list[str]:
    return [f"### {title}", table] if table else []


def _device(record: Mapping[str, Any]) -> str:
    device = record["origin"]["device"]
    return device["kind"] if device["platform"] != "cpu" else "CPU"


def _origin(record: Mapping[str, Any]) -> str:
    origin, peaks = record["origin"], record["peaks"]
    packages = [f"{name} {version}" for name, version in origin["packages"].items()]
    packages += [f"{name} {version}" for name, version in record["peers"].items()]
    commit = (origin["commit"] or "unknown")[:10] + (" with changes" if origin["dirty"] else "")
    return (
        f"Commit {commit}, Python {origin['python']}, {', '.join(packages)}. At most "
        f"{peaks['operations_per_second'] / 1e9:.4g} GFLOP/s and "
        f"{peaks['bytes_per_second'] / 1e9:.4g} GB/s were seen; a launch takes "
        f"{duration(peaks['seconds_per_launch'])}, a call from Python "
        f"{duration(peaks['seconds_per_call'])}. {record.get('note', '')}"
    ).strip()


def _spread(summary: Mapping[str, Any]) -> str:
    low, high = (duration(value) for value in summary["quartiles"])
    return f"{duration(summary['median'])} [{low}, {high}]"


def _ratio(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    low, high = found["quartiles"]
    return f"{found['of_medians']:.3g} [{low:.3g}, {high:.3g}]"


def _others(measured: Iterable[Record]) -> list[str]:
    """Lists the names that ours was compared with, in order of appearance."""
    return list(dict.fromkeys(name for one in measured for name in one["ratios"]))


def _ratio_table(rows: Mapping[str, Record], times: Mapping[str, str]) -> str:
    """Tabulates our times, floors and ratios to others; `times` maps keys to column headings."""
    if not rows:
        return ""
    others = _others(rows.values())
    head = ["", *times.values(), "floor", *(f"ratio to {name}" for name in others)]
    lines = []
    for name, one in rows.items():
        floor = duration(one["floor"]["floor"]) if "floor" in one else "–"
        ours = [_time(one["seconds"][OURS], key) for key in times]
        lines.append([name, *ours, floor, *(_ratio(one["ratios"].get(other)) for other in others)])
    return markdown_table(head, lines)


def _time(summary: Mapping[str, Any], key: str) -> str:
    return _spread(summary) if key == "median" else duration(summary[key])


def _compared(measured: Mapping[str, Record]) -> str:
    rows = {
        name.removeprefix("gradient/"): one
        for name, one in measured.items()
        if one["kind"] == "gradient" and any(not other.startswith(OURS) for other in one["ratios"])
    }
    return _ratio_table(rows, {"median": "value and gradient"})


def _online(measured: Mapping[str, Record]) -> str:
    rows = {
        f"{one['filter']}, state {one['sizes']['state']}": one
        for one in measured.values()
        if one["kind"] == "online"
    }
    return _ratio_table(rows, {"median": "median", "p99": "99th percentile"})


def _training(measured: Mapping[str, Record]) -> str:
    lines = []
    for name, one in measured.items():
        if one["kind"] == "training":
            floor = duration(one["floor"]["floor"])
            epoch = f"{_spread(one['seconds']['epoch'])} of {one['steps_per_epoch']} steps"
            lines.append([name, _spread(one["seconds"][OURS]), floor, epoch, _compilation(one)])
        elif one["kind"] == "run":
            whole = f"{duration(one['seconds'][OURS]['median'])} in all"
            lines.append([name, "–", "–", whole, "–"])
    head = ["", "step", "floor of a step", "epoch with validation", "compilation"]
    return markdown_table(head, lines) if lines else ""


def _compilation(one: Record) -> str:
    seconds = one.get("compile_seconds", {}).get(OURS)
    return "–" if seconds is None else duration(seconds)


def _memory(measured: Mapping[str, Record]) -> str:
    """Compares stored with recomputed residuals of the backward pass."""
    lines = []
    for name, one in measured.items():
        for way in (KEPT, RECOMPUTED):
            if way in one["ratios"]:
                size = f"{one['memory_bytes'][way] / 1e6:.4g} MB"
                short = name.removeprefix("gradient/")
                lines.append([short, way.removeprefix(OURS), _spread(one["seconds"][way]), size])
    return markdown_table(["", "way", "value and gradient", "memory"], lines) if lines else ""


def _everything(measured: Mapping[str, Record]) -> str:
    lines = []
    for name, one in measured.items():
        if "refused" in one:
            lines.append([name, one["refused"], *["–"] * 6])
            continue
        floor = one.get("floor", {})
        parts = [duration(floor[part]) if part in floor else "–" for part in _PARTS]
        memory = one.get("memory_bytes", {}).get(OURS)
        lines.append(
            [
                name,
                _spread(one["seconds"][OURS]),
                duration(one["seconds"][OURS]["p99"]),
                *parts,
                _compilation(one),
                "–" if memory is None else f"{memory / 1e6:.4g} MB",
            ]
        )
    head = ["", "median", "99th percentile", *_PARTS.values(), "compilation", "memory"]
    table = markdown_table(head, lines)
    return f"<details><summary>All measurements</summary>\n\n{table}\n\n</details>"


_PARTS = {
    "operations": "floor by operations",
    "bytes": "floor by bytes",
    "launches": "floor by launches",
}
