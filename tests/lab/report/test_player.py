"""The sequence player in a real browser, used with mouse and keyboard."""

import time

import numpy as np
import pytest
from report.browser import corners, line_paths
from report.fake_run import SMALL, evaluation, write_run

from filtrax.lab import report

pytestmark = pytest.mark.xdist_group("browser")


def part(name):
    return f'#sequences [data-part="{name}"]'


def step(browser):
    return int(browser.text(part("step")).split(" of ")[0])


def reading(browser, name):
    return browser.text(f'#sequences [data-reading="{name}"]')


def shown_layers(browser):
    return browser.run(
        "[...document.querySelectorAll('#sequences [type=checkbox]')]"
        ".filter(b => b.offsetParent).map(b => b.value)"
    )


def picture(browser):
    """What the canvas shows, once it is drawn."""
    browser.settle()
    return browser.run(f"document.querySelector('{part('canvas')}').toDataURL()")


def pixels(browser, place):
    """The colours around a place of the image."""
    browser.settle()
    column, row = place
    return np.asarray(
        browser.run(
            f"(() => {{ const shown = document.querySelector('{part('canvas')}');"
            "const copy = new OffscreenCanvas(9, 9).getContext('2d');"
            f"const zoom = shown.width / {SMALL.image + 2 * (SMALL.image // 8)};"
            f"copy.drawImage(shown, 4 - Math.round({column} * zoom), 4 - Math.round({row} * zoom));"
            "return Array.from(copy.getImageData(0, 0, 9, 9).data); })()"
        )
    ).reshape(9, 9, 4)


def choose(browser, name, value):
    """Chooses an entry of a list, as a reader does: the list gets a value and a change event."""
    browser.run(
        f"(() => {{ const s = document.querySelector('{part(name)}');"
        f"s.value = {value}; s.dispatchEvent(new Event('change')); }})()"
    )


def test_nothing_plays_by_itself(opened):
    before = picture(opened)
    time.sleep(0.5)
    assert step(opened) == 1
    assert picture(opened) == before


def test_buttons_step_through_a_sequence(opened):
    pictures = [picture(opened)]
    for expected in (2, 3):
        opened.click_on(part("forward"))
        assert step(opened) == expected
        pictures.append(picture(opened))
    opened.click_on(part("back"))
    assert step(opened) == 2
    # Rejects a drawing that does not follow, or that depends on the way there.
    assert len(set(pictures)) == 3
    assert picture(opened) == pictures[1]


def test_numbers_beside_the_image_are_those_of_the_step(opened):
    arrays = evaluation(SMALL)
    opened.click_on(part("forward"))
    error = np.linalg.norm(arrays["states"][0, 1] - arrays["means"][0, 1])
    value, unit = reading(opened, "Distance").split()
    assert (float(value), unit) == (pytest.approx(error, rel=1e-3), "px")
    assert reading(opened, "Visible pixels") == str(arrays["visible"][0, 1])


