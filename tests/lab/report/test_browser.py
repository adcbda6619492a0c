"""The report in a real browser: what is drawn, and how the page behaves."""

import json
import re

import numpy as np
import pytest
from report.browser import corners, line_paths
from report.fake_run import SMALL, evaluation

from filtrax.lab import report

pytestmark = pytest.mark.xdist_group("browser")


def test_curves_show_every_epoch_of_every_run_at_its_place(opened, folder):
    figures = opened.run("document.querySelectorAll('#learning figure').length")
    assert figures == 6
    opened.run("document.querySelectorAll('#learning figure')[4].id = 'validation-loss'")
    drawn = line_paths(opened, "#validation-loss")
    assert list(drawn) == ["one", "two", "three"]
    lines = (folder / "two" / "metrics.jsonl").read_text().splitlines()
    recorded = [json.loads(line) for line in lines]
    epochs = [epoch for epoch in recorded if epoch["stage"] == "end to end"]
    losses = [np.mean([m["validation"]["loss"] for m in epoch["members"]]) for epoch in epochs]
    places = corners(drawn["two"])
    assert len(places) == len(epochs)
    # On linear axes, places are linear in the numbers, and up is more.
    assert np.corrcoef(places[:, 0], [e["epoch"] for e in epochs])[0, 1] > 0.9999
    assert np.corrcoef(places[:, 1], losses)[0, 1] < -0.9999


def test_curves_differ_in_more_than_colour(opened):
    dashes = opened.run(
        "[...document.querySelector('#learning figure').querySelectorAll('.series .line')]"
        ".map(line => getComputedStyle(line).strokeDasharray)"
    )
    assert len(dashes) == 3
    assert len(set(dashes)) == 3


def test_scatter_shows_every_point(opened):
    paths = opened.run(
        "[...document.querySelectorAll('#sensor-noise figure:first-child .points')]"
        ".map(path => path.getAttribute('d'))"
    )
    expected = SMALL.sequences * SMALL.steps
    assert [path.count("M") for path in paths] == [expected, expected]
    # Components have markers of their own.
    markers = {re.split(r"M[\d.]+ [\d.]+", path)[1] for path in paths}
    assert len(markers) == 2


def test_charts_of_every_section_are_drawn(opened):
    for section, count in (("sensor-noise", 2), ("process-noise", 4), ("calibration", 3)):
        selector = f"#{section} figure svg[role=img][aria-label]"
        assert opened.run(f"document.querySelectorAll('{selector}').length") == count
    assert len(corners(line_paths(opened, "#process-noise figure")["true"])) == SMALL.steps


def test_the_pointer_reads_numbers_off(opened):
    x, y = opened.centre("#calibration figure svg")
    opened.move(x, y)
    opened.wait_for("!document.querySelector('#calibration .tip').hidden")
    shown = opened.text("#calibration .tip")
    number = int(opened.text("#calibration .tip strong").removeprefix("step "))
    nees = evaluation(SMALL, seed=1)["nees"].mean(0)[number - 1]
    assert float(re.search(r"two: ([\d.]+)", shown)[1]) == pytest.approx(nees, rel=1e-3)
    opened.move(2, 2)
    opened.wait_for("document.querySelector('#calibration .tip').hidden")


@pytest.mark.parametrize("width", [375, 320])
def test_a_narrow_window_needs_no_sideways_scrolling(opened, width):
    opened.resize(width)
    opened.settle()
    assert opened.run("document.documentElement.scrollWidth") == width
    # Charts are drawn anew for the width, so that their text keeps its size.
    widths = opened.run(
        "[...document.querySelectorAll('.plot svg')]"
        ".map(s => [s.viewBox.baseVal.width, s.clientWidth])"
    )
    assert len(widths) == 16
    assert all(drawn == shown <= width for drawn, shown in widths)


def test_dark_mode_is_dark_and_readable(opened):
    def lightness(selector, colour):
        style = f"getComputedStyle(document.querySelector('{selector}')).{colour}"
        return np.mean([float(value) for value in re.findall(r"\d+", opened.run(style))[:3]])

    stroke = "getComputedStyle(document.querySelector('.series .line')).stroke"
    light = opened.run(stroke)
    assert lightness("body", "backgroundColor") > 230
    opened.prefer(color_scheme="dark")
    opened.settle()
    assert lightness("body", "backgroundColor") < 50
    assert lightness("body", "color") > 200
    assert lightness(".plot text", "fill") > 120
    assert lightness("button", "backgroundColor") < 60
    assert opened.run(stroke) != light


def test_controls_have_names_and_show_the_focus(opened):
    unnamed = opened.run(
        "[...document.querySelectorAll('button, select, input')].filter(e =>"
        " !e.labels?.[0]?.textContent.trim() && !e.getAttribute('aria-label')"
        " && !e.textContent.trim()).length"
    )
    assert unnamed == 0
    opened.click_on("[data-part=back]")
    opened.press("Tab")
    assert opened.run("document.activeElement.dataset.part") == "play"
    assert opened.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_run_in_training_shows_its_curves(opened, folder):
    page = report.write([folder / "three"], folder / "training.html")
    opened.open(page)
    assert opened.run("document.querySelectorAll('#learning .plot svg').length") == 6
    assert "No run has been evaluated yet" in opened.text("#sequences")
    assert opened.run("document.querySelectorAll('canvas').length") == 0
