"""Figures: every number where it belongs, and a file that is current as long as its numbers are.

Rejected are: axes that are swapped, lines through missing cells, a legend with the names of one
panel, a figure that counts as current after its numbers have changed, or as stale because another
version of matplotlib has drawn it, and bytes that differ from one drawing to the next.
"""

import dataclasses
import json
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from reproduction.fake_records import fake_record, fake_records

from filtrax.lab.report.charts import Axis, Chart, Series
from filtrax.lab.reproduction.display.comparison import Comparison
from filtrax.lab.reproduction.display.drawing import Panel, Picture, numbers_in
from filtrax.lab.reproduction.display.figures import CURVES, SHOWN, picture
from filtrax.lab.reproduction.display.files import are_current, write_files
from filtrax.lab.reproduction.tables import cell_name, read_table

X = np.asarray([1.0, 2.0, 5.0])


def panel(*series: Series, log: bool = False, title: str = "", places=()) -> Panel:
    return Panel(Chart(title, Axis("κ"), Axis("mean distance (px)", log=log), series), places)


def drawn(shown: Picture) -> list:
    """The Axes of a picture, row by row."""
    figure = Figure()
    shown.draw(figure)
    return figure.axes


def lines(ax) -> dict[str, np.ndarray]:
    """The points of all named lines."""
    return {line.get_label(): np.stack(line.get_data(), -1) for line in ax.get_lines()}


def test_lines_and_bars_are_where_their_numbers_are():
    y = np.asarray([8.0, np.inf, 9.5])
    series = Series("dEKF", X, y, y - 0.5, y + 0.25)
    (ax,) = drawn(Picture("a.svg", "A.", [[panel(series)]]))
    np.testing.assert_array_equal(lines(ax)["dEKF"], [[1, 8], [2, np.nan], [5, 9.5]])
    (bars,) = [line for line in ax.get_lines() if line.get_label() != "dEKF"]
    x, ends = (np.reshape(part, (3, 3)) for part in bars.get_data())
    np.testing.assert_array_equal(x[:, 0], X)
    np.testing.assert_array_equal(ends[0], [7.5, 8.25, np.nan])
    assert np.isnan(ends[1]).all()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("κ", "mean distance (px)")


def test_panels_share_rows_and_their_legend_has_every_name_once():
    one, two = Series("dEKF", X, X), Series("dUKF", X, 100 * X, style=1)
    rows = [
        [panel(one, title="filtrax"), panel(one, two, title="paper")],
        [panel(one, title="filtrax"), None],
    ]
    figure = Figure()
    Picture("a.svg", "A.", rows).draw(figure)
    first, second, third, empty = figure.axes
    assert first.get_ylim() == second.get_ylim() != third.get_ylim()
    titles = [ax.get_title() for ax in (first, second, third)]
    assert titles == ["filtrax", "paper", ""]
    assert not empty.axison
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["dEKF", "dUKF"]


def test_logarithmic_and_named_axes_have_plain_labels():
    (ax,) = drawn(Picture("a.svg", "A.", [[panel(Series("x", X, 100 * X), log=True)]]))
    assert ax.get_yscale() == "log"
    named = panel(Series("x", [0.0, 1.0], [1.0, 2.0], points=True), places=("mse", "nll"))
    (ax,) = drawn(Picture("a.svg", "A.", [[named]]))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["mse", "nll"]
    assert lines(ax)["x"].tolist() == [[0, 1], [1, 2]]
    assert ax.get_lines()[0].get_linestyle() == "None"


def test_a_file_carries_its_numbers_and_equal_numbers_give_equal_bytes():
    y = np.asarray([8.123456, np.nan, 9.5])
    shown = Picture("a.svg", "A.", [[panel(Series("a < b & c", X, y))]])
    svg = shown.svg()
    assert shown.svg() == svg
    (content,) = numbers_in(svg) or ()
    assert content["series"] == [{"name": "a < b & c", "x": [1, 2, 5], "y": [8.123, None, 9.5]}]
    assert (content["x"], content["y"]) == ("κ", "mean distance (px)")
    assert "<dc:date>" not in svg
    # Rejects a style that is shortened to a name which the sheet does not have.
    rules = re.findall(r"\.(s\d+)\{[^}]+\}", svg)
    assert len(rules) == len({*rules})
    assert {*rules} == {*re.findall(r'class="(s\d+)"', svg)}
    assert "style=" not in svg.partition("</metadata>")[2]
    assert numbers_in("<svg/>") is None
    assert numbers_in(svg[:-20]) is None


