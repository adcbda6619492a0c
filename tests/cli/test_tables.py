"""Names and units of metrics in tables."""

from filtrax.cli.tables import metric_name, print_metrics


def printed(capsys, **metrics):
    """The rows of the table of one member, by name."""
    member = {"seed": 0, "metrics": metrics}
    print_metrics(
        {
            "name": "run",
            "split": "test",
            "num_sequences": 3,
            "members": [member],
            "mean": metrics,
            "standard_error": dict.fromkeys(metrics),
        }
    )
    lines = [line.strip().rsplit("  ", 1) for line in capsys.readouterr().out.splitlines()]
    return {cells[0].strip(): cells[1].strip() for cells in lines if len(cells) == 2}


def test_errors_of_a_path_have_units_and_the_distance_of_its_states_is_mixed(capsys):
    rows = printed(capsys, distance=4.0, translation_error=0.12, rotation_error=0.06)
    assert rows.pop("metric") == "value"
    assert rows == {
        "distance (mixed units)": "4.000",
        "translation error (m/m)": "0.120",
        "rotation error (°/m)": "0.060",
    }


def test_other_distances_stay_as_they_are(capsys):
    assert printed(capsys, distance=4.0, nll=1.0).keys() == {"metric", "distance", "NLL"}
    assert metric_name("sensor_error") == "sensor error"
