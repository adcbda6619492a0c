"""One table of the paper as Markdown: provenance of its records, numbers, and claims."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from filtrax.lab.measures import Measure, Measured
from filtrax.lab.reproduction.claims import Claim, Verdict
from filtrax.lab.reproduction.display.comparison import Block, Comparison, Entry, Grid
from filtrax.lab.reproduction.values import Record, origin_of_data

UNKNOWN_ERROR = "†"
"""Marks a number without a standard error."""


CONTEXT = (
    "The paper's numbers, in parentheses, are of other images than ours and stand here for "
    "orientation: numbers are not compared, but the paper's claims are judged."
)
"""A remark on tables whose data are not the paper's."""


def section(compared: Comparison, figures: Iterable[str] = ()) -> str:
    """Renders all that a page says about a table.

    **Arguments:**

    - `compared`: the table with its records.
    - `figures`: its figures as Markdown.
    """
    table = compared.table
    parts = [f"# {table.title}", f"*{table.source}* · `{table.name}`", table.asks]
    parts.append(_making(compared))
    parts += [CONTEXT] if table.context and table.paper else []
    parts += [text for block in compared.blocks for text in _block(block)]
    parts += _folded("Why settings were refused", _refusals(compared))
    parts += figures
    parts += _claims("What the paper says", table.claims, compared.verdicts)
    parts += _claims("What we want", table.goals, compared.goals)
    if table.deviations:
        parts.append("**What differs from the paper**")
        parts.append("\n".join(f"- {sentence}" for sentence in table.deviations))
    return "\n\n".join(parts)


def judged(verdict: Verdict) -> str:
    """Formats a verdict on a claim with the numbers of its comparisons."""
    if not verdict.judged:
        return verdict.verdict
    open_ = f", {verdict.open} open" if verdict.open else ""
    by_sign = f", {verdict.by_sign} by sign alone" if verdict.by_sign else ""
    missing = f", {verdict.missing} not run" if verdict.missing else ""
    counts = f"{verdict.holding} of {verdict.judged}{open_}{by_sign}{missing}"
    return f"{verdict.verdict} ({counts})"


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], others: str = "---:|"
) -> str:
    """Renders a Markdown table.

    **Arguments:**

    - `head`, `rows`: the texts of the cells.
    - `others`: the alignment of all columns but the first; by default to the right, for numbers.
    """
    lines = [_line(head), "|---|" + others * (len(head) - 1)]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _refusals(compared: Comparison) -> list[str]:
    named = ((name, compared.records.get(name, {})) for name in compared.cells)
    return [f"`{name}`: {record['refused']}" for name, record in named if "refused" in record]


def _making(compared: Comparison) -> str:
    """Describes the provenance of the records, and the command that repeats them."""
    name, run = compared.table.name, compared.run
    if not run:
        command = f"filtrax reproduce {name} --scale paper"
        return f"None of the {len(compared.cells)} cells was run yet: `{command}`."
    trained = [record for record in run if "refused" not in record]
    facts = [
        f"{len(run)} of {len(compared.cells)} cells",
        _several("", map(origin_of_data, run)),
        _several("scale", (record["scale"] for record in run)),
        _several("", (_epochs(record) for record in trained)),
        _several("seeds", (_seeds(record) for record in trained)),
        _several("", (_device(record) for record in run)),
        _several("commit", (_commit(record) for record in run)),
    ]
    seeds = max((len(record.get("seeds") or ()) for record in trained), default=1)
    scale = "paper" if any(record["scale"] == "paper" for record in run) else run[0]["scale"]
    command = f"filtrax reproduce {name} --scale {scale} --seeds {seeds}{_shortened(trained)}"
    command += _folder(run)
    return f"Records: {'; '.join(filter(None, facts))}. Again: `{command}`."


def _shortened(records: list[Record]) -> str:
    """Returns the option for fewer epochs than planned, if all trained cells had equally many."""
    epochs = {(r["epochs"]["done"], r["epochs"]["planned"]) for r in records} - {(0, 0)}
    done = {done for done, planned in epochs if done < planned}
    return f" --epochs {done.pop()}" if len(done) == len(epochs) == 1 else ""


def _folder(records: list[Record]) -> str:
    """Returns the options for folders of data, if all records have the same ones."""
    tasks = [record.get("config", {}).get("task", {}) for record in records]
    named = {tuple(key for key in ("root", "poses") if task.get(key)) for task in tasks}
    names = named.pop() if len(named) == 1 else ()
    return "".join(f" --set task.{name}=DIR" for name in names)


def _several(what: str, values: Iterable[str]) -> str:
    """Joins distinct values that are not empty, after the word `what`; "" if there are none."""
    text = ", ".join(dict.fromkeys(value for value in values if value))
    return f"{what} {text}".strip() if text else ""


def _epochs(record: Record) -> str:
    epochs = record.get("epochs") or {}
    # The reference filter is not trained.
    return f"{epochs['done']} of {epochs['planned']} epochs" if epochs.get("planned") else ""


def _seeds(record: Record) -> str:
    return " ".join(str(seed) for seed in record.get("seeds") or ())


