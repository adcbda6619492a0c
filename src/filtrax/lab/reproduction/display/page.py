"""The pages that compare all tables with the paper's, written from records alone.

They contain no date and nothing about the machine that writes them, so that equal records give
equal pages, which a test compares.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from filtrax.lab.reproduction.display.comparison import COLUMN, Comparison
from filtrax.lab.reproduction.display.drawing import Picture
from filtrax.lab.reproduction.display.figures import picture
from filtrax.lab.reproduction.display.files import are_current, write_files
from filtrax.lab.reproduction.display.goals import BENCHMARK, goals
from filtrax.lab.reproduction.display.sections import markdown_table, section
from filtrax.lab.reproduction.records import read_records
from filtrax.lab.reproduction.tables import Table, read_table, table_names

FIGURES, TABLES = "figures", "tables"
"""The folders of pictures, and of one page for each table."""

OUTCOMES = ("better", "within", "worse")
"""The outcomes for numbers that the paper has, too."""

VERDICTS = ("holds", "partly", "does not hold here", "not run")
"""The verdicts on claims."""

_TEMPLATE = Path(__file__).with_name("page.md")
_HOW_TO_READ = "[How to read the tables](../reading.md) · [All tables](../README.md)"
_FIRST = (
    BENCHMARK,
    "disc_observation_noise",
    "disc_process_noise",
    "disc_correlated_noise",
    "disc_loss",
    "disc_length",
    "disc_ukf_scaling",
    "disc_samples",
    "disc_belief",
    "disc_resampling",
    "disc_initial_noise",
    "disc_kernel",
    "disc_sensor",
    "kitti_benchmark",
    "kitti_noise",
    "kitti_training",
    "kitti_length",
    "kitti_ukf_scaling",
    "kitti_position",
    "pushing_benchmark",
    "pushing_noise",
)
"""The tables that come first; the others follow in the order of their names."""


def write_pages(results: Path, folder: Path) -> None:
    """Writes the pages and their pictures from the records of a folder.

    **Arguments:**

    - `results`: a folder of records.
    - `folder`: the folder of `README.md`, `tables/TABLE.md`, and the pictures.
    """
    write_files(_files(results, folder), _there(folder))


def pages_are_current(results: Path, folder: Path) -> bool:
    """Returns True if the pages, and the numbers in pictures, are those that the records give."""
    return are_current(_files(results, folder), _there(folder))


def _files(results: Path, folder: Path) -> dict[Path, str | Picture]:
    """Returns the contents of all pages and pictures by path."""
    tables = map(read_table, ordered_names())
    compared = [Comparison(table, read_records(results, table)) for table in tables]
    files: dict[Path, str | Picture] = {folder / "README.md": summary_page(compared)}
    for each in compared:
        drawn = picture(each)
        files[folder / TABLES / f"{each.table.name}.md"] = table_page(each, drawn)
        if drawn is not None:
            files[folder / FIGURES / drawn.name] = drawn
    return files


def ordered_names() -> list[str]:
    """Returns the names of all tables, the most important ones first."""
    names = table_names()
    first = [name for name in _FIRST if name in names]
    return first + [name for name in names if name not in first]


def summary_page(compared: Sequence[Comparison]) -> str:
    """Renders the first page: a summary of all tables with links, and the goals.

    **Arguments:**

    - `compared`: the tables with their records, in the order of the page.
    """
    by_name = {each.table.name: each for each in compared}
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        summary=_summary(compared),
        goals=goals(by_name[BENCHMARK]) if BENCHMARK in by_name else "",
    )
    return text.rstrip("\n") + "\n"


def table_page(compared: Comparison, drawn: Picture | None = None) -> str:
    """Renders the page of one table with its picture."""
    figures = [] if drawn is None else [f"![{drawn.caption}](../{FIGURES}/{drawn.name})"]
    return section(compared, figures) + f"\n\n{_HOW_TO_READ}\n"


def _there(folder: Path) -> set[Path]:
    """Returns existing pages of tables, and pictures that are named after tables."""
    names = tuple(table_names())
    drawn = {path for path in (folder / FIGURES).glob("*.svg") if path.name.startswith(names)}
    return drawn | {*(folder / TABLES).glob("*.md")}


def _summary(compared: Sequence[Comparison]) -> str:
    parts = [part for each in compared for part in _columns(each)]
    cells = sum(len(part.cells) for part in parts)
    run = sum(part.run for part in parts)
    outcomes = sum((part.outcomes for part in parts), Counter[str]())
    claims = sum((part.claims for part in parts), Counter[str]())
    said = ", ".join(f"{verdict} {claims[verdict]}" for verdict in VERDICTS)
    lines = (
        f"{run} of {cells} cells were run.",
        f"Of the {outcomes.total()} numbers that the paper prints too, {outcomes['better']} are "
        f"better, {outcomes['within']} within and {outcomes['worse']} worse.",
        f"The paper's claims, judged in each column of ours on its own: {said}.",
    )
    head = ("table", "cells run", *OUTCOMES, *VERDICTS)
    return "\n".join(lines) + "\n\n" + markdown_table(head, [part.row() for part in parts])


@dataclass(frozen=True)
class _Column:
    """The counts of cells, numbers and claims in a column of ours of one table."""

    name: str
    table: Table
    cells: Sequence[str]
    run: int
    outcomes: Counter[str]
    claims: Counter[str]

    def row(self) -> list[str]:
        link = f"[{self.table.title}]({TABLES}/{self.table.name}.md)"
        return [
            f"{link}, {self.name}" if self.name else link,
            f"{self.run} of {len(self.cells)}",
            *(str(self.outcomes[name]) for name in OUTCOMES),
            *(str(self.claims[name]) for name in VERDICTS),
        ]


def _columns(compared: Comparison) -> list[_Column]:
    found = []
    for column in dict.fromkeys(labels.get(COLUMN, "") for labels in compared.cells.values()):
        own = {n: ls for n, ls in compared.cells.items() if ls.get(COLUMN, "") == column}
        run = sum(name in compared.records for name in own)
        outcomes = _outcomes(compared, column)
        judged = [found[column] for found in compared.verdicts if column in found]
        claims = Counter(verdict.verdict for verdict in judged)
        found.append(_Column(column, compared.table, list(own), run, outcomes, claims))
    return found


def _outcomes(compared: Comparison, column: str) -> Counter[str]:
    """Counts the numbers of a column that are better, within and worse."""
    shown = [place.labels for place in compared.table.places()]
    own = [labels for labels in shown if labels.get(COLUMN, "") == column]
    entries = [compared.entry(labels, metric) for labels in own for metric in compared.metrics]
    return Counter(entry.outcome for entry in entries if entry is not None and entry.outcome)
