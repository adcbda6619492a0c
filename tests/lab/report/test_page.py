"""The page as text: complete, self-contained, and nothing in it can break out."""

import json
import re

import numpy as np
import pytest
from report.fake_run import Sizes, evaluation, write_run

from filtrax.lab import report
from filtrax.lab.report.reading import Run
from filtrax.lab.report.tables import metrics_table, run_facts


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    runs = [
        write_run(folder / "one <b>&"),
        write_run(folder / "two", seed=1),
        write_run(folder / "three", finished=False),
    ]
    path = report.write(runs, folder / "new" / "report.html")
    assert path == folder / "new" / "report.html"
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )


def finished(name, **metrics):
    result = {"members": [{"rollbacks": 1}], "mean": metrics, "standard_error": {}}
    return Run(name, "", {}, [], result, {"degrees": np.asarray(4.0)})


def best_of(table, heading):
    headings = re.findall(r'<th scope="col".*?>(.*?)</th>', table)
    rows = re.findall(r'<th scope="row">(.*?)<small>.*?</th>(.*?)</tr>', table)
    column = headings.index(heading) - 1
    cells = {name: re.findall(r"<td.*?</td>", row)[column] for name, row in rows}
    return [name for name, cell in cells.items() if "best" in cell]


def test_the_page_asks_for_nothing_from_outside(page):
    without_data = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)
    addresses = re.findall(r"""(?:src|href)=["'](.*?)["']""", without_data)
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert "@import" not in page
    assert set(re.findall(r"https?://[^\s\"']+", without_data)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_texts_of_users_cannot_break_out(page):
    # Both the name of the first run and a value in every configuration hold markup.
    assert "one <b>&" not in page
    assert "one &lt;b&gt;&amp;" in page
    assert "a &lt; b &amp;&amp; c &gt; d &lt;/script&gt;" in page
    assert page.count("</script>") == 2
    assert data_of(page)["players"][0]["name"] == "one <b>&"


def test_the_data_hold_all_runs(page):
    data = data_of(page)
    assert [player["name"] for player in data["players"]] == ["one <b>&", "two"]
    names = [series["name"] for series in data["learning"][0]["charts"][0]["series"]]
    assert names == ["one <b>&", "two", "three"]
    assert len(data["images"]) == 2


def test_numbers_are_short_and_not_finite_ones_null(tmp_path):
    folder = write_run(tmp_path / "run")
    arrays = evaluation(Sizes())
    arrays["means"][0, 2] = np.nan
    arrays["covariances"][0, 3] = np.inf
    arrays["nees"][0] = np.inf
    np.savez(folder / "evaluation.npz", **arrays)
    data = data_of(report.write([folder], tmp_path / "report.html").read_text())
    sequence = data["players"][0]["sequences"][0]
    assert sequence["estimate"][2] == [None, None]
    distances = sequence["readings"][0]["values"]
    assert distances[2] is None
    assert None in sequence["ellipse"][3]
    exact = np.linalg.norm(arrays["states"][0, 0] - arrays["means"][0, 0])
    assert distances[0] == pytest.approx(exact, rel=1e-4)
    assert len(str(distances[0])) <= 7
    assert data["calibration"][0]["note"] == "1 of 12 sequences of run are not finite."


def test_the_same_runs_give_the_same_page(tmp_path):
    folder = write_run(tmp_path / "run", Sizes(sequences=400, particles=400))
    pages = [report.write([folder], tmp_path / name).read_bytes() for name in ("a", "b")]
    assert pages[0] == pages[1]


def test_best_values_are_marked_by_what_is_good_for_each_metric():
    # Rejects marking the largest coverage or the smallest NEES.
    table = metrics_table(
        [
            finished("a", distance=5.0, nees=1.0, coverage_90=0.99, noise_correlation=-0.8, nll=1),
            finished("b", distance=4.0, nees=4.2, coverage_90=0.91, noise_correlation=-0.2),
            finished("c", distance=float("nan"), nees=9.0, coverage_90=0.5),
        ]
    )
    assert best_of(table, "Distance") == ["b"]
    assert best_of(table, "NEES (ideal 4)") == ["b"]
    assert best_of(table, "Coverage 90 %") == ["b"]
    assert best_of(table, "Noise correlation") == ["a"]
    assert best_of(table, "Rollbacks") == []
    assert best_of(table, "NLL") == []


def test_values_carry_their_errors_and_missing_ones_a_dash(tmp_path):
    result = {
        "mean": {"distance": 4.8123, "noise_correlation": -0.5, "own_metric": 3},
        "standard_error": {"distance": 0.0517, "noise_correlation": None},
    }
    table = metrics_table([Run("a", "", {}, [], result, {})])
    assert "<td>4.812<small> ± 0.052</small></td>" in table
    assert "<td>−0.5</td>" in table
    assert "Own metric" in table
    # Rollbacks are not known; metrics that no run has are left out, but not before there are any.
    assert table.count("<td>–</td>") == 1
    assert metrics_table([Run("a", "", {}, [], None, {})]).count("<td>–</td>") == 10
    assert "class=" not in table.split("<tbody>")[1]


def test_facts_are_those_of_the_run():
    facts = {
        "commit": "abcdef0123456789",
        "dirty": True,
        "seed": 7,
        "device": {"platform": "gpu", "kind": "NVIDIA H200", "count": 2},
        "packages": {"jax": "0.10.1"},
    }
    text = run_facts(Run("a", "", facts, [], None, {}))
    assert "abcdef012345 with local changes" in text
    assert "2 × NVIDIA H200 (gpu)" in text
    assert "jax 0.10.1" in text
    assert "in training, no epoch recorded yet" in text
