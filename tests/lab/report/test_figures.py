"""What charts show, against numbers that were computed another way."""

import base64
import dataclasses
import io

import numpy as np
import pytest
import scipy.stats
from PIL import Image
from report.fake_run import Sizes, evaluation, write_run

from filtrax.lab.report.charts import wants_log
from filtrax.lab.report.figures import MOST_POINTS, coverage, learning_curves, nees, sensor_noise
from filtrax.lab.report.frames import png_uri, sheet
from filtrax.lab.report.reading import read_runs
from filtrax.lab.report.sequences import playable
from filtrax.lab.report.summaries import (
    binned_quantiles,
    finite_only,
    representatives,
    thinned,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return read_runs([write_run(folder / name, seed=i) for i, name in enumerate(("one", "two"))])


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))


def test_rows_are_summarized_without_what_is_not_finite():
    values = np.asarray([[1.0, np.nan, 3.0], [np.inf, 5.0, 7.0], [np.nan, np.inf, -np.inf]])
    mean, low, high = finite_only(values)
    np.testing.assert_array_equal(mean, [2, 6, np.nan])
    np.testing.assert_array_equal(low, [1, 5, np.nan])
    np.testing.assert_array_equal(high, [3, 7, np.nan])


def test_bins_follow_the_curve_and_zero_is_a_bin_of_its_own():
    x = np.concatenate([np.zeros(50), np.linspace(0.1, 100, 1000)])
    places, (low, median, high) = binned_quantiles(x, np.where(x <= 0, 1000.0, x))
    assert len(places) == 11
    assert (places[0], median[0]) == (0, 1000)
    np.testing.assert_allclose(places[1:], np.arange(5, 100, 10), atol=1)
    np.testing.assert_allclose(median[1:], places[1:], atol=0.1)
    np.testing.assert_allclose(high[1:] - low[1:], 8, atol=0.6)


def test_thinning_keeps_few_and_the_same_ones():
    assert thinned(5, 10).tolist() == [0, 1, 2, 3, 4]
    kept = thinned(100_000, 1000)
    assert len(set(kept.tolist())) == 1000
    # Rejects a regular stride, which would show the same time step of every sequence.
    assert len(set((kept % 50).tolist())) == 50
    np.testing.assert_array_equal(kept, thinned(100_000, 1000))


def test_few_particles_stand_for_many():
    weights = np.random.default_rng(0).dirichlet(np.full(1000, 0.5))
    places = np.random.default_rng(1).normal(size=1000)
    kept, shown = representatives(np.log(weights), 150)
    assert len(kept) <= 150
    assert shown.sum() == pytest.approx(1)
    # Rejects taking the first or the heaviest particles.
    assert shown @ places[kept] == pytest.approx(weights @ places, abs=0.1)
    everyone, same = representatives(np.log(weights[:100] / weights[:100].sum()), 150)
    np.testing.assert_allclose(same, weights[:100] / weights[:100].sum())
    assert len(everyone) == 100
    assert len(representatives(np.full(5, np.nan), 150)[0]) == 0


def test_logarithmic_axes_are_for_positive_numbers_far_apart():
    assert wants_log([1.0, 100.0, np.nan])
    assert not wants_log([1.0, 10.0])
    assert not wants_log([-1.0, 1000.0])
    assert not wants_log([np.nan], None)


def test_learning_curves_are_means_and_ranges_of_members_stage_by_stage(runs):
    stages = learning_curves(runs)
    assert [entry["stage"] for entry in stages] == ["pretrain sensor", "end to end"]
    titles = [chart.title for chart in stages[1]["charts"]]
    assert titles == ["Training loss", "Validation loss", "Validation distance"]
    recorded = np.asarray(
        [
            [member["validation"]["distance"] for member in epoch["members"]]
            for epoch in runs[1].epochs
            if epoch["stage"] == "end to end"
        ]
    )
    line = stages[1]["charts"][2].series[1]
    assert line.name == "two"
    np.testing.assert_array_equal(line.x, np.arange(5))
    np.testing.assert_allclose(line.y, recorded.mean(1))
    np.testing.assert_allclose(line.low, recorded.min(1))
    np.testing.assert_allclose(line.high, recorded.max(1))
    # Before training there is no training loss.
    np.testing.assert_array_equal(stages[1]["charts"][0].series[0].x, np.arange(1, 5))