def test_keys_step_jump_and_play(opened):
    opened.click_on(part("canvas"))
    first = picture(opened)
    for key, expected in (
        *(("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 6), ("ArrowRight", 6)),
        *(("Home", 1), ("ArrowLeft", 1)),
    ):
        opened.press(key)
        assert step(opened) == expected, key
    assert picture(opened) == first
    opened.press(" ")
    assert opened.text(part("play")) == "Pause"
    opened.wait_for(f"parseInt(document.querySelector('{part('step')}').textContent) >= 2")
    opened.press(" ")
    assert opened.text(part("play")) == "Play"
    stopped = step(opened)
    time.sleep(0.4)
    assert step(opened) == stopped
    # The page does not scroll under the reader's keys.
    assert opened.run(f"document.activeElement === document.querySelector('{part('canvas')}')")


def test_controls_keep_their_own_keys(opened):
    opened.run(f"document.querySelector('{part('play')}').focus()")
    opened.press(" ")
    # Rejects a key that both the button and the player act on: it would stop at once.
    assert opened.text(part("play")) == "Pause"
    opened.press(" ")
    # Rejects a player that takes the space bar from its other buttons.
    opened.run(f"document.querySelector('{part('forward')}').focus()")
    opened.press("Home")
    opened.press(" ")
    assert (step(opened), opened.text(part("play"))) == (2, "Play")
    opened.run(f"document.querySelector('{part('scrub')}').focus()")
    opened.press("Home")
    opened.press("ArrowRight")
    assert step(opened) == 2
    opened.run("document.querySelector('#sequences [value=truth]').focus()")
    opened.press(" ")
    assert not opened.run("document.querySelector('#sequences [value=truth]').checked")
    assert opened.text(part("play")) == "Play"


def test_playing_ends_at_the_end_and_starts_again(opened):
    choose(opened, "speed", 25)
    opened.click_on(part("play"))
    opened.wait_for(f"document.querySelector('{part('step')}').textContent === '6 of 6'")
    assert opened.text(part("play")) == "Play"
    opened.click_on(part("play"))
    opened.wait_for(f"document.querySelector('{part('play')}').textContent === 'Play'")
    assert step(opened) == 6


def test_the_slider_and_the_error_chart_scrub(opened):
    before = picture(opened)
    x, y = opened.centre(part("scrub"))
    width = opened.run(f"document.querySelector('{part('scrub')}').clientWidth")
    opened.click(x + width / 2 - 4, y)
    assert step(opened) == 6
    assert picture(opened) != before
    cursor = f"Number(document.querySelector('{part('errors')} .cursor').getAttribute('x1'))"
    right = opened.run(cursor)
    x, y = opened.centre(f"{part('errors')} svg")
    opened.click(x, y)
    assert step(opened) in (3, 4)
    assert opened.run(cursor) < right - 50
    assert opened.run(f"document.querySelector('{part('scrub')}').value") == str(step(opened) - 1)


def test_layers_are_drawn_where_they_belong_and_can_be_hidden(opened):
    arrays = evaluation(SMALL)
    opened.click_on(part("forward"))
    place = arrays["states"][0, 1, :2] + SMALL.image / 2 + SMALL.image // 8
    pictures = {picture(opened)}
    boxes = shown_layers(opened)
    assert len(boxes) == 7
    for box in boxes:
        opened.click_on(f"#sequences [value={box}]")
        pictures.add(picture(opened))
    assert len(pictures) == 8  # Every layer shows something.
    assert not pixels(opened, place).any()
    opened.click_on("#sequences [value=truth]")
    white = (pixels(opened, place) > 250).all(-1)
    # A cross: its middle row and column are white, its corners are not.
    assert white[4].all()
    assert white[:, 4].all()
    assert not white[0, 0]
    opened.click_on("#sequences [value=truth]")
    opened.click_on("#sequences [value=image]")
    frame = arrays["frames"][0, 1]
    row, column = np.argwhere((frame == (255, 0, 0)).all(-1))[0]
    inside = np.asarray([column, row]) + 0.5 + SMALL.image // 8
    np.testing.assert_array_equal(pixels(opened, inside)[4, 4], [255, 0, 0, 255])


def test_runs_and_sequences_can_be_chosen_and_the_step_stays(opened):
    options = opened.run(f"[...document.querySelector('{part('run')}').options].map(o => o.text)")
    assert options == ["one", "two"]
    opened.click_on(part("forward"))
    pictures = [picture(opened)]
    error = reading(opened, "Distance")
    choose(opened, "run", 1)
    assert step(opened) == 2
    assert reading(opened, "Distance") != error
    assert opened.text('#process-noise [data-part="which"]') == "sequence 1 of two"
    pictures.append(picture(opened))
    predicted = line_paths(opened, "#process-noise figure")["predicted"]
    choose(opened, "sequence", 1)
    opened.wait_for(f"document.querySelector('{part('sequence')}').value === '1'")
    assert opened.text('#process-noise [data-part="which"]') == "sequence 2 of two"
    assert line_paths(opened, "#process-noise figure")["predicted"] != predicted
    pictures.append(picture(opened))
    assert len(set(pictures)) == 3
    choose(opened, "component", 2)
    assert opened.text(f"{part('errors')} figcaption") == "Error of vx"


def test_the_least_evaluation_with_gaps_is_drawn_on_a_plain_background(opened, folder):
    run = write_run(folder / "least")
    arrays = evaluation(SMALL)
    least = {name: arrays[name] for name in ("names", "states", "means", "covariances")}
    least["means"][0, 3] = np.nan
    np.savez(run / "evaluation.npz", **least)
    opened.open(report.write([run], folder / "least.html"))
    # Two pieces: steps one to three, and five to six.
    drawn = line_paths(opened, part("errors"))["error"]
    assert drawn.count("M") == 2
    assert len(corners(drawn)) == SMALL.steps - 1
    opened.click_on(part("canvas"))
    pictures = {picture(opened)}
    for _ in range(SMALL.steps - 1):
        opened.press("ArrowRight")
        pictures.add(picture(opened))
    assert len(pictures) == SMALL.steps
    assert shown_layers(opened) == ["path", "ellipse", "truth", "estimate"]
    assert not opened.run(f"document.querySelector('{part('camera')}').offsetParent")
