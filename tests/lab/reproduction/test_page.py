"""The comparison with the paper: numbers, outcomes, goals, verdicts, and the page of them.

Rejected are: a wrong sign or a wrong limit of "better" and "worse", numbers in the wrong cell, a
cell that was not run or was cut short and does not say so, a reference filter that counts as the
best row, a page that no longer follows from its records.
"""

import io
import json
import math
import re

import pytest
from reproduction.fake_records import fake_record, fake_records
from rich.console import Console

import filtrax.lab.reproduction.display.page as page_module
from filtrax.lab.reproduction.axes import Adjustment, Axis, Value
from filtrax.lab.reproduction.display.comparison import Comparison
from filtrax.lab.reproduction.display.goals import gaps, goals
from filtrax.lab.reproduction.display.measures import measure_of
from filtrax.lab.reproduction.display.page import (
    ordered_names,
    pages_are_current,
    summary_page,
    table_page,
    write_pages,
)
from filtrax.lab.reproduction.display.terminal import print_list, print_table
from filtrax.lab.reproduction.records import Results
from filtrax.lab.reproduction.rules import Claim, Lost, Rule
from filtrax.lab.reproduction.tables import Table, cell_name, read_table, table_names
from filtrax.lab.reproduction.values import Measured

PAPER = """
filter | data | distance   | nll
dEKF   | 3    | 6.0 ± 0.3  | 9.0
dPF-M  | 3    | 7.0 ± 0.4  | 12.0 ± 0.1
dEKF   | 9    | 12.0 ± 0.3 | 11.0 ± 0.1
dPF-M  | 9    | 11.0 ± 0.4 | 20.0 ± 0.1
"""


def text_of(compared: Comparison) -> str:
    """The first page and that of a table, in one."""
    return summary_page([compared]) + table_page(compared)


def small_table(**changes) -> Table:
    """A benchmark in small: two filters of the paper and the reference, on two data sets."""
    axes = {
        "column": ("filtrax", "paper"),
        "filter": ("dEKF", "dPF-M", "reference"),
        "data": ("3", "9"),
    }
    settings = {
        "name": "disc_benchmark",
        "title": "Benchmark",
        "source": "Table 1",
        "asks": "Which filter is best?",
        "metrics": ("distance", "nll"),
        "axes": tuple(Axis(name, tuple(map(Value, labels))) for name, labels in axes.items()),
        "rows": ("filter",),
        "columns": ("data",),
        "adjust": (Adjustment({"column": "paper", "filter": "reference"}, skip=True),),
        "paper": PAPER,
        "claims": (
            Claim(
                "The dEKF tracks better.",
                (Rule(metric="distance", lower={"filter": "dEKF"}, higher={"filter": "dPF-M"}),),
                "5.6",
            ),
        ),
        "deviations": ("The data are drawn anew.",),
    }
    return Table(**(settings | changes))


def run_cells(values: dict[tuple[str, str, str], tuple[float, float]], table: Table | None = None):
    """Records with a distance and an NLL by labels."""
    names = [axis.name for axis in (table or small_table()).axes]
    records = {}
    for labels, (distance, nll) in values.items():
        named = dict(zip(names, labels, strict=True))
        mean = {"distance": distance, "nll": nll, "coverage_90": 0.875}
        records[cell_name(labels)] = fake_record("disc_benchmark", named, mean)
    return records


