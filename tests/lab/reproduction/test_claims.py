"""Claims: what counts as a difference, and what a verdict says of many comparisons."""

import math

import pytest

from filtrax.lab.reproduction.claims import Claim, Rule, judge, lost, measured
from filtrax.lab.reproduction.rules import Lost
from filtrax.lab.reproduction.tables import Axis, Table, Value


def values(*labels):
    return tuple(Value(label) for label in labels)


TABLE = Table(
    name="tiny",
    title="Tiny",
    source="",
    asks="",
    metrics=("distance",),
    axes=(
        Axis("column", values("ours", "theirs")),
        Axis("filter", values("A", "B", "C")),
        Axis("data", values("1", "2")),
    ),
    lost=Lost("distance", 1.5, {"data": "1"}),
)


def record(value, error=0.0, members=()):
    metrics = [{"metrics": {"distance": member}} for member in members]
    return {
        "mean": {"distance": value},
        "standard_error": {"distance": error},
        "parameters": 12,
        "epochs": {"done": 3, "planned": 5},
        "seconds": {"training": 60.0, "members": 4},
        "members": metrics,
    }


def verdict(rule, records, within=None):
    return judge(Claim("So it is.", (rule,)), TABLE, records, within or {"column": "ours"})


def outcomes(rule, **cells):
    records = {f"ours_{name}": content for name, content in cells.items()}
    return [finding.outcome for finding in verdict(rule, records).findings]


ORDER = Rule("distance", where={"data": "1"}, lower={"filter": "A"}, higher={"filter": "B"})


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ((1.0, 0.3), (2.01, 0.4), "holds"),  # two standard errors are exactly 1
        ((1.0, 0.3), (2.0, 0.4), "open"),
        ((1.0, 0.3), (0.0, 0.4), "open"),
        ((1.0, 0.3), (-0.01, 0.4), "contradicts"),
        ((1.0, 0.0), (1.0, 0.0), "open"),
        ((1.0, None), (1.001, 5.0), "holds"),  # without an error the sign decides
        ((1.0, 5.0), (0.999, None), "contradicts"),
        ((1.0, 0.1), (None, None), "holds"),  # what is not finite is written as null
        ((math.nan, None), (1.0, 0.1), "contradicts"),
        ((None, None), (None, None), "open"),
    ],
)
def test_a_difference_counts_beyond_two_standard_errors(low, high, expected):
    found = verdict(ORDER, {"ours_a_1": record(*low), "ours_b_1": record(*high)})
    assert [finding.outcome for finding in found.findings] == [expected]
    assert found.by_sign == (None in (low[1], high[1]))


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "expected"),
    [
        ((1.0, 0.3), (2.0, 0.4), 0.0, "holds"),
        ((1.0, 0.3), (2.01, 0.4), 0.0, "contradicts"),
        ((2.2, 0.0), (2.0, 0.0), 0.1001, "holds"),  # of the smaller one
        ((2.0, 0.0), (2.2, 0.0), 0.0999, "contradicts"),
        ((2.0, None), (2.1, 0.0), 0.1, "holds"),
        ((2.0, None), (2.3, 0.0), 0.1, "open"),
        ((None, None), (2.3, 0.0), 0.1, "contradicts"),
    ],
)
def test_likeness_is_up_to_errors_or_the_tolerance(one, other, tolerance, expected):
    rule = Rule("distance", where={"data": "1"}, same={"filter": ("A", "B")}, tolerance=tolerance)
    assert outcomes(rule, a_1=record(*one), b_1=record(*other)) == [expected]


@pytest.mark.parametrize(
    ("value", "error", "below", "above"),
    [
        (4.0, 0.5, "open", "open"),
        (3.9, 0.5, "holds", "contradicts"),
        (6.1, 0.5, "contradicts", "holds"),
        (4.9, None, "holds", "contradicts"),
    ],
)
def test_bounds_hold_beyond_two_standard_errors(value, error, below, above):
    where = {"filter": "A", "data": "1"}
    cell = record(value, error)
    assert outcomes(Rule("distance", where=where, below=5.0), a_1=cell) == [below]
    assert outcomes(Rule("distance", where=where, above=5.0), a_1=cell) == [above]
    both = Rule("distance", where=where, below=9.0, above=1.0)
    assert outcomes(both, a_1=cell) == ["holds", "holds"]