def test_sensor_noise_is_thinned_but_its_medians_are_not(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "many", Sizes(sequences=400))])
    chart = sensor_noise(run)
    clouds = [series for series in chart.series if series.points]
    lines = [series for series in chart.series if not series.points]
    assert [len(cloud.x) for cloud in clouds] == [MOST_POINTS // 2] * 2
    assert "1,000 of 2,400 steps" in chart.note
    visible = run.evaluation["all_visible"]
    clear = run.evaluation["all_sensor_std"][visible > 0.9 * visible.max()]
    assert lines[1].y[-1] == pytest.approx(np.median(clear[:, 1]))


def test_nees_is_the_mean_over_sequences_with_its_band_once(runs):
    chart = nees(runs)
    band, expected, one, two = chart.series
    np.testing.assert_allclose(two.y, runs[1].evaluation["nees"].mean(0))
    assert one.style != two.style
    assert expected.y[0] == 4
    exact = scipy.stats.chi2.ppf([0.025, 0.975], 4 * 12) / 12
    np.testing.assert_allclose([band.low, band.high], np.tile(exact[:, None], len(one.x)))


def test_a_sequence_that_is_not_finite_widens_the_band(runs):
    # Rejects the band of all sequences around a mean over some of them.
    values = runs[0].evaluation["nees"].copy()
    values[0, 2] = np.inf
    broken = dataclasses.replace(runs[0], evaluation={**runs[0].evaluation, "nees": values})
    chart = nees([broken])
    band, _, line = chart.series
    assert line.y[2] == pytest.approx(values[1:, 2].mean())
    width = band.high - band.low
    assert (width[2] > width[[0, 1, 3]]).all()
    assert "1 of 12 sequences" in chart.note


def test_coverage_is_shown_per_component(runs):
    diagonal, *lines = coverage(runs[0]).series
    np.testing.assert_array_equal(diagonal.x, diagonal.y)
    assert [line.name for line in lines] == ["x", "y", "vx", "vy"]
    np.testing.assert_allclose(lines[2].y, 100 * runs[0].evaluation["coverage"][:, 2])


def test_sheets_hold_every_frame_exactly():
    frames = evaluation(Sizes(steps=7))["frames"][0]
    size = frames.shape[1]
    restored = decoded(png_uri(sheet(frames)))
    for step, frame in enumerate(frames):
        row, column = divmod(step, 3)
        place = restored[row * size :][:size, column * size :][:, :size]
        np.testing.assert_array_equal(place, frame)


def test_a_photograph_keeps_its_look():
    random = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(random.normal(size=(60, 60, 3)), 0), 1)
    photo = (255 * (smooth - smooth.min()) / np.ptp(smooth)).astype(np.uint8)
    restored = decoded(png_uri(photo)).astype(float)
    assert np.abs(restored - photo).mean() < 8


def test_the_player_places_states_and_ellipses_by_the_view(runs):
    arrays, images = runs[0].evaluation, {}
    player = playable(runs[0], images)
    sequence = player["sequences"][1]
    margin = sequence["margin"]
    expected = arrays["means"][1, :, :2] + arrays["view_offset"] + margin
    np.testing.assert_allclose(sequence["estimate"], expected, atol=0.006)
    # The ellipse holds the points at Mahalanobis distance two: another road to its half axes.
    long, short, angle = sequence["ellipse"][3]
    direction = np.asarray([np.cos(angle), np.sin(angle)])
    covariance = arrays["covariances"][1, 3, :2, :2]
    assert direction @ np.linalg.solve(covariance, direction) * long**2 == pytest.approx(
        4, abs=0.02
    )
    normal = np.asarray([-direction[1], direction[0]])
    assert normal @ np.linalg.solve(covariance, normal) * short**2 == pytest.approx(4, abs=0.02)
    errors = arrays["states"][1] - arrays["means"][1]
    distance, visible = sequence["readings"]
    np.testing.assert_allclose(distance.values, np.linalg.norm(errors, axis=-1))
    np.testing.assert_array_equal(visible.values, arrays["visible"][1])
    stds = np.sqrt(np.diagonal(arrays["covariances"][1], axis1=1, axis2=2))
    np.testing.assert_allclose(sequence["errors"][2].series[0].high, 2 * stds[:, 2])


def test_runs_on_the_same_images_share_them(runs):
    images = {}
    players = [playable(run, images) for run in runs]
    assert len(images) == 2
    assert [s["sheet"] for s in players[0]["sequences"]] == list(images)
    assert [s["sheet"] for s in players[1]["sequences"]] == list(images)


def test_recorded_errors_are_shown_instead_of_differences(tmp_path):
    # Angles: a plain subtraction would show an error of a full turn.
    folder = write_run(tmp_path / "angles")
    arrays = evaluation(Sizes())
    np.savez(folder / "evaluation.npz", **arrays, errors=np.full(arrays["states"].shape, 0.5))
    player = playable(read_runs([folder])[0], {})
    np.testing.assert_allclose(player["sequences"][0]["readings"][0].values, 1.0)
