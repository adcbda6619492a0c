"""The pages of benchmarks and their charts, written from records alone.

One page compares devices and libraries in brief. The other, beside the records, has everything.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from filtrax.lab.bench.charts import growth_picture
from filtrax.lab.bench.measurements import KEPT, OURS, RECOMPUTED, Record
from filtrax.lab.bench.running import duration
from filtrax.lab.files import read_json
from filtrax.lab.reproduction.display.drawing import Picture
from filtrax.lab.reproduction.display.files import are_current, write_files
from filtrax.lab.reproduction.display.sections import markdown_table

FIGURES = "figures"
"""The folder of the charts, beside the page."""

PREFIX = "bench_"
"""Prefix of the file names of the charts."""

DETAILS = "README.md"
"""The page of all measurements, beside the records."""

_TEMPLATES = Path(__file__).parent


def write_page(records: Path, page: Path) -> None:
    """Writes the page with its charts from a folder of records, and all measurements beside them.

    Charts that no record gives any more are removed.
    """
    write_files(page_files(records, page), _charts(page))


def page_is_current(records: Path, page: Path) -> bool:
    """Returns True if the pages, and the numbers in charts, are those that the records give."""
    return are_current(page_files(records, page), _charts(page))


def page_files(records: Path, page: Path) -> dict[Path, str | Picture]:
    """Returns the contents of both pages and of the charts by path."""
    contents = {path.stem: read_json(path) for path in sorted(records.glob("*.json"))}
    # On a GPU, launches take most of the time, whatever the size; the tables show that.
    drawn = {
        name: growth_picture(f"{PREFIX}{name}.svg", record["measurements"])
        for name, record in contents.items()
        if record["origin"]["device"]["platform"] == "cpu"
    }
    pictures = {name: picture for name, picture in drawn.items() if picture is not None}
    details = records / DETAILS
    texts = {
        page: _text("page.md", devices=_devices(contents, pictures), details=_link(page, details)),
        details: _text(
            "details.md",
            records="\n\n".join(_section(*named) for named in contents.items()),
            page=_link(details, page),
        ),
    }
    return texts | {page.parent / FIGURES / picture.name: picture for picture in pictures.values()}


def _charts(page: Path) -> set[Path]:
    return {*(page.parent / FIGURES).glob(f"{PREFIX}*.svg")}


def _text(template: str, **parts: str) -> str:
    text = Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(parts)
    return text.rstrip("\n") + "\n"


def _link(page: Path, other: Path) -> str:
    return Path(os.path.relpath(other, page.parent)).as_posix()


def _devices(contents: Mapping[str, Record], pictures: Mapping[str, Picture]) -> str:
    """Compares libraries on each device, by the newest record of each problem."""
    newest = sorted(contents.items(), key=lambda named: named[1]["origin"].get("started") or "")
    parts = []
    for device in dict.fromkeys(_device(record) for record in contents.values()):
        own = {name: record for name, record in newest if _device(record) == device}
        merged = {
            key: measured | {"record": name}
            for name, record in own.items()
            for key, measured in record["measurements"].items()
            if "refused" not in measured
        }
        parts.append(f"## {device}")
        parts += _titled("Value and gradient of a batch", _compared(merged, brief=True))
        parts += _titled("One step of a loop", _online(merged, brief=True))
        parts += _titled("Smoothing of series", _series(merged, brief=True))
        parts += [
            f"![{pictures[name].caption}]({FIGURES}/{pictures[name].name})"
            for name in own
            if name in pictures
        ]
    return "\n\n".join(parts)


def _section(name: str, record: Mapping[str, Any]) -> str:
    measured = {name: one for name, one in record["measurements"].items() if "refused" not in one}
    parts = [f"## {_device(record)}, record `{name}`", _origin(record)]
    parts += _titled("Against other libraries", _compared(measured))
    parts += _titled("One step of a loop", _online(measured))
    parts += _titled("Smoothing of series", _series(measured))
    parts += _titled("Training", _training(measured))
    parts += _titled("Memory of the backward pass", _memory(measured))
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


def _ratio(found: Mapping[str, Any] | None, brief: bool) -> str:
    if found is None:
        return "–"
    low, high = found["quartiles"]
    median = f"{found['of_medians']:.3g}"
    return median if brief else f"{median} [{low:.3g}, {high:.3g}]"


def _others(measured: Iterable[Record]) -> list[str]:
    """Lists the names that ours was compared with, in order of appearance."""
    return list(dict.fromkeys(name for one in measured for name in one["ratios"]))


def _ratio_table(
    rows: Mapping[str, Record], times: Mapping[str, str], brief: bool, *, roads: bool = False
) -> str:
    """Tabulates our times, floors and ratios to others.

    **Arguments:**

    - `rows`: the measurements by their names in the table.
    - `times`: headings by the keys of the times to show.
    - `brief`: medians without quartiles, and only the ratios to other libraries.
    - `roads`: whether our variants are other roads to the same result, which are always shown.
    """
    if not rows:
        return ""
    hidden = brief and not roads
    others = [name for name in _others(rows.values()) if not (hidden and name.startswith(OURS))]
    head = ["", *times.values(), "floor", *(f"ratio to {name}" for name in others)]
    lines = []
    for name, one in rows.items():
        floor = duration(one["floor"]["floor"]) if "floor" in one else "–"
        ours = [_time(one["seconds"][OURS], key, brief) for key in times]
        ratios = [_ratio(one["ratios"].get(other), brief) for other in others]
        record = [f"`{one['record']}`"] if brief else []
        lines.append([name, *ours, floor, *ratios, *record])
    return markdown_table([*head, "record"] if brief else head, lines)


def _time(summary: Mapping[str, Any], key: str, brief: bool) -> str:
    return _spread(summary) if key == "median" and not brief else duration(summary[key])


def _compared(measured: Mapping[str, Record], *, brief: bool = False) -> str:
    rows = {
        name.removeprefix("gradient/"): one
        for name, one in measured.items()
        if one["kind"] == "gradient" and any(not other.startswith(OURS) for other in one["ratios"])
    }
    return _ratio_table(rows, {"median": "value and gradient"}, brief)


def _online(measured: Mapping[str, Record], *, brief: bool = False) -> str:
    rows = {
        f"{one['filter']}, state {one['sizes']['state']}": one
        for one in measured.values()
        if one["kind"] == "online"
    }
    return _ratio_table(rows, {"median": "median", "p99": "99th percentile"}, brief)


def _series(measured: Mapping[str, Record], *, brief: bool = False) -> str:
    """Tabulates smoothing over the length of series; roads cross where their ratio passes one."""
    rows = {
        name.removeprefix("smoothing/"): one
        for name, one in measured.items()
        if one["kind"] == "smoothing"
    }
    return _ratio_table(rows, {"median": "all beliefs"}, brief, roads=True)


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