def test_a_figure_is_current_if_and_only_if_its_numbers_are(tmp_path):
    shown = Picture("a.svg", "A.", [[panel(Series("dEKF", X, X))]])
    path = tmp_path / "a.svg"
    write_files({path: shown}, [])
    assert are_current({path: shown}, [path])
    path.write_text(path.read_text().replace("stroke-width: 1.3", "stroke-width: 1.4"))
    assert are_current({path: shown}, [path])  # as another version of matplotlib draws it
    changes = (
        Series("dEKF", X, X + 0.01),
        Series("dUKF", X, X),
        Series("dEKF", X, X, X - 0.1, X + 0.1),
    )
    for series in changes:
        other = dataclasses.replace(shown, rows=[[panel(series)]])
        assert not are_current({path: other}, [path])
    assert not are_current({path: dataclasses.replace(shown, rows=2 * shown.rows)}, [path])
    assert not are_current({path: shown}, [path, tmp_path / "old.svg"])
    path.write_text("<svg/>")
    assert not are_current({path: shown}, [path])


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_of_axes_and_metrics_that_the_table_has(name):
    table, curves = read_table(name), CURVES[name]
    assert {*curves.metrics} <= {*table.metrics}
    metrics = dict.fromkeys((*table.metrics, "sensor_error"), 5.0)
    shown = picture(Comparison(table, fake_records(table, **metrics)))
    assert shown is not None
    assert shown.name == f"{name}.svg"
    columns = {labels.get("column", "") for labels in table.labels()}
    assert [len(row) for row in shown.rows] == [len(columns)] * len(curves.metrics)
    assert None not in [each for row in shown.rows for each in row]
    assert picture(Comparison(table, {})) is None


def test_curves_have_a_gap_where_a_cell_was_refused():
    table = read_table("disc_length")
    records = fake_records(table, distance=5.0, nll=8.0)
    axes = {axis.name: axis.labels[0] for axis in table.axes}
    labels = axes | {"column": "filtrax", "length": table.axis("length").labels[1]}
    records[cell_name(labels.values())] = {"cell": labels, "scale": "paper", "refused": "No."}
    shown = picture(Comparison(table, records))
    assert shown is not None
    first = shown.panels[0].chart.series[0]
    assert np.isnan(np.asarray(first.y)).tolist() == [i == 1 for i in range(len(first.x))]


def test_what_all_lines_have_in_common_is_not_in_their_names():
    # Rejects names that are cut off at the edge, because each ends with the same words.
    table = read_table("kitti_length")
    records = fake_records(table, distance=5.0, nll=8.0)
    some = {name: record for name, record in records.items() if name.endswith("_00")}
    shown = picture(Comparison(table, some))
    assert shown is not None
    names = {series.name for each in shown.panels for series in each.chart.series}
    assert {"dEKF", "dUKF"} <= names
    assert not any("fold" in name for name in names)


def test_predicted_noise_is_drawn_beside_the_true_one():
    # Rejects components of the position that are drawn as those of the velocity.
    table = read_table("disc_process_noise")
    labels = {axis.name: axis.labels[0] for axis in table.axes} | SHOWN[table.name]
    assert labels in table.labels()
    noise = {
        "process_std": np.tile([2.0, 4.0, 1.5, 0.5], (4, 1)).tolist(),
        "true_process_std": np.tile([3.0, 3.0, 1.0, 1.0], (4, 1)).tolist(),
    }
    record = fake_record(table.name, labels, {"distance": 5.0}, shown=noise)
    shown = picture(Comparison(table, {cell_name(labels.values()): record}))
    assert shown is not None
    values = [
        {series.name: float(np.asarray(series.y)[0]) for series in each.chart.series}
        for each in shown.panels
    ]
    assert values == [
        {"true": 3.0, "predicted, x": 2.0, "predicted, y": 4.0},
        {"true": 1.0, "predicted, x": 1.5, "predicted, y": 0.5},
    ]
    assert "position" in json.dumps(shown.numbers()[0])
    assert "velocity" in json.dumps(shown.numbers()[1])
