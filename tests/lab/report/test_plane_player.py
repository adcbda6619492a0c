"""The player with the image beside a plane, and the sections that come with it, in a browser."""

import numpy as np
import pytest
from report.browser import corners, line_paths
from report.fake_drive import HEIGHT, NUM_STEPS, WIDTH, evaluation, write_drive_run
from report.fake_run import write_run
from report.test_player import choose, part, picture, reading, shown_layers

from filtrax.lab import report

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def drives(folder):
    """A run on drives, and one whose images show where things are."""
    runs = [write_drive_run(folder / "drives"), write_run(folder / "disc")]
    return report.write(runs, folder / "drives.html")


@pytest.fixture
def shown(opened, drives):
    opened.open(drives)
    return opened


def box(browser, selector):
    """Left, top, width and height of an element."""
    return browser.run(
        f"(() => {{ const b = document.querySelector('{selector}').getBoundingClientRect();"
        "return [b.x, b.y, b.width, b.height]; })()"
    )


def from_canvas(browser, name, program):
    """The value of a program that has a canvas of the player as `shown`, and a copy to read."""
    browser.settle()
    return browser.run(
        f"(() => {{ const shown = document.querySelector('{part(name)}');"
        "const copy = new OffscreenCanvas(shown.width, shown.height)"
        ".getContext('2d', {willReadFrequently: true});"
        f"copy.drawImage(shown, 0, 0); {program} }})()"
    )


def camera_pixels(browser):
    """The colours in the middle of all pixels of the image."""
    program = (
        f"return Array.from({{length: {HEIGHT * WIDTH}}}, (_, i) => Array.from(copy.getImageData("
        f"(i % {WIDTH} + 0.5) * shown.width / {WIDTH},"
        f"(Math.floor(i / {WIDTH}) + 0.5) * shown.height / {HEIGHT}, 1, 1).data.slice(0, 3)));"
    )
    return np.reshape(from_canvas(browser, "camera", program), (HEIGHT, WIDTH, 3))


def count_white(browser):
    """How many pixels of the plane are white, with next to nothing that shines through."""
    program = (
        "const all = copy.getImageData(0, 0, shown.width, shown.height).data; let count = 0;"
        "for (let i = 0; i < all.length; i += 4)"
        "  count += Math.min(...all.slice(i, i + 4)) > 200;"
        "return count;"
    )
    return from_canvas(browser, "canvas", program)


def visible(browser, selector):
    return browser.run(f"Boolean(document.querySelector('{selector}').offsetParent)")


def test_the_image_is_beside_the_plane_and_above_it_in_a_narrow_window(shown):
    left, top, width, height = box(shown, part("camera"))
    plane_left, plane_top, plane_width, _ = box(shown, part("canvas"))
    assert (plane_left > left + width, plane_top) == (True, top)
    assert width / height == pytest.approx(WIDTH / HEIGHT, rel=0.02)
    assert plane_width == pytest.approx(width, rel=0.01)
    shown.resize(500)
    shown.settle()
    left, top, width, height = box(shown, part("camera"))
    plane_left, plane_top, _, _ = box(shown, part("canvas"))
    assert (plane_left, plane_top >= top + height) == (left, True)
    assert shown.run("document.documentElement.scrollWidth") == 500


def test_the_image_is_that_of_the_step(shown):
    frames = evaluation()["frames"][0]
    for step in (0, 4):
        for _ in range(step):
            shown.click_on(part("forward"))
        np.testing.assert_array_equal(camera_pixels(shown), frames[step])


def test_every_layer_of_a_plane_shows_something(shown):
    assert shown_layers(shown) == [
        *("image", "particles", "path", "ellipse", "heading", "truth", "estimate")
    ]
    for _ in range(3):
        shown.click_on(part("forward"))
    pictures = [picture(shown)]
    for layer in shown_layers(shown)[1:]:
        shown.click_on(f"#sequences [value={layer}]")
        pictures.append(picture(shown))
    assert len(set(pictures)) == len(pictures)
    assert count_white(shown) == 0
    # The path alone: its future is fainter than its past.
    shown.click_on("#sequences [value=path]")
    before = count_white(shown)
    shown.click_on(part("canvas"))
    shown.press("End")
    assert count_white(shown) > 1.5 * before > 0


def test_readings_and_measurements_follow_the_step(shown):
    arrays = evaluation()
    shown.click_on(part("canvas"))
    shown.press("End")
    errors = arrays["errors"][0, -1]
    value, unit = reading(shown, "Position error").split()
    assert (float(value), unit) == (pytest.approx(np.hypot(*errors[:2]), rel=1e-3), "m")
    degrees = reading(shown, "Heading error")
    assert float(degrees.rstrip("°")) == pytest.approx(abs(errors[2]), rel=1e-3)
    assert shown.text('#measurements [data-part="which"]') == "sequence 1 of drives"
    lines = line_paths(shown, "#measurements figure:first-child")
    assert list(lines) == ["measured, ±2σ", "estimated, ±2σ", "true"]
    places = corners(lines["true"])
    assert np.corrcoef(places[:, 1], arrays["states"][0, :, 3])[0, 1] < -0.999
    cursor = shown.run("document.querySelector('#measurements .cursor').getAttribute('x1')")
    assert float(cursor) == pytest.approx(places[-1, 0], abs=0.1)


def test_paths_are_maps_with_one_scale(shown):
    assert shown.run("document.querySelectorAll('#paths figure.plane svg[role=img]').length") == 2
    lines = line_paths(shown, "#paths figure:nth-child(2)")
    assert list(lines) == ["truth", "drives"]
    for name, kind in (("truth", "states"), ("drives", "means")):
        places, exact = corners(lines[name]), evaluation()[kind][1, :, :2]
        assert len(places) == NUM_STEPS
        scales = np.ptp(places, axis=0) / np.ptp(exact, axis=0)
        assert scales[0] == pytest.approx(scales[1], rel=0.01)
        assert np.corrcoef(places[:, 1], exact[:, 1])[0, 1] < -0.999


def test_a_run_with_positions_in_its_images_has_its_own_arrangement(shown):
    # One page may show both.
    assert visible(shown, "#measurements")
    choose(shown, "run", 1)
    shown.settle()
    assert not visible(shown, part("camera"))
    assert not visible(shown, "#measurements")
    assert shown_layers(shown) == [
        *("image", "particles", "trail", "measurement", "ellipse", "truth", "estimate")
    ]
    assert box(shown, part("canvas"))[2] == 480
    assert visible(shown, "#paths")
    choose(shown, "run", 0)
    assert visible(shown, part("camera"))


def test_sections_without_content_are_left_out(opened, folder, drives):
    links = "[...document.querySelectorAll('nav a')].filter(a => a.offsetParent).map(a => a.text)"
    both = {"Paths", "Measurements"}
    assert not both & set(opened.run(links))
    assert not visible(opened, "#paths")
    opened.open(report.write([folder / "drives"], folder / "drives_alone.html"))
    assert both <= set(opened.run(links))
    assert "Sensor noise" not in opened.run(links)
