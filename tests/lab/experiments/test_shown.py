"""Small tables for figures, against loops."""

import json

import numpy as np

from filtrax.lab.experiments.shown import most_changing, over_a_sequence, over_the_plane, plain


def test_the_sequence_is_the_one_whose_true_noise_changes_most_often():
    stds = np.ones((25, 4, 4))
    stds[3, 1:, 2] = 3.0
    stds[7, 1, 2:] = 3.0  # changes twice: there and back
    stds[22, ::2] = 5.0  # more often, but too far back
    assert most_changing(stds) == 7
    predicted = np.arange(25 * 16).reshape(25, 4, 4) / 7
    found = over_a_sequence(predicted, stds)
    np.testing.assert_allclose(found["process_std"], predicted[7], atol=1e-4)
    np.testing.assert_array_equal(found["true_process_std"], stds[7])
    assert most_changing(np.ones((5, 4, 4))) == 0
    alone = over_a_sequence(predicted, None)
    assert set(alone) == {"process_std"}
    np.testing.assert_allclose(alone["process_std"], predicted[0], atol=1e-4)


def test_maps_are_means_by_the_position_before_a_step():
    rng = np.random.default_rng(0)
    positions = rng.uniform(-80, 80, (30, 6, 2))
    stds = rng.uniform(size=(30, 6, 4))
    visible = rng.integers(0, 2, (30, 6))
    found = over_the_plane(positions, stds, visible)
    assert found["edges"] == [-60, -40, -20, 0, 20, 40, 60]
    values = {}
    for n, t in np.ndindex(30, 5):
        x, y = positions[n, t]
        if max(abs(x), abs(y)) < 60:
            cell = int((y + 60) // 20), int((x + 60) // 20)
            noise = stds[n, t + 1, :2].mean()
            values.setdefault(cell, []).append((noise, visible[n, t] == 0))
    assert 20 < len(values) <= 36
    for row, column in np.ndindex(6, 6):
        here = values.get((row, column), [])
        assert found["counts"][row][column] == len(here)
        both = found["process_std_map"][row][column], found["occlusion"][row][column]
        if here:
            np.testing.assert_allclose(both, np.mean(here, axis=0), atol=1e-4)
        else:
            assert both == (None, None)


def test_tables_are_plain_json_also_where_nothing_was():
    found = over_the_plane(np.zeros((2, 3, 2)), np.ones((2, 3, 4)), None)
    assert "occlusion" not in found
    text = json.loads(json.dumps(found, allow_nan=False))
    assert text["process_std_map"][0][0] is None
    assert np.sum(text["counts"]) == 4
    assert plain(np.asarray([0.123456, np.inf])) == [0.1235, None]