def line_of(text: str, start: str, number: int = 0) -> list[str]:
    """The cells of one of the lines of Markdown tables that begin with a name."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in lines[number].strip("|").split("|")]


@pytest.mark.parametrize(
    ("metric", "ours", "paper", "outcome"),
    [
        ("distance", Measured(5.0, 0.3), Measured(6.0, 0.3), "better"),  # limit 0.849
        ("distance", Measured(5.0, 0.4), Measured(6.0, 0.4), "within"),  # limit 1.13
        ("distance", Measured(7.0, 0.3), Measured(6.0, 0.3), "worse"),
        ("distance", Measured(5.9, None), Measured(6.0, 0.1), "within"),  # one seed
        ("distance", Measured(5.7, None), Measured(6.0, 0.1), "better"),
        ("distance", Measured(5.9, None), Measured(6.0, None), "better"),
        ("distance", Measured(6.004, None), Measured(6.0, None), "within"),  # printed alike
        ("distance", Measured(math.inf, None), Measured(6.0, 0.1), "worse"),
        ("noise_correlation", Measured(-0.8, 0.01), Measured(-0.7, None), "better"),
        ("process_noise_distance", Measured(0.5, 0.01), Measured(0.4, None), "worse"),
        ("coverage_90", Measured(0.95, 0.001), Measured(0.8, 0.001), "better"),
        ("coverage_90", Measured(0.99, 0.001), Measured(0.95, 0.001), "worse"),
        ("parameters", Measured(10.0, 0.0), Measured(20.0, None), ""),
    ],
)
def test_outcomes(metric, ours, paper, outcome):
    assert measure_of(metric).outcome(ours, paper) == outcome


@pytest.mark.parametrize(
    ("metric", "measured", "text"),
    [
        ("distance", Measured(4.0, 0.1), "4.00 ± 0.10"),
        ("noise_correlation", Measured(-0.716), "−0.72"),
        ("process_noise_distance", Measured(0.4), "0.400"),
        ("coverage_50", Measured(0.512, 0.004), "51.2 ± 0.4 %"),
        ("parameters", Measured(14123.0, 0.0), "14 123"),
        ("nll", Measured(math.inf), "not finite"),
        ("noise_correlation", Measured(math.nan), "constant noise"),
        ("nll", None, "–"),
    ],
)
def test_numbers_are_written_with_the_digits_of_their_metric(metric, measured, text):
    assert measure_of(metric).text(measured) == text


def test_a_page_shows_every_number_in_its_place():
    records = run_cells(
        {
            ("filtrax", "dEKF", "3"): (5.0, 8.0),
            ("filtrax", "dPF-M", "3"): (7.1, 12.5),
            ("filtrax", "reference", "3"): (4.0, 6.0),
            ("filtrax", "dPF-M", "9"): (20.0, 11.0),
        }
    )
    records["filtrax_dpf-m_9"]["epochs"]["done"] = 10
    records["filtrax_reference_3"]["standard_error"] = {"distance": None, "nll": None}
    text = text_of(Comparison(small_table(), records))
    distances = {name: line_of(text, name) for name in ("dEKF", "dPF-M", "reference")}
    assert distances == {
        "dEKF": ["dEKF", "**5.00 ± 0.05** (6.00 ± 0.30) better", "not run (12.00 ± 0.30)"],
        "dPF-M": [
            "dPF-M",
            "7.10 ± 0.05 (7.00 ± 0.40) within",
            "20.00 ± 0.05 [10 of 30 epochs] (11.00 ± 0.40) worse",
        ],
        "reference": ["reference", "4.00† (–)", "not run (–)"],
    }
    assert line_of(text, "dEKF", 1)[1] == "**8.00 ± 0.05** (9.00†) better"
    assert line_of(text, "dPF-M", 1)[1] == "12.50 ± 0.05 (12.00 ± 0.10) worse"


def test_what_is_true_of_a_whole_row_is_said_beside_its_name():
    # Rejects a note in each of its cells.
    records = run_cells(
        {
            ("filtrax", "dEKF", "3"): (5.0, 8.0),
            ("filtrax", "dPF-M", "3"): (7.1, 12.5),
            ("filtrax", "dPF-M", "9"): (20.0, 11.0),
        }
    )
    for name in ("filtrax_dpf-m_3", "filtrax_dpf-m_9"):
        records[name]["epochs"]["done"] = 10
    text = text_of(Comparison(small_table(), records))
    assert line_of(text, "dPF-M [10 of 30 epochs]") == [
        "dPF-M [10 of 30 epochs]",
        "7.10 ± 0.05 (7.00 ± 0.40) within",
        "20.00 ± 0.05 (11.00 ± 0.40) worse",
    ]


def test_what_was_refused_or_diverged_says_so():
    records = run_cells({("filtrax", "dEKF", "3"): (5.0, 8.0)})
    labels = {"column": "filtrax", "filter": "dPF-M", "data": "3"}
    records["filtrax_dpf-m_3"] = {"cell": labels, "scale": "paper", "refused": "κ is too low."}
    records["filtrax_dekf_3"]["mean"]["nll"] = None
    text = text_of(Comparison(small_table(), records))
    assert line_of(text, "dPF-M")[1] == "refused (7.00 ± 0.40)"
    assert "- `filtrax_dpf-m_3`: κ is too low." in text
    assert line_of(text, "dEKF", 1)[1] == "not finite (9.00†) worse"


def test_lost_runs_are_counted_where_a_table_says_which_are_lost():
    lost = Lost(metric="distance", factor=1.5, against={"data": "3"})
    records = run_cells(
        {("filtrax", "dEKF", "3"): (5.0, 8.0), ("filtrax", "dEKF", "9"): (7.4, 8.0)}
    )
    records["filtrax_dekf_9"]["members"][1]["metrics"] = {"distance": 7.6}
    text = text_of(Comparison(small_table(lost=lost), records))
    assert line_of(text, "dEKF", 2) == ["dEKF", "0", "1"]


def test_a_table_without_columns_shows_its_metrics_as_columns():
    table = small_table(columns=())
    records = run_cells({("filtrax", "dEKF", "3"): (5.0, 8.0)}, table)
    (first, *others) = Comparison(table, records).blocks
    assert first.labels == {"column": "filtrax", "data": "3"}
    assert [grid.columns for grid in first.grids] == [["mean distance (px)", "NLL"]]
    assert len(others) == 3


def test_the_summary_counts_cells_numbers_and_verdicts():
    records = run_cells(
        {
            ("filtrax", "dEKF", "3"): (5.0, 8.0),
            ("filtrax", "dPF-M", "3"): (7.1, 12.5),
            ("paper", "dEKF", "9"): (15.0, 11.0),
            ("paper", "dPF-M", "9"): (14.0, 20.0),
        }
    )
    text = text_of(Comparison(small_table(), records))
    link = "[Benchmark](tables/disc_benchmark.md)"
    # Cells run; better, within, worse; holds, partly, does not hold here, not run.
    ours = line_of(text, f"{link}, filtrax")
    assert ours[1:] == ["2 of 6", "2", "1", "1", "1", "0", "0", "0"]
    paper = line_of(text, f"{link}, paper")
    assert paper[1:] == ["2 of 4", "0", "2", "2", "0", "0", "1", "0"]
    claim = line_of(text, "The dEKF tracks better.")
    assert claim[1:3] == ["5.6", "**holds** (1 of 1, 1 not run)"]
    assert claim[3] == "**does not hold here** (0 of 1, 1 not run)"
    assert "paper, contradicts: distance of filter dEKF, data 9" in text
    assert "- The data are drawn anew." in text


def test_goals_of_a_table_are_judged_beside_its_claims_and_counted_apart():
    rule = Rule("distance", best={"filter": "dEKF"}, of={"filter": "dPF-M"}, share=0.7)
    table = small_table(goals=(Claim("The dEKF is far better.", (rule,)),))
    cells = {("filtrax", "dEKF", "3"): (5.0, 8.0), ("filtrax", "dPF-M", "3"): (6.9, 12.5)}
    records = run_cells(cells, table)
    text = text_of(Comparison(table, records))
    assert "**What we want**" in text
    assert line_of(text, "The dEKF is far better.")[1:] == [
        "**does not hold here** (0 of 1, 1 not run)",
        "**not run**",
    ]
    counts = line_of(text, "[Benchmark](tables/disc_benchmark.md), filtrax")[-4:]
    assert counts == ["1", "0", "0", "0"]  # the claim alone
    console = Console(width=160, record=True, file=io.StringIO())
    print_table(table, records, console)
    assert "The dEKF is far better. filtrax: does not hold here" in console.export_text()


def test_the_page_tells_how_records_were_made():
    records = run_cells(
        {("filtrax", "dEKF", "3"): (5.0, 8.0), ("filtrax", "dPF-M", "3"): (7.1, 12.5)}
    )
    records["filtrax_dekf_3"] |= {"epochs": {"done": 10, "planned": 30}, "seeds": [0, 1, 2]}
    text = text_of(Comparison(small_table(), records))
    assert (
        "Records: 2 of 10 cells; scale paper; 10 of 30 epochs, 30 of 30 epochs; seeds 0 1 2, 0 1; "
        "NVIDIA H200; commit 0123456789. "
        "Again: `filtrax reproduce disc_benchmark --scale paper --seeds 3`."
    ) in text


def test_goals_measure_the_way_from_the_paper_to_the_reference():
    records = run_cells(
        {
            ("filtrax", "dEKF", "3"): (4.5, 8.5),
            ("filtrax", "dPF-M", "3"): (6.5, 9.9),
            ("filtrax", "reference", "3"): (4.0, 6.0),
            ("filtrax", "dPF-M", "9"): (10.0, 12.5),
        }
    )
    compared = Comparison(small_table(), records)
    found = {(gap.metric, gap.data): gap for gap in gaps(compared)}
    closed = found["distance", "3"]
    assert (closed.paper, closed.reference, closed.ours) == (("dEKF", 6.0), 4.0, ("dEKF", 4.5))
    assert closed.closed == pytest.approx(0.75)
    assert found["nll", "3"].closed == pytest.approx(0.5 / 3)
    assert found["distance", "9"].closed is None
    text = goals(compared)
    assert line_of(text, "mean distance, 3")[-3:] == ["75%", "67%", "met"]
    assert line_of(text, "NLL, 3")[-3:] == ["17%", "50%", "missed"]
    assert line_of(text, "3")[1:5] == ["9.90 ± 0.05", "12.00 ± 0.10", "below 10", "met"]
    assert line_of(text, "9")[1:5] == ["12.50 ± 0.05", "20.00 ± 0.10", "below 12", "missed"]
    assert line_of(text, "3")[-1] == "87.5 ± 5.0 %"


def test_the_terminal_shows_the_same():
    records = run_cells(
        {("filtrax", "dEKF", "3"): (5.0, 8.0), ("filtrax", "dPF-M", "3"): (7.1, 12.5)}
    )
    console = Console(width=160, record=True, file=io.StringIO())
    print_table(small_table(), records, console)
    text = console.export_text()
    assert "2 of 10 cells at scale paper" in text
    assert "5.00 ± 0.05 (6.00 ± 0.30) better" in text
    assert "12.50 ± 0.05 (12.00 ± 0.10) worse" in text
    assert "not run (12.00 ± 0.30)" in text
    assert "The dEKF tracks better. filtrax: holds (1 of 1, 1 not run)" in text


def test_the_terminal_leaves_out_what_nobody_has_numbers_of():
    table = read_table("kitti_process")
    records = {name: r for name, r in fake_records(table).items() if name.endswith(("_03", "_07"))}
    console = Console(width=80, record=True, file=io.StringIO())
    print_table(table, {k: records[k] for k in records if k.startswith("learned")}, console)
    text = console.export_text()
    (heading, *_) = [line for line in text.splitlines() if "fold" in line]
    assert heading.split()[-3:] == ["fold", "03", "07"]
    assert "not run" not in text
    assert "analytical" not in text


def test_the_list_counts_what_is_done(tmp_path):
    table = read_table("disc_benchmark")
    name, record = next(iter(fake_records(table).items()))
    (tmp_path / table.name).mkdir()
    (tmp_path / table.name / f"{name}.json").write_text(json.dumps(record))
    console = Console(width=200, record=True, file=io.StringIO())
    print_list(console, Results(tmp_path))
    lines = [line.split() for line in console.export_text().splitlines() if line.strip()]
    rows = {line[0]: line for line in lines}
    assert {*table_names()} <= {*rows}
    assert rows[table.name][-2:] == [str(len(table.labels())), "1"]


def test_the_benchmark_comes_first_and_no_table_is_left_out():
    assert ordered_names()[0] == "disc_benchmark"
    assert sorted(ordered_names()) == table_names()


def test_pages_are_current_until_a_record_or_a_file_changes(tmp_path, monkeypatch):
    # One table is enough, and all of them take long.
    monkeypatch.setattr(page_module, "table_names", lambda: ["disc_loss"])
    results, folder = tmp_path / "results", tmp_path / "study"
    table = read_table("disc_loss")
    name, record = next(iter(fake_records(table, distance=5.0, nll=8.0).items()))
    path = results / table.name / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    assert not pages_are_current(results, folder)
    write_pages(results, folder)
    assert pages_are_current(results, folder)
    page = folder / "tables" / "disc_loss.md"
    assert "(tables/disc_loss.md)" in (folder / "README.md").read_text()
    figures = re.findall(r"\]\((\.\./figures/[^)]+)\)", page.read_text())
    assert figures == ["../figures/disc_loss.svg"]
    assert all((page.parent / figure).is_file() for figure in figures)

    record["mean"]["distance"] += 1
    path.write_text(json.dumps(record))
    assert not pages_are_current(results, folder)
    write_pages(results, folder)
    stale, own = (folder / "figures" / name for name in ("disc_loss_old.svg", "mine.svg"))
    for picture in (stale, own):
        picture.write_text("<svg/>")
    assert not pages_are_current(results, folder)
    write_pages(results, folder)
    assert pages_are_current(results, folder)
    assert (stale.exists(), own.exists()) == (False, True)
    (page.parent / figures[0]).unlink()
    assert not pages_are_current(results, folder)
