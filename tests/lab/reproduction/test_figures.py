"""Figures: every number where it belongs, nothing drawn where there is none, text that can be read.

Rejected are: axes that are swapped or stretched, lines through missing cells, colours in the wrong
order, a map that is turned, and pictures that vanish on a dark page.
"""

import re
import xml.etree.ElementTree as Tree

import numpy as np
import pytest
from reproduction.fake_records import fake_record, fake_records

from filtrax.lab.report.charts import Axis, Chart, Series
from filtrax.lab.reproduction.display.comparison import Comparison
from filtrax.lab.reproduction.display.figures import CURVES, SHOWN, pictures
from filtrax.lab.reproduction.display.svg import HeatMap, heat_maps, line_chart
from filtrax.lab.reproduction.display.ticks import Scale, scale_of
from filtrax.lab.reproduction.tables import cell_name, read_table

NAME = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> Tree.Element:
    return Tree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parse(svg).iter(f"{NAME}text")]


def group(svg: str, name: str) -> Tree.Element:
    """What is drawn of one series."""
    return next(g for g in parse(svg).iter(f"{NAME}g") if g.get("data-name") == name)


def line(svg: str, name: str) -> list[np.ndarray]:
    """The corners of a line, one array for each unbroken piece."""
    path = next(e for e in group(svg, name) if (e.get("class") or "").startswith("line"))
    pieces = (path.get("d") or "").split("M")[1:]
    return [np.asarray([corner.split() for corner in piece.split("L")], float) for piece in pieces]


def chart(*series: Series, log: bool = False) -> Chart:
    return Chart("Title", Axis("κ"), Axis("mean distance (px)", log=log), series)


def test_corners_of_a_line_are_where_its_numbers_are():
    x, y = np.asarray([-3.0, 0.0, 1.0, 5.0]), np.asarray([8.0, 7.0, 9.5, 7.5])
    (corners,) = line(line_chart(chart(Series("dEKF", x, y))), "dEKF")
    across, up = np.diff(corners, axis=0).T
    np.testing.assert_allclose(across / across[0], np.diff(x) / 3.0, atol=2e-3)
    # Pixels count downwards.
    np.testing.assert_allclose(up / up[0], np.diff(y) / -1.0, atol=2e-3)
    assert across[0] > 0
    assert up[0] > 0


def test_a_logarithmic_axis_has_equal_lengths_for_equal_factors():
    y = np.asarray([1.0, 10.0, 100.0])
    (corners,) = line(line_chart(chart(Series("dEKF", np.arange(3.0), y), log=True)), "dEKF")
    first, second = -np.diff(corners[:, 1])
    assert first == pytest.approx(second, abs=0.2)
    assert first > 50


def test_a_line_breaks_where_a_number_is_missing():
    y = np.asarray([1.0, 2.0, np.nan, 3.0, np.inf, 4.0])
    svg = line_chart(chart(Series("dUKF", np.arange(6.0), y)))
    assert [len(piece) for piece in line(svg, "dUKF")] == [2, 1, 1]
    assert "nan" not in svg
    assert "inf" not in svg


def test_bars_of_error_reach_from_low_to_high():
    y = np.asarray([1.0, 3.0])
    svg = line_chart(chart(Series("dUKF", np.arange(2.0), y, y - 0.5, y + 0.25)))
    (corners,) = line(svg, "dUKF")
    unit = (corners[0, 1] - corners[1, 1]) / 2.0
    bars = [e.get("d") or "" for e in group(svg, "dUKF") if (e.get("class") or "")[:3] == "bar"]
    ends = np.asarray([re.findall(r"[\d.]+", bar) for bar in bars], float)
    np.testing.assert_allclose(ends[:, 0], corners[:, 0])
    np.testing.assert_allclose(ends[:, 1], corners[:, 1] + 0.5 * unit, atol=0.15)
    np.testing.assert_allclose(ends[:, 2], corners[:, 1] - 0.25 * unit, atol=0.15)


def test_labels_and_legend_are_there_and_escaped():
    svg = line_chart(chart(Series("a < b & c", [0.0, 1.0], [1.0, 2.0])))
    assert {"Title", "κ", "mean distance (px)", "a < b & c"} <= {*texts(svg)}
    assert {"mse", "nll"} <= {*texts(line_chart(chart(Series("x", [0.0], [1.0])), ["mse", "nll"]))}


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 10.0, False, [0, 2, 4, 6, 8, 10]),
        (-3.3, 1.2, False, [-3, -2, -1, 0, 1]),
        (0.9, 1100.0, True, [1, 10, 100, 1000]),
        (0.9, 60.0, True, [1, 3, 10, 30]),
        (5.1, 5.9, True, [5.2, 5.4, 5.6, 5.8]),
    ],
)
def test_ticks_are_round_and_on_the_axis(low, high, log, ticks):
    np.testing.assert_allclose(Scale(low, high, 0.0, 1.0, log=log).ticks(), ticks)


def test_a_single_number_and_no_number_have_an_axis_too():
    for values in ([7.0, 7.0], [], [np.nan]):
        scale = scale_of(Axis("NLL"), [np.asarray(values)], 0.0, 1.0)
        assert scale.low < scale.high
        assert 2 <= len(scale.ticks()) <= 7