@pytest.mark.parametrize(
    ("share", "over", "expected"),
    [
        (1.0, None, "holds"),  # 3 against 10
        (0.3, None, "open"),
        (0.29, None, "open"),  # 2.9 ± 0.058 against 3 ± 0
        (0.28, None, "contradicts"),
        (0.2, {"filter": "C"}, "open"),  # 2 + 0.2 (10 - 2) = 3.6 ± √(0.04² + 0.32²)
        (0.3, {"filter": "C"}, "holds"),  # 4.4 ± √(0.06² + 0.28²)
        (0.0, {"filter": "C"}, "contradicts"),
    ],
)
def test_the_best_is_compared_with_a_share_of_another(share, over, expected):
    others = {"a_1": record(3.0), "b_1": record(10.0, 0.2), "c_1": record(2.0, 0.4)}
    best = {"filter": "A"} if over else {"filter": ("A", "B")}
    rule = Rule(
        "distance", where={"data": "1"}, best=best, of={"filter": "B"}, share=share, over=over
    )
    assert outcomes(rule, **others) == [expected]


def test_the_best_is_the_lowest_that_was_run_and_needs_what_it_counts_from():
    best = {"filter": ("A", "B")}
    rule = Rule("distance", best=best, of={"filter": "C"}, share=0.5, over={"filter": "A"})
    cells = {"b_1": record(3.0), "a_1": record(4.0), "c_1": record(8.0)}
    cells |= {"b_2": record(3.0), "c_2": record(8.0)}
    records = {f"ours_{name}": content for name, content in cells.items()}
    found = verdict(rule, records)
    assert found.details == [
        "holds: distance of filter B, data 1 (3 ± 0) is below 0.5 times that of filter C, data 1, "
        "counted from filter A (6 ± 0)",
        "missing: the lowest distance is below 0.5 times that of filter C, data 2, counted from "
        "filter A",
    ]
    assert (found.judged, found.holding) == (1, 1)


def test_a_share_of_what_has_no_error_is_judged_by_its_sign():
    rule = Rule("distance", where={"data": "1"}, best={"filter": "A"}, of={"filter": "B"})
    found = verdict(rule, {"ours_a_1": record(3.0, None), "ours_b_1": record(3.1)})
    assert (found.verdict, found.by_sign) == ("holds", 1)


def test_every_pair_in_every_combination_is_compared():
    rule = Rule("distance", lower={"filter": "A"}, higher={"filter": ("B", "C")})
    records = {
        **{"ours_a_1": record(1.0), "ours_b_1": record(2.0), "ours_c_1": record(0.5)},
        **{"ours_a_2": record(3.0), "ours_b_2": record(3.0)},
        **{"theirs_a_1": record(9.0), "theirs_b_1": record(1.0)},
    }
    found = verdict(rule, records)
    assert found.details == [
        "holds: distance of filter A, data 1 (1 ± 0) is below that of filter B, data 1 (2 ± 0)",
        "contradicts: distance of filter A, data 1 (1 ± 0) is below that of filter C, data 1 "
        "(0.5 ± 0)",
        "open: distance of filter A, data 2 (3 ± 0) is below that of filter B, data 2 (3 ± 0)",
        "missing: distance of filter A, data 2 is below that of filter C, data 2",
    ]
    assert (found.holding, found.open, found.contradicting, found.missing) == (1, 1, 1, 1)
    assert found.judged == 3
    assert found.verdict == "partly"
    assert verdict(rule, records, {"column": "theirs"}).verdict == "does not hold here"
    assert verdict(rule, {}).verdict == "not run"
    # An axis that nothing names or restricts is one of the combinations.
    assert len(judge(Claim("", (rule,)), TABLE, {}).findings) == 8


