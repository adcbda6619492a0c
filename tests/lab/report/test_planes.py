"""What is drawn from above, against numbers that were computed another way."""

import numpy as np
import pytest
from report.fake_drive import NUM_STEPS, evaluation, write_drive_run
from report.fake_run import SMALL, write_run
from report.fake_run import evaluation as disc_evaluation

from filtrax.lab.report.figures import sensor_noise
from filtrax.lab.report.paths import NO_BREAK, paths
from filtrax.lab.report.reading import read_runs
from filtrax.lab.report.sequences import playable
from filtrax.lab.report.summaries import mean_and_error
from filtrax.lab.report.tables import metrics_table
from filtrax.lab.report.views import PLANE_SIZE, plane_axes, plane_view


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drives")
    return read_runs([write_drive_run(folder / n, seed=i) for i, n in enumerate(("one", "two"))])


@pytest.fixture(scope="module")
def player(runs):
    return playable(runs[0], {})


def positions(sequence, places):
    """Back from places on the plane to metres, by the ends of its axes."""
    (left, right), (bottom, top) = sequence["plane"]["x"], sequence["plane"]["y"]
    x = left + places[:, 0] / sequence["width"] * (right - left)
    return np.stack([x, top - places[:, 1] / sequence["height"] * (top - bottom)], -1)


def test_a_plane_shows_positions_in_metres_with_one_scale(player):
    arrays = evaluation()
    for i, sequence in enumerate(player["sequences"]):
        for name, kind in (("truth", "states"), ("estimate", "means")):
            places = sequence[name]
            assert ((places > 0) & (places < PLANE_SIZE)).all()
            found = positions(sequence, places)
            np.testing.assert_allclose(found, arrays[kind][i, :, :2], atol=0.02)
        (left, right), (bottom, top) = sequence["plane"]["x"], sequence["plane"]["y"]
        scale = sequence["width"] / (right - left)
        assert scale == pytest.approx(sequence["height"] / (top - bottom))
        assert sequence["plane"]["labels"] == ["x (m)", "y (m)"]
        # The ellipse is 2σ long in metres, along x here.
        np.testing.assert_allclose(sequence["ellipse"][0], [6 * scale, 4 * scale, 0], atol=0.01)


def test_headings_point_along_the_path_on_a_screen(player):
    # Rejects degrees read as radians, and an angle that grows upwards on a screen.
    sequence = player["sequences"][0]
    strides = np.diff(sequence["truth"], axis=0)
    strides /= np.linalg.norm(strides, axis=-1, keepdims=True)
    angles = sequence["heading"]["truth"][1:]
    np.testing.assert_allclose(np.stack([np.cos(angles), np.sin(angles)], -1), strides, atol=2e-3)


def test_a_lost_estimate_does_not_hide_the_path():
    # Rejects a plane that is fitted to all it shows: the truth would be a dot on it.
    states, means = np.zeros((10, 3)), np.full((10, 3), 1e6)
    states[:, 0] = np.linspace(0, 40, 10)
    means[3] = np.nan
    places = plane_view(states, means).places(states)
    assert np.ptp(places[:, 0]) > 25
    assert ((places > 0) & (places < PLANE_SIZE)).all()
    assert np.isfinite(plane_view(states * np.nan, means).offset).all()


def test_one_component_is_drawn_along_a_line():
    line = np.linspace(2.0, 4.0, 5)[:, None]
    view = plane_view(line, line + 0.1)
    axes = plane_axes(view, ["x"], [""])
    assert axes["labels"] == ["x", ""]
    assert axes["x"][0] < 2 < 4 < axes["x"][1]
    assert len(set(view.places(line)[:, 1])) == 1


def test_readings_tell_position_and_heading_apart_where_units_are_mixed(player):
    arrays = evaluation()
    position, heading = player["sequences"][1]["readings"]
    assert (position.name, position.unit) == ("Position error", "m")
    np.testing.assert_allclose(position.values, np.hypot(*arrays["errors"][1, :, :2].T))
    assert (heading.name, heading.unit) == ("Heading error", "°")
    np.testing.assert_allclose(heading.values, np.abs(arrays["errors"][1, :, 2]))