def test_squares_of_a_heat_map_are_in_their_places_and_brighter_where_numbers_are_higher():
    values = np.asarray([[0.0, 1.0], [np.nan, 4.0]])
    shown = HeatMap("share", values, np.asarray([-60.0, 0.0, 60.0]), "x (px)", "y (px)")
    svg = heat_maps("Maps", [shown])
    squares = [e for e in parse(svg).iter(f"{NAME}rect") if e.get("width") == "105.0"]
    places = [(float(e.get("x", 0)), float(e.get("y", 0))) for e in squares]
    left, top = places[0]
    assert places == [(left, top), (left + 105, top), (left + 105, top + 105)]
    brightness = [luminance(square.get("fill", "")) for square in squares]
    assert brightness[0] < brightness[1] < brightness[2]
    assert {"x (px)", "y (px)", "share", "Maps"} <= {*texts(svg)}


def test_text_and_lines_can_be_read_on_light_and_dark_pages():
    svg = line_chart(chart(Series("dEKF", [0.0, 1.0], [1.0, 2.0])))
    light, _, dark = svg.partition("@media(prefers-color-scheme:dark)")
    for sheet in (light, dark):
        page = re.findall(r"\.page\{fill:(#\w+)\}", sheet)
        assert len(page) == 1
        text = re.findall(r"\.(?:title,\.label|tick)\{fill:(#\w+)\}", sheet)
        lines = re.findall(r"\.s\d\{stroke:(#\w+);", sheet)
        assert len(text) == 2
        assert len(lines) == 9
        assert min(contrast(colour, page[0]) for colour in text) > 4.5
        assert min(contrast(colour, page[0]) for colour in lines) > 3


def luminance(colour: str) -> float:
    """Relative luminance, as the Web Content Accessibility Guidelines define it."""
    channels = np.asarray([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_of_axes_and_metrics_that_the_table_has(name):
    table, curves = read_table(name), CURVES[name]
    assert {*curves.metrics} <= {*table.metrics}
    metrics = dict.fromkeys((*table.metrics, "sensor_error"), 5.0)
    drawn = pictures(Comparison(table, fake_records(table, **metrics)))
    columns = {labels.get("column", "") for labels in table.labels()}
    assert len(drawn) == len(columns) * len(curves.metrics)
    assert all(picture.name.startswith(f"{name}_") for picture in drawn)
    assert pictures(Comparison(table, {})) == []


def test_the_curve_over_kappa_is_broken_at_cells_that_were_refused():
    table = read_table("disc_ukf_scaling")
    records = fake_records(table, distance=5.0, nll=8.0)
    labels = {"column": "filtrax", "scaling": "kappa 0"}
    records[cell_name(labels.values())] = {"cell": labels, "scale": "paper", "refused": "No."}
    drawn = {picture.name: picture.svg for picture in pictures(Comparison(table, records))}
    pieces = line(drawn["disc_ukf_scaling_filtrax_nll.svg"], "")
    kappas = [value.label for value in table.axis("scaling").values if "kappa" in value.label]
    place = kappas.index("kappa 0")
    assert [len(piece) for piece in pieces] == [place, len(kappas) - place - 1]


def test_what_all_lines_have_in_common_is_not_in_their_names():
    # Rejects names that are cut off at the edge, because each ends with the same words.
    table = read_table("kitti_length")
    records = fake_records(table, distance=5.0, nll=8.0)
    some = {name: record for name, record in records.items() if name.endswith("_00")}
    names = texts(pictures(Comparison(table, some))[0].svg)
    assert {"dEKF", "dUKF"} <= {*names}
    assert not any("fold" in name for name in names)


def test_predicted_noise_is_drawn_beside_the_true_one_and_beside_hidden_discs():
    table = read_table("disc_process_noise")
    labels = {axis.name: axis.labels[0] for axis in table.axes} | SHOWN[table.name]
    assert labels in table.labels()
    true = np.tile([3.0, 3.0, 1.0, 1.0], (4, 1))
    predicted = np.tile([2.0, 4.0, 1.5, 0.5], (4, 1))
    shown = {
        "process_std": predicted.tolist(),
        "true_process_std": true.tolist(),
        "occlusion": [[0.1, 0.2], [0.3, None]],
        "process_std_map": [[1.0, 2.0], [3.0, 4.0]],
        "counts": [[5, 5], [5, 0]],
        "edges": [-60.0, 0.0, 60.0],
    }
    record = fake_record(table.name, labels, {"distance": 5.0}, shown=shown)
    drawn = pictures(Comparison(table, {cell_name(labels.values()): record}))
    kinds = {picture.name.removeprefix("disc_process_noise_filtrax_"): picture for picture in drawn}
    assert {*kinds} == {"sequence_position.svg", "sequence_velocity.svg", "map.svg"}
    orders = {
        "position": ["predicted, y", "true", "predicted, x"],
        "velocity": ["predicted, x", "true", "predicted, y"],
    }
    for name, order in orders.items():
        svg = kinds[f"sequence_{name}.svg"].svg
        heights = [line(svg, series)[0][0, 1] for series in order]
        assert heights == sorted(heights)
    # The square in which the target never was stays empty, in both maps.
    squares = re.findall(r'<rect [^>]*width="105.0"', kinds["map.svg"].svg)
    assert len(squares) == 6
