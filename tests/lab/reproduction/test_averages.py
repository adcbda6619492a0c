"""Means over folds: how they are made, compared, judged and shown beside numbers of other data.

Rejected are: means over what was not run, errors over seeds in the place of folds, methods that are
compared on different folds, outcomes where the paper had other data, rows of others that count as
ours, and labels that hide what data are.
"""

import dataclasses
import io
import math

import numpy as np
import pytest
from reproduction.fake_records import fake_record
from rich.console import Console

from filtrax.lab.reproduction.axes import Adjustment, Average, Axis, Value
from filtrax.lab.reproduction.claims import judge
from filtrax.lab.reproduction.display.comparison import Comparison
from filtrax.lab.reproduction.display.page import summary_page
from filtrax.lab.reproduction.display.sections import section
from filtrax.lab.reproduction.display.terminal import print_table
from filtrax.lab.reproduction.rules import Claim, Lost, Rule
from filtrax.lab.reproduction.tables import Table

PAPER = """
filter | fold | distance   | nll
A      | ten  | 10.1 ± 0.8 | 61.8
A      | all  | 15.8 ± 5.8 | –
B      | ten  | 9.3        | 59.3
"""
PRIOR = """
filter         | fold | nll
Others (2018)  | all  | 5.5 ± 0.5
"""
STREETS = {"task": {"kind": "kitti", "root": "", "poses": "poses"}}


def folds_table(**changes) -> Table:
    axes = {"filter": ("A", "B"), "fold": ("00", "01", "02", "03")}
    settings = {
        "name": "own",
        "title": "Own",
        "source": "nowhere",
        "asks": "Which?",
        "metrics": ("distance", "nll"),
        "axes": tuple(Axis(name, tuple(map(Value, labels))) for name, labels in axes.items()),
        "rows": ("filter",),
        "base": {"task": {"kind": "kitti"}},
        "average": Average(
            "fold",
            {"ten": ("00", "02", "03"), "all": ("00", "01", "02", "03"), "highway": ("01",)},
        ),
        "paper": PAPER,
        "prior": PRIOR,
        "context": True,
    }
    return Table(**(settings | changes))


def records_of(values: dict[str, float], **changes):
    """Records with a distance by "filter_fold"; the NLL is ten times as large."""
    records = {}
    for name, value in values.items():
        filt, fold = name.split("_")
        mean = {"distance": float(value), "nll": 10.0 * value}
        labels = {"filter": filt.upper(), "fold": fold}
        records[name] = fake_record("own", labels, mean, config=STREETS, **changes)
    return records


def entry(records, labels, metric="distance", **changes):
    found = Comparison(folds_table(**changes), records).entry(labels, metric)
    assert found is not None
    return found


def test_a_mean_is_over_the_folds_that_were_run_with_the_error_over_folds():
    records = records_of({"a_00": 1.0, "a_01": 8.0, "a_03": 4.0})
    ten, everything, highway = (
        entry(records, {"filter": "A", "fold": fold}) for fold in ("ten", "all", "highway")
    )
    assert ten.ours is not None
    assert (ten.ours.value, ten.ours.error) == (2.5, pytest.approx(1.5))
    assert ten.part == "2 of 3 folds: 00, 03"
    assert everything.ours is not None
    assert everything.ours.value == pytest.approx(13 / 3)
    assert everything.ours.error == pytest.approx(np.std([1, 8, 4], ddof=1) / math.sqrt(3))
    # A single cell keeps the error over its seeds.
    assert highway.ours is not None
    assert (highway.ours.value, highway.ours.error, highway.part) == (8.0, 0.05, "")
    nothing = entry(records, {"filter": "B", "fold": "ten"})
    assert (nothing.ours, nothing.state) == (None, "not run")


def test_the_best_row_is_one_that_was_run_on_as_many_folds_as_any():
    records = records_of({"a_00": 2.0, "a_02": 3.0, "b_00": 1.0})
    assert "**" not in section(Comparison(folds_table(), records))
    records |= records_of({"b_02": 1.5})
    assert "| B | **1.25 ± 0.25** (9.30†)" in section(Comparison(folds_table(), records))


def test_one_fold_of_several_has_no_error_and_an_infinite_one_makes_the_mean_infinite():
    records = records_of({"a_00": 1.0, "b_00": 2.0, "b_02": 3.0})
    records["b_02"]["mean"]["distance"] = None
    one, lost = (entry(records, {"filter": name, "fold": "ten"}).ours for name in "AB")
    assert one is not None
    assert (one.value, one.error) == (1.0, None)
    assert lost is not None
    assert (lost.value, lost.error) == (math.inf, None)


LOWER = Rule("distance", where={"fold": "ten"}, lower={"filter": "A"}, higher={"filter": "B"})


@pytest.mark.parametrize(
    ("values", "outcome", "by_sign"),
    [
        # Differences 1, 1.2 and 0.8 are clear, although folds differ by far more.
        ({"a_00": 1, "b_00": 2, "a_02": 9, "b_02": 10.2, "a_03": 20, "b_03": 20.8}, "holds", False),
        ({"a_00": 2, "b_00": 1, "a_02": 10.2, "b_02": 9}, "contradicts", False),
        ({"a_00": 1, "b_00": 2, "a_02": 9, "b_02": 8.5}, "open", False),
        # Fold 03 would turn the order, but only one of both was run on it.
        ({"a_00": 1, "b_00": 2, "a_02": 9, "b_02": 10.2, "a_03": 50}, "holds", False),
        ({"a_00": 1, "b_00": 2, "a_02": 9}, "holds", True),
        ({"a_00": 1, "b_02": 2}, "missing", False),
        ({"a_00": 1, "a_02": 2}, "missing", False),
    ],
)
def test_means_are_compared_on_the_folds_that_both_have(values, outcome, by_sign):
    found = judge(Claim("", (LOWER,)), folds_table(), records_of(values))
    assert [finding.outcome for finding in found.findings] == [outcome]
    assert found.by_sign == by_sign