def _device(record: Record) -> str:
    device: Any = (record.get("origin") or {}).get("device") or {}
    is_processor = device.get("platform") == "cpu"
    return "CPU" if is_processor else str(device.get("kind") or "")


def _commit(record: Record) -> str:
    origin: Any = record.get("origin") or {}
    commit = str(origin.get("commit") or "")[:10]
    return f"{commit} with changes" if commit and origin.get("dirty") else commit


def _block(block: Block) -> list[str]:
    title = [f"### {block.title}"] if block.labels else []
    if not block.is_run:
        cells = len(block.grids[0].entries)
        return [*title, f"Not run ({cells} cells)."] if block.labels else []
    epochs, part = _shared_epochs(block), _shared_part(block)
    notes = [f"All cells that train: {epochs}."] if epochs else []
    notes += [f"All means are over {part}."] if part else []
    said = {"", epochs, part}
    return title + notes + [text for grid in block.grids for text in _grid(grid, said)]


def _shared_epochs(block: Block) -> str:
    """Returns the finished epochs as text, if they are the same in all trained cells."""
    entries = [entry for grid in block.grids for entry in grid.entries if entry is not None]
    trained = [e for e in entries if e.ours and any(map(_epochs, e.records.values()))]
    epochs = {entry.epochs for entry in trained}
    return epochs.pop() if len(epochs) == 1 else ""


def _shared_part(block: Block) -> str:
    """Returns the parts that were run as text, if they are the same for all means."""
    parts = {entry.part for grid in block.grids for entry in grid.entries if entry.records}
    return parts.pop() if len(parts) == 1 else ""


def _grid(grid: Grid, said: set[str]) -> list[str]:
    best, printed = grid.best(), grid.is_printed

    def cells(row: str, entries: Sequence[Entry | None]) -> list[str]:
        notes = _notes_of_row(entries, said)
        known = said | {*notes}
        numbers = [
            "" if entry is None else _cell(entry, (row, i) in best, printed, known)
            for i, entry in enumerate(entries)
        ]
        return [" ".join([row, *(f"[{note}]" for note in notes)]), *numbers]

    rows = [cells(row, entries) for row, entries in grid.rows.items()]
    heading = f"**{grid.heading[0].upper()}{grid.heading[1:]}**" if grid.heading else ""
    note = "" if printed else "The paper prints no numbers of this."
    return [*filter(None, (heading, note)), markdown_table([grid.corner, *grid.columns], rows)]


def _notes_of_row(entries: Sequence[Entry | None], said: set[str]) -> list[str]:
    """Returns notes that are common to all entries of a row, to be shown once beside its name."""
    there = [entry for entry in entries if entry is not None and entry.ours is not None]
    kinds = {entry.epochs for entry in there}, {entry.part for entry in there}
    alike = [kind.pop() for kind in kinds if len(kind) == 1 and len(there) > 1]
    return [note for note in alike if note not in said]


def _cell(entry: Entry, is_best: bool, is_printed: bool, said: set[str]) -> str:
    """Renders an entry, with the paper's number if the paper has any in this grid."""
    ours = entry.state or _number(entry.measure, entry.ours)
    ours = f"**{ours}**" if is_best else ours
    notes = [f"[{note}]" for note in (entry.epochs, entry.part) if note not in said]
    paper = f"({_number(entry.measure, entry.paper)})" if is_printed else ""
    return " ".join(filter(None, (ours, *notes, paper, entry.outcome)))


def _number(measure: Measure, measured: Measured | None) -> str:
    text = measure.text(measured)
    if measured is None or measured.error is not None or not math.isfinite(measured.value):
        return text
    return text + (UNKNOWN_ERROR if measure.badness is not None else "")


def _claims(
    heading: str, said: Sequence[Claim], verdicts: Sequence[Mapping[str, Verdict]]
) -> list[str]:
    claims = list(zip(said, verdicts, strict=True))
    if not claims:
        return []
    columns = list(dict.fromkeys(name for _, verdicts in claims for name in verdicts))
    has_sections = any(claim.section for claim in said)
    rows = [
        [
            *([claim.says, claim.section] if has_sections else [claim.says]),
            *(_judged(verdicts.get(name)) for name in columns),
        ]
        for claim, verdicts in claims
    ]
    what = ("claim", "section") if has_sections else ("goal",)
    head = (*what, *(name or "verdict" for name in columns))
    contrary = [line for _, verdicts in claims for line in _contrary(verdicts)]
    folded = _folded(f"The {len(contrary)} comparisons that do not come out so", contrary)
    return [f"**{heading}**", markdown_table(head, rows, "---|"), *folded]


def _judged(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return judged(verdict).replace(verdict.verdict, f"**{verdict.verdict}**", 1)


def _contrary(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Lists the comparisons that are undecided or contradict the claim."""
    return [
        f"{column + ', ' if column else ''}{finding.outcome}: {finding.line}"
        for column, verdict in verdicts.items()
        for finding in verdict.findings
        if finding.outcome in ("open", "contradicts")
    ]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    content = "\n".join(f"- {line}" for line in lines)
    return [f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"]
