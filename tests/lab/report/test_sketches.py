"""What is drawn of a plane that a camera looks at, against numbers computed another way."""

import numpy as np
import pytest
from report.fake_push import (
    ARROW_LENGTH,
    HEIGHT,
    MEANINGS,
    PROJECTION,
    RED,
    WIDTH,
    evaluation,
    seen,
    write_push_run,
)
from report.test_plane_player import from_canvas
from report.test_player import part, picture, reading, shown_layers

from filtrax.lab import report
from filtrax.lab.report.figures import sensor_noise
from filtrax.lab.report.paths import paths
from filtrax.lab.report.reading import read_runs
from filtrax.lab.report.sequences import playable
from filtrax.lab.report.tables import metrics_table
from filtrax.lab.report.views import plane_view, projected

WHITE, AMBER = (255, 255, 255), (255, 176, 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_runs([write_push_run(tmp_path_factory.mktemp("pushes") / "pushes")])[0]


@pytest.fixture(scope="module")
def sequence(run):
    return playable(run, {})["sequences"][1]


def positions(sequence, places):
    """Back from places on the plane to millimetres, by the ends and names of its axes."""
    ends = {"y (mm)": sequence["plane"]["x"], "x (mm)": sequence["plane"]["y"]}
    right = places[..., 0] / sequence["width"]
    up = 1 - places[..., 1] / sequence["height"]
    shares = {"y (mm)": right, "x (mm)": up}
    x, y = (
        ends[name][0] + shares[name] * (ends[name][1] - ends[name][0])
        for name in ("x (mm)", "y (mm)")
    )
    return np.stack([x, y], -1)


def test_the_plane_is_turned_as_in_the_image_with_numbers_that_belong_to_it(sequence):
    assert sequence["plane"]["labels"] == ["y (mm)", "x (mm)"]
    # In the image y grows to the right, and x downwards.
    assert sequence["plane"]["x"][0] < sequence["plane"]["x"][1]
    assert sequence["plane"]["y"][0] > sequence["plane"]["y"][1]
    arrays = evaluation()
    for name, kind in (("truth", "states"), ("estimate", "means")):
        found = positions(sequence, sequence[name])
        np.testing.assert_allclose(found, arrays[kind][1, :, :2], atol=0.05)


@pytest.mark.parametrize("turns", range(4))
def test_every_quarter_turn_of_a_camera_is_recognized(turns):
    # Rejects a plane with x and y exchanged that mirrors what the camera shows.
    angle = np.pi / 2 * turns + 0.3
    rotation = np.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    camera = PROJECTION.copy()
    camera[:, :2] = PROJECTION[:, :2] @ rotation
    states = np.random.default_rng(0).normal(size=(9, 3)) * 20
    places = plane_view(states, states, projection=camera).places(states)
    pixels = projected(states[:, :2], camera)
    both = np.corrcoef(np.concatenate([places, pixels], 1).T)
    assert both[0, 2] > 0.7
    assert both[1, 3] > 0.7


def test_outlines_and_arrows_are_where_the_image_shows_them(sequence):
    arrays = evaluation()
    for who, prefix in (("truth", "true_"), ("estimate", "")):
        drawn = sequence["sketch"][who]
        for kind in ("outlines", "arrows"):
            exact = arrays[prefix + kind][1]
            np.testing.assert_allclose(drawn[kind]["image"], seen(exact), atol=0.06)
            np.testing.assert_allclose(positions(sequence, drawn[kind]["plane"]), exact, atol=0.2)
    # The picture itself: what is red is inside of the true outline.
    rows, columns = np.nonzero((arrays["frames"][1, 3] == RED).all(-1))
    outline = sequence["sketch"]["truth"]["outlines"]["image"][3]
    np.testing.assert_allclose(columns.mean() + 0.5, outline[:, 0].mean(), atol=0.4)
    np.testing.assert_allclose(rows.mean() + 0.5, outline[:, 1].mean(), atol=0.4)


def test_a_point_behind_the_camera_is_not_drawn():
    assert np.isnan(projected(np.asarray([[1e4, 0.0]]), PROJECTION)).all()


def test_all_of_the_object_and_of_the_pusher_is_on_the_plane(sequence):
    for places in (
        sequence["sketch"]["truth"]["outlines"]["plane"],
        sequence["companions"]["paths"]["plane"],
    ):
        assert ((places > 0) & (places < [sequence["width"], sequence["height"]])).all()
    assert sequence["companions"]["names"] == ["pusher"]
    pusher = positions(sequence, sequence["companions"]["paths"]["plane"][0])
    np.testing.assert_allclose(pusher, evaluation()["companions"][1, :, 0], atol=0.2)


def test_components_have_charts_with_or_without_a_sensor(sequence):
    arrays = evaluation()
    titles = [title[0].upper() + title[1:] for title in MEANINGS]
    assert [chart.title for chart in sequence["measured"]] == ["Modes of the process", *titles]
    charts = dict(zip(titles, sequence["measured"][1:], strict=True))
    assert [series.name for series in charts["Pressure l"].series] == ["estimated, ±2σ", "true"]
    np.testing.assert_allclose(charts["Pressure l"].series[0].y, arrays["means"][1, :, 3])
    contact = charts["Contact s"].series
    assert [series.name for series in contact] == ["measured, ±2σ", "estimated, ±2σ", "true"]
    # The eighth measured component is the ninth of the state.
    np.testing.assert_allclose(contact[0].y, arrays["measurements"][1, :, 7])
    np.testing.assert_allclose(contact[2].y, arrays["states"][1, :, 8])
    modes = sequence["measured"][0].series
    np.testing.assert_allclose(modes[0].y, arrays["mode_chances"][1, :, 0])
    assert [mode.name for mode in modes] == ["mode 1", "mode 2"]


def test_errors_have_their_units_and_paths_are_left_to_the_player(run, sequence):
    position, orientation, visible = sequence["readings"]
    assert (position.name, position.unit) == ("Position error", "mm")
    assert (orientation.name, orientation.unit) == ("Orientation error", "°")
    np.testing.assert_allclose(orientation.values, np.abs(evaluation()["errors"][1, :, 2]))
    assert visible.name == "Visible pixels"
    assert paths([run]) == {"charts": [], "summaries": []}
    table = metrics_table([run])
    values = evaluation()["translation"]
    error = values.std(ddof=1) / 5**0.5
    assert ">Translation (mm)</th>" in table
    assert ">Rotation (°)</th>" in table
    assert f"{values.mean():.2f}<small> ± {error:.2f}</small>" in table


def test_the_noise_of_positions_alone_is_compared_with_visible_pixels(run):
    chart = sensor_noise(run)
    assert chart.y.label == "predicted √R (mm)"
    assert [series.name for series in chart.series[4:]] == [
        f"{name}, median" for name in ("x", "y", "rx", "ry")
    ]
    np.testing.assert_allclose(
        np.sort(chart.series[2].y), np.sort(evaluation()["all_sensor_std"][..., 3].ravel())
    )


def test_a_sketch_that_does_not_fit_is_an_error(tmp_path):
    folder = write_push_run(tmp_path / "run")
    arrays = evaluation()
    np.savez(folder / "evaluation.npz", **arrays | {"outlines": arrays["outlines"][:, :3]})
    with pytest.raises(ValueError, match=r"`outlines` in .* must have the axes \(n, t, k, 2\)"):
        read_runs([folder])


def colours(browser, canvas, places, size):
    """Whether places of a canvas, on a plane or image of some size, have a colour near them."""
    program = (
        f"const [right, down] = [shown.width / {size[0]}, shown.height / {size[1]}];"
        f"return {places.tolist()}.map(([x, y]) => Array.from(copy.getImageData("
        "Math.round(x * right) - 2, Math.round(y * down) - 2, 5, 5).data));"
    )
    return np.reshape(from_canvas(browser, canvas, program), (len(places), 25, 4))[..., :3]


def has(found, colour):
    return (np.abs(found - np.asarray(colour)).max(-1) < 12).any(-1)


@pytest.mark.xdist_group("browser")
def test_the_image_shows_both_outlines_arrows_and_the_pusher(opened, folder):
    opened.open(report.write([write_push_run(folder / "pushes")], folder / "pushes.html"))
    assert shown_layers(opened) == [
        *("image", "path", "companions", "outline", "measurement", "ellipse"),
        *("arrow", "truth", "estimate"),
    ]
    label = "document.querySelector('[value=companions]').closest('label').textContent"
    assert opened.run(label) == "Pusher"
    for _ in range(3):
        opened.click_on(part("forward"))
    arrays, size = evaluation(), (WIDTH, HEIGHT)
    corners = seen(arrays["outlines"][0, 3])
    assert has(colours(opened, "camera", corners, size), AMBER).all()
    true_corners = seen(arrays["true_outlines"][0, 3])
    # The estimate is drawn over the truth, but not everywhere.
    assert has(colours(opened, "camera", true_corners, size), WHITE).any()
    start, end = arrays["arrows"][0, 3, 0]
    assert np.linalg.norm(end - start) > 0.8 * ARROW_LENGTH
    assert has(colours(opened, "camera", seen((start + end)[None] / 2), size), AMBER).all()
    pictures = [picture(opened)]
    before = from_canvas(opened, "camera", "return shown.toDataURL();")
    for layer in ("companions", "outline", "arrow"):
        opened.click_on(f"#sequences [value={layer}]")
        pictures.append(picture(opened))
        after = from_canvas(opened, "camera", "return shown.toDataURL();")
        assert after != before
        before = after
    assert len(set(pictures)) == 4
    assert not has(colours(opened, "camera", corners, size), AMBER).any()
    assert not has(colours(opened, "camera", true_corners, size), WHITE).any()
    error = np.abs(arrays["errors"][0, 3, 2])
    assert float(reading(opened, "Orientation error").rstrip("°")) == pytest.approx(error, rel=1e-3)