def test_other_folds_are_no_pairs():
    rule = Rule("distance", lower={"fold": "ten"}, higher={"fold": ("highway", "all")})
    values = {"a_00": 1.0, "a_02": 2.0, "a_01": 30.0}
    found = judge(Claim("", (rule,)), folds_table(), records_of(values))
    assert [finding.outcome for finding in found.findings] == [
        "open",
        "holds",
        "missing",
        "missing",
    ]
    bound = Rule("distance", where={"fold": "ten", "filter": "A"}, below=3.0)
    found = judge(Claim("", (bound,)), folds_table(), records_of(values))
    assert [finding.outcome for finding in found.findings] == ["holds"]


def test_refused_and_lost_cells_are_counted_over_folds():
    records = records_of({"a_00": 1.0, "a_02": 2.0, "b_00": 9.0, "b_02": 3.0})
    lost = Lost("distance", 2.0, {"filter": "A"})
    found = entry(records, {"filter": "B", "fold": "ten"}, "lost", lost=lost)
    assert found.ours is not None
    assert found.ours.value == 2.0  # both seeds of fold 00
    refused = {name: {"refused": "No.", "cell": {}} for name in ("a_00", "a_02")}
    rule = Rule(refused={"filter": "A", "fold": "ten"})
    for given, outcome in ((refused, "holds"), (refused | records_of({"a_02": 1}), "contradicts")):
        judged = judge(Claim("", (rule,)), folds_table(), given)
        assert [finding.outcome for finding in judged.findings] == [outcome]


def test_numbers_of_other_data_have_no_outcome_and_others_have_rows():
    records = records_of({"a_00": 1.0, "a_02": 2.0})
    compared = Comparison(folds_table(), records)
    text = section(compared)
    assert "better" not in text
    assert "All means are over 2 of 3 folds: 00, 02." in text
    assert "| A | 1.50 ± 0.50 (10.10 ± 0.80) | 15.0 ± 5.0 (61.8†) |" in text
    assert "| B | not run (9.30†) | not run (59.3†) |" in text
    assert "| Others (2018) |  | – (5.5 ± 0.5) |" in text
    # Under the other folds there is nothing of others.
    assert text.count("Others (2018)") == 1
    assert "generated images, real trajectories" in text
    assert "Again: `filtrax reproduce own --scale paper --seeds 2 --set task.poses=DIR`" in text
    judged = Comparison(folds_table(context=False), records)
    assert "(10.10 ± 0.80) better" in section(judged)
    row = next(
        line for line in summary_page([compared]).splitlines() if "[Own](tables/own.md)" in line
    )
    assert row.split("|")[2:6] == [" 2 of 8 ", " 0 ", " 0 ", " 0 "]
    console = Console(width=160, record=True, file=io.StringIO())
    print_table(folds_table(), records, console)
    printed = console.export_text()
    assert "1.50 ± 0.50 [2 of 3 folds: 00, 02] (10.10 ± 0.80)" in printed
    assert "– (5.5 ± 0.5)" in printed


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"poses": ""}, "generated images, generated trajectories"),
        ({"root": "kitti", "poses": ""}, "images and trajectories of a folder"),
        ({"kind": "disc"}, ""),
    ],
)
def test_a_page_says_what_data_are(task, said):
    records = records_of({"a_00": 1.0})
    records["a_00"]["config"] = {"task": STREETS["task"] | task}
    text = section(Comparison(folds_table(), records))
    assert f"Records: 1 of 8 cells; {said}{'; ' if said else ''}scale paper" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"average": Average("folds", {"ten": ("00",)})}, "no such axis.*'fold'"),
        ({"average": Average("fold", {"ten": ("0",)})}, "no such label.*'00'"),
        ({"average": None}, "none is .*ten"),
        ({"prior": PRIOR.replace("filter", "method")}, "`prior` must name axes"),
        ({"prior": PRIOR.replace("| all", "| eleven")}, "no such label"),
        ({"prior": PRIOR.replace("5.5", "about 5")}, "numbers like"),
        ({"prior": "fold | nll\nall | 5"}, "all axes that are rows"),
    ],
)
def test_mistakes_in_averages_and_rows_of_others_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        folds_table(**changes)
    with pytest.raises(ValueError, match="at least one label"):
        Average("fold", {"ten": ()})


def test_cells_that_are_left_out_are_in_no_mean():
    left_out = (Adjustment({"filter": "A", "fold": "02"}, skip=True),)
    table = folds_table(adjust=left_out)
    places = {(*place.labels.values(),): [*place.cells] for place in table.places()}
    assert places["A", "ten"] == ["00", "03"]
    assert places["B", "ten"] == ["00", "02", "03"]
    plain = dataclasses.replace(table, average=None, paper="", prior="")
    assert [[*place.cells.values()] for place in plain.places()][:2] == [["a_00"], ["a_01"]]