def test_measured_components_are_charts_and_not_places(player):
    arrays, sequence = evaluation(), player["sequences"][1]
    assert sequence["measurement"] is None
    assert [chart.title for chart in sequence["measured"]] == ["Speed", "Rate"]
    rate = sequence["measured"][1]
    assert rate.y.label == "rate (°/s)"
    measured, estimated, true = rate.series
    np.testing.assert_allclose(measured.y, arrays["measurements"][1, :, 1])
    np.testing.assert_allclose(measured.high - measured.y, 6)
    np.testing.assert_allclose(estimated.y, arrays["means"][1, :, 4])
    np.testing.assert_allclose(estimated.y - estimated.low, 8)
    np.testing.assert_allclose(true.y, arrays["states"][1, :, 4])


def test_measured_components_may_be_positions_in_another_order(tmp_path):
    # Rejects a reading of measurements as the first components, whatever they are.
    folder = write_run(tmp_path / "run")
    arrays = disc_evaluation(SMALL)
    swapped = arrays | {
        "measurements": arrays["measurements"][..., ::-1],
        "measurement_covariances": arrays["measurement_covariances"][..., ::-1, ::-1],
        "measured_components": np.asarray([1, 0]),
    }
    plain = playable(read_runs([folder])[0], {})["sequences"][0]
    np.savez(folder / "evaluation.npz", **swapped)
    (run,) = read_runs([folder])
    other = playable(run, {})["sequences"][0]
    np.testing.assert_array_equal(other["measurement"], plain["measurement"])
    np.testing.assert_allclose(other["measurementEllipse"], plain["measurementEllipse"], atol=0.02)
    assert [series.name for series in sensor_noise(run).series[2:]] == ["y, median", "x, median"]


def test_paths_show_all_runs_on_a_sequence_with_their_ends(runs, tmp_path):
    found = paths([*runs, *read_runs([write_run(tmp_path / "disc")])])
    assert [chart.title for chart in found["charts"]] == ["Sequence 1", "Sequence 2"]
    chart = found["charts"][1]
    assert chart.plane
    names = [series.name for series in chart.series]
    assert names == ["truth", "one", "two", "start", "", "", ""]
    arrays = evaluation(1)
    np.testing.assert_allclose(chart.series[2].x, arrays["means"][1, :, 0])
    np.testing.assert_allclose(chart.series[2].y, arrays["means"][1, :, 1])
    assert len(chart.series[0].x) == NUM_STEPS
    end = arrays["errors"][1, -1]
    note = chart.note.replace(NO_BREAK, " ")
    assert f"two ends {np.hypot(*end[:2]):.3g} m and {abs(end[2]):.3g}° off" in note
    rates = [f"{arrays[name][1]:.3g}" for name in ("translation_error", "rotation_error")]
    assert note.endswith(f"mean over starts {rates[0]} m/m and {rates[1]} °/m.")
    assert len(found["summaries"]) == 2
    mean = arrays["translation_error"].mean()
    error = arrays["translation_error"].std(ddof=1) / 5**0.5
    assert f"two: {mean:.3f} ± {error:.3f} m/m" in found["summaries"][1]
    assert "over 5 sequences" in found["summaries"][1]


def test_positions_that_images_show_have_no_paths(tmp_path):
    disc = read_runs([write_run(tmp_path / "disc")])
    assert paths(disc) == {"charts": [], "summaries": []}
    sequence = playable(disc[0], {})["sequences"][0]
    assert (sequence["plane"], sequence["measured"], sequence["heading"]) == (None, [], None)


def test_a_mean_has_an_error_from_two_numbers_on():
    assert mean_and_error(np.asarray([1.0, 3.0, np.nan])) == (2.0, pytest.approx(1.0))
    assert mean_and_error(np.asarray([2.0])) == (2.0, None)
    assert mean_and_error(np.asarray([np.inf])) == (None, None)


def test_the_table_names_units_and_errors_over_sequences(runs):
    table = metrics_table(runs)
    headings = ["Distance (mixed units)", "Translation error (m/m)", "Rotation error (°/m)", "NLL"]
    assert all(f">{heading}</th>" in table for heading in headings)
    assert "Noise correlation" not in table
    assert "over members, or over sequences where there is one member." in table
    values = evaluation(1)["rotation_error"]
    mean, error = values.mean(), values.std(ddof=1) / 5**0.5
    assert f"{mean:.3f}<small> ± {error:.3f}</small>" in table


def test_measured_components_must_be_components(tmp_path):
    folder = write_drive_run(tmp_path / "run")
    for wrong in ([3, 5], [-1, 2], [3.0, 4.0]):
        np.savez(folder / "evaluation.npz", **evaluation() | {"measured_components": wrong})
        with pytest.raises(ValueError, match="must be whole numbers from 0 to 4"):
            read_runs([folder])