def test_a_claim_holds_if_all_its_rules_do_as_far_as_they_can_be_judged():
    records = {"ours_a_1": record(1.0), "ours_b_1": record(2.0)}
    reverse = Rule("distance", where={"data": "1"}, lower={"filter": "B"}, higher={"filter": "A"})
    absent = Rule("distance", where={"data": "2"}, lower={"filter": "A"}, higher={"filter": "B"})

    def said(*rules):
        return judge(Claim("", rules), TABLE, records, {"column": "ours"}).verdict

    assert said(ORDER) == said(ORDER, absent) == "holds"
    assert said(ORDER, reverse) == "partly"
    assert said(reverse) == "does not hold here"
    assert said(absent) == "not run"


def test_refused_cells_have_no_numbers():
    refused = {"refused": "It cannot be."}
    rule = Rule(refused={"filter": "A", "data": ("1", "2")})
    assert outcomes(rule, a_1=refused, a_2=record(1.0)) == ["holds", "contradicts"]
    assert outcomes(rule, a_1=refused) == ["holds", "missing"]
    assert outcomes(ORDER, a_1=refused, b_1=record(2.0)) == ["missing"]


def test_lost_runs_are_counted_against_the_same_cell_with_other_labels():
    records = {
        "ours_a_1": record(2.0, members=(1.0, 3.1)),
        "ours_a_2": record(4.0, members=(3.0, 3.01, None, math.inf)),
        "ours_b_1": record(1.0, members=(1.0, 1.0)),
        "ours_b_2": record(1.0, members=(1.5, 1.4)),
        "ours_c_2": record(1.0, members=(1.0,)),  # the cell to compare with is missing
        "theirs_a_1": {"refused": "It cannot be."},
    }
    assert lost(TABLE, records) == {"ours_a_1": 1, "ours_a_2": 3, "ours_b_1": 0, "ours_b_2": 0}
    total = Rule("lost", total=("data",), lower={"filter": "B"}, higher={"filter": ("A", "C")})
    found = verdict(total, records)
    assert [finding.outcome for finding in found.findings] == ["holds", "missing"]
    assert "(0) is below that of filter A (4)" in found.details[0]


def test_records_tell_more_than_their_metrics():
    known = measured(record(1.0), "parameters")
    assert known is not None
    assert (known.value, known.error) == (12.0, 0.0)
    seconds = measured(record(1.0), "epoch_seconds")
    assert seconds is not None
    assert (seconds.value, seconds.error) == (5.0, None)
    assert measured(record(1.0), "nll") is None
    assert measured(None, "distance") is None
    assert measured(record(1.0), "occlusion_correlation") is None


def test_correlations_of_what_is_shown():
    shown = {
        "process_std": [[0.0, 0.0, 1.0, 3.0], [9.0, 9.0, 3.0, 3.0], [0.0, 0.0, 4.0, 4.0]],
        "true_process_std": [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]],
        "occlusion": [[0.1, 0.2], [0.3, None]],
        "process_std_map": [[1.0, 2.0], [-9.0, None]],
        "counts": [[5, 5], [0, 0]],
    }
    content = record(1.0) | {"shown": shown}
    velocity = measured(content, "velocity_noise_correlation")
    occlusion = measured(content, "occlusion_correlation")
    assert velocity is not None
    assert velocity.value == pytest.approx(-1.0)
    assert occlusion is not None
    assert occlusion.value == pytest.approx(1.0)
    shown["process_std_map"] = [[1.0, 1.0], [-9.0, None]]
    assert measured(content, "occlusion_correlation") is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lower": {"filter": "A"}},
        {"lower": {}, "higher": {}, "same": {}},
        {"same": {}, "below": 1.0},
        {"best": {"filter": "A"}},
        {"below": 1.0, "of": {}},
        {"refused": {}, "metric": "distance"},
        {"same": {}, "metric": ""},
    ],
)
def test_a_rule_has_one_form(settings):
    with pytest.raises(ValueError, match="A rule must have"):
        Rule(**({"metric": "distance"} | settings))
