"""Logs as steps of a filter, against what is counted and integrated by hand."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax import models
from filtrax.logs import Layout, Log, LogWarning


def sensors(**options):
    landmarks = models.Landmarks([4, 9], [[5.0, 0.0], [0.0, 5.0]], "id")
    return {
        "uwb": models.Sensor(models.Range(landmarks), "range", std=0.1, **options),
        "gnss": models.Sensor(models.Position(), ("e", "n"), std=1.0),
    }


def small_log():
    return Log.from_arrays(
        {
            "odo": {"t": [0.0, 1.0, 3.0], "ds": [9.0, 2.0, 8.0], "turn": [9.0, 0.1, 0.4]},
            "uwb": {
                "t": [0.5, 1.0, 1.0, 2.0, 9.0],
                "range": [1, 2, 3, 4, 5],
                "id": [4, 4, 9, 9, 4],
            },
            "gnss": {"t": [-1.0, 1.0, 2.5], "e": [7.0, 8.0, 9.0], "n": [1.0, 2.0, 3.0]},
        }
    )


def driven(**options):
    return models.DrivenPose("odo.ds", "odo.turn", increments=True, distance_std=0.1, **options)


def test_each_reading_is_a_step_at_its_own_time_with_its_own_fields():
    steps = small_log().events(models.build(driven(), sensors()))
    assert steps.times.tolist() == [0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 2.5, 3.0]
    assert steps.inputs["dt"].tolist() == [0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 0.5, 0.5]
    assert steps.inputs["stream"].tolist() == [-1, 0, 0, 0, 1, 0, 1, -1]
    uwb, gnss = steps.readings
    assert uwb[:, 0].tolist() == [0, 1, 2, 3, 0, 4, 0, 0]
    assert gnss[:, 0].tolist() == [0, 0, 0, 0, 8, 0, 9, 0]
    assert steps.observed[0].tolist() == (steps.inputs["stream"] == 0).tolist()
    assert steps.inputs["uwb"]["id"][steps.observed[0]].tolist() == [4, 4, 9, 9]
    assert set(steps.inputs["uwb"]["id"].tolist()) <= {4, 9}  # also where nothing was read
    assert steps.names == ("uwb", "gnss")
    assert "1 of 5 readings of uwb were left out" in steps.note
    assert "1 of 3 readings of gnss were left out" in steps.note


def test_increments_are_shared_out_so_that_none_is_lost():
    """Rejects odometry that jumps at its rows while readings lie between them."""
    inputs = small_log().events(models.build(driven(), sensors())).inputs
    moved = inputs["odo"]["ds"] * inputs["dt"]
    np.testing.assert_allclose(moved, [0, 1, 1, 0, 0, 4, 2, 2])
    np.testing.assert_allclose((inputs["odo"]["turn"] * inputs["dt"]).sum(), 0.5)


@pytest.mark.parametrize("on_grid", [False, True])
def test_rates_are_means_of_the_lines_between_their_rows(on_grid):
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0, 10, 60))
    t[0], t[-1] = 0.0, 10.0
    v = rng.normal(size=60)
    log = Log.from_arrays(
        {
            "odo": {"t": t, "ds": v, "turn": v},
            "gnss": {"t": t[5::7] + 1e-3, "e": t[5::7], "n": t[5::7]},
        }
    )
    motion = models.DrivenPose("odo.ds", "odo.turn", distance_std=0.1)
    model = models.build(motion, {"gnss": sensors()["gnss"]})
    steps = log.grid(model, 0.8) if on_grid else log.events(model)
    fine = np.linspace(0, 10, 2_000_001)
    area = np.append(
        0.0, np.cumsum(np.diff(fine) * np.convolve(np.interp(fine, t, v), [0.5, 0.5], "valid"))
    )
    exact = np.diff(np.interp(np.minimum(steps.times, 10.0), fine, area), prepend=0.0)
    dt = np.diff(np.minimum(steps.times, 10.0), prepend=0.0)
    np.testing.assert_allclose(steps.inputs["odo"]["ds"] * dt, exact, atol=2e-6)


def test_gaps_in_what_drives_the_process_are_told():
    t = np.delete(0.1 * np.arange(100), slice(40, 60))
    parts = {"odo": {"t": t, "ds": t, "turn": t}, "gnss": {"t": t, "e": t, "n": t}}
    model = models.build(driven(), {"gnss": sensors()["gnss"]})
    log = Log.from_arrays(parts)
    assert "odo has 1 gaps, the longest of 2.1 s" in log.events(model).note
    assert log.split_at(5.0)[0].events(model).note == ""


def test_a_grid_loses_no_reading_and_says_what_it_moved_or_merged():
    log, model = small_log(), models.build(driven(), sensors())
    steps = log.grid(model, 1.0)
    assert steps.times.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0]
    assert [int(mask.sum()) for mask in steps.observed] == [4, 2]
    assert "2 of 6 readings were moved to the grid, by at most 0.5 s" in steps.note
    with pytest.raises(ValueError, match="'uwb' cannot be merged, because each belongs"):
        log.grid(model, 1.0, merge=True)
    angles = {
        "compass": {"t": [0.0, 0.1, 1.0], "h": [3.1, -3.1, 0.5]},
        "odo": {"t": [0.0, 2.0], "v": [1, 1], "w": [0, 0]},
    }
    motion = models.DrivenPose("odo.v", "odo.w", distance_std=0.1)
    compass = models.build(motion, {"compass": models.Sensor(models.Heading(), "h", std=0.1)})
    merged = Log.from_arrays(angles).grid(compass, 1.0, merge=True)
    assert "2 readings of compass were merged into 1 means" in merged.note
    assert np.abs(merged.readings[0][0, 0]) == pytest.approx(np.pi)
    for step in (0.0, -1.0, np.nan, 1e-12):
        with pytest.raises(ValueError, match="`step` must be between 1e-9 and"):
            log.grid(model, step)
    with pytest.raises(ValueError, match="`step` must leave at most 100,000,000 steps"):
        log.grid(model, 1e-9)


def test_truth_labels_what_is_known_and_gives_the_prior_its_mean():
    truth = {"t": [0.5, 1.5, 3.0], "x": [1.0, 2.0, 5.0], "yaw": [3.0, -3.0, -3.0]}
    parts = {
        "odo": {"t": [0.0, 1.0, 3.0], "ds": [9.0, 2, 8], "turn": [0.0, 0, 0]},
        "gnss": {"t": [1.0, 2.0], "e": [0.0, 0], "n": [0.0, 0]},
    }
    log = Log.from_arrays({**parts, "mocap": truth})
    model = models.build(driven(turn_bias=models.RandomWalk(0.01)), {"gnss": sensors()["gnss"]})
    steps = log.events(model)
    known = {"x": "mocap.x", "heading": "mocap.yaw"}
    states = steps.states(known)
    step = 2 * np.pi - 6.0
    np.testing.assert_allclose(states[:, 0], [np.nan, 1.5, 3.0, 5.0])
    np.testing.assert_allclose(states[1, 2], 3.0 + step / 2 - 2 * np.pi * (step / 2 + 3 >= np.pi))
    assert np.isnan(states[:, [1, 3]]).all()
    prior = {"x": (0.0, 1.0), "y": (0.0, 1.0), "heading": (3.0, 0.1), "turn_bias": (0.0, 0.2)}
    data = steps.trajectory(prior, truth=known)
    assert data.labelled.tolist() == np.isfinite(states).tolist()
    np.testing.assert_allclose(data.initial, [0.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(jnp.diagonal(data.initial_covariance), [1.0, 1.0, 0.01, 0.04])
    with pytest.raises(ValueError, match="'x' and no mean, and the truth of the first step"):
        steps.trajectory({**prior, "x": 0.5}, truth=known)
    with pytest.raises(ValueError, match=r"\['y'\] are missing"):
        steps.trajectory({n: v for n, v in prior.items() if n != "y"})
    later = log.between(0.5, 3.1).events(model)
    np.testing.assert_allclose(later.trajectory({**prior, "x": 0.5}, truth=known).initial[0], 1.5)


def test_a_layout_by_hand_serves_a_model_by_hand():
    """A model that is made of functions reads a log by the columns that a layout names."""
    layout = Layout(
        readings={"uwb": ("range",)}, increments=("odo.ds", "odo.turn"), fields=("uwb.id",)
    )
    steps = small_log().events(layout)
    prior = filtrax.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    data = steps.trajectory(prior)
    model = filtrax.StateSpaceModel(
        process=lambda x, u: x + u["dt"] * u["odo"]["ds"] * jnp.asarray([1.0, 0.0]),
        process_noise=models.per_second([0.1, 0.1]),
        observe=lambda x, u: jnp.where(u["uwb"]["id"] == 4.0, x[:1], x[1:]),
        sensor=filtrax.stack_sensors(filtrax.DirectSensor(filtrax.constant_noise([0.1]))),
    )
    result = filtrax.run(
        filtrax.ExtendedKalmanFilter(), model, data.prior, data.readings,
        inputs=data.inputs, observed=data.observed,
    )  # fmt: skip
    assert result.info.finite.all()
    with pytest.raises(ValueError, match="give `state_space` of the layout"):
        steps.trajectory({"x": (0.0, 1.0), "y": (0.0, 1.0)})
    named = dataclasses.replace(layout, state_space=filtrax.Space(("x", "y")))
    known = small_log().events(named).trajectory({"x": 2.0, "y": (1.0, 3.0)}, truth={"x": "odo.ds"})
    assert known.initial.tolist() == [9.0, 1.0]
    with pytest.raises(TypeError, match=r"`model` must be made by `filtrax.models.build`"):
        small_log().events(model)


def test_steps_that_cannot_be_made_say_why():
    log, model = small_log(), models.build(driven(), sensors())
    unknown = log.with_columns("uwb", id=np.array([4.0, 4, 5, 9, 4]))
    with pytest.raises(ValueError, match=r"column 'id' must be one of \[4.0, 9.0\], found \[5.0\]"):
        unknown.events(model)
    with pytest.raises(ValueError, match=r"whose stream must exist: got \['odo'\]"):
        Log({name: log[name] for name in ("uwb", "gnss")}).events(model)
    with pytest.raises(ValueError, match=r"columns must exist: got \['range'\]"):
        Log.from_arrays(
            {
                "uwb": {"t": [0.0], "id": [4]},
                "gnss": {"t": [0.0], "e": [0], "n": [0]},
                "odo": {"t": [0.0, 1], "ds": [0, 0], "turn": [0, 0]},
            }
        ).events(model)
    with pytest.raises(ValueError, match=r"No reading of .* falls into the time"):
        log.shifted(uwb=100.0, gnss=100.0).events(model)
    with pytest.raises(ValueError, match="needs rows at two times"):
        log.where("odo", lambda odo: odo.times == 1.0).events(model)
    with pytest.raises(ValueError, match=r'named as "stream.column"'):
        log.events(Layout(readings={"uwb": ("range",)}, rates=("speed",)))
    with pytest.raises(ValueError, match="must not be called"):
        Log.from_arrays({"dt": {"t": [0.0], "x": [0.0]}}).events(Layout(readings={"dt": ("x",)}))


def along_a_circle(**units):
    """A drive along a circle with truth, speed, turn rate, ranges and a compass."""
    t = 0.1 * np.arange(300)
    x, y = 10 * np.cos(0.1 * t), 10 * np.sin(0.1 * t)
    heading = np.arctan2(np.cos(0.1 * t), -np.sin(0.1 * t))
    scale = {"v": 1.0, "w": 1.0, "range": 1.0, "h": 1.0, **units}
    wheels = {"t": t, "v": scale["v"] * np.ones(300), "w": scale["w"] * 0.1 * np.ones(300)}
    distance = np.hypot(x - 5.0, y)
    return Log.from_arrays(
        {
            "truth": {"t": t, "x": x, "y": y, "heading": heading},
            "wheels": wheels,
            "uwb": {"t": t, "range": scale["range"] * distance, "id": np.full(300, 4.0)},
            "compass": {"t": t, "h": scale["h"] * heading},
        },
        units={"v": "m/s", "range": "m"},  # or so its owner believes
    )


def circle_trajectory(log):
    parts = {
        "uwb": sensors()["uwb"],
        "compass": models.Sensor(models.Heading(), "h", std=0.1),
    }
    model = models.build(models.DrivenPose("wheels.v", "wheels.w", distance_std=0.1), parts)
    names = ("x", "y", "heading")
    truth = {name: f"truth.{name}" for name in names}
    return log.events(model).trajectory(dict.fromkeys(names, 0.1), truth=truth)


@pytest.mark.parametrize(
    ("column", "factor", "reason"),
    [
        ("range", 1000.0, "column 'range' are 1000 times what the truth .* as millimetres"),
        ("range", 1e-3, "column 'range' are 0.001 times what the truth .* as kilometres"),
        ("v", 1000.0, "changes x, y by 1000 times what the truth says, as millimetres"),
        ("w", 180 / np.pi, "changes heading by 57.3 times what the truth says, as degrees"),
        ("h", 180 / np.pi, "column 'h' are up to 1[78].*, as degrees"),
    ],
)
def test_units_that_the_truth_contradicts_raise_a_warning_with_the_reason(column, factor, reason):
    log = along_a_circle(**{column: factor})
    with pytest.warns(LogWarning, match=reason):
        circle_trajectory(log)


def test_units_that_the_truth_confirms_raise_none():
    data = circle_trajectory(along_a_circle(range=1.2))  # a scale is no unit
    assert data.labelled.all()


def test_windows_of_a_log_without_labels_begin_at_beliefs():
    """Rejects windows that all begin at the start of the log, or at beliefs of their own end."""
    log = along_a_circle()
    motion = models.DrivenPose("wheels.v", "wheels.w", distance_std=0.1, drift_std=0.01)
    model = models.build(motion, {"uwb": sensors()["uwb"]})
    prior = {"x": (10.0, 0.1), "y": (0.0, 0.1), "heading": (np.pi / 2, 0.1)}
    data = log.events(model).trajectory(prior)
    ekf = filtrax.ExtendedKalmanFilter()
    run = lambda t: filtrax.run(  # noqa: E731
        ekf, model, t.prior, t.readings, inputs=t.inputs, observed=t.observed
    )
    whole = run(data)
    with pytest.raises(ValueError, match="give `beliefs="):
        filtrax.trajectory.windows(data, 100)
    cut = filtrax.trajectory.windows(data, 100, stride=50, beliefs=whole.beliefs)
    assert cut.initial.shape == (5, 3)
    parts = eqx.filter_vmap(run)(cut)
    for window in range(5):
        same = slice(50 * window, 50 * window + 100)
        np.testing.assert_allclose(parts.beliefs.mean[window], whole.beliefs.mean[same], atol=1e-9)
        np.testing.assert_allclose(
            parts.info.log_likelihood[window], whole.info.log_likelihood[same], atol=1e-8
        )


def test_windows_with_labels_begin_at_true_states_that_are_known():
    states = jnp.arange(12.0).reshape(6, 2)
    labelled = jnp.asarray([True, True, False, True, True, True])
    data = filtrax.Trajectory(
        jnp.asarray([-2.0, -1.0]), jnp.eye(2), jnp.arange(6.0)[:, None],
        states=states, labelled=labelled,
    )  # fmt: skip
    cut = filtrax.trajectory.windows(data, 2, stride=1)
    assert cut.initial.tolist() == [[-2, -1], [0, 1], [2, 3], [6, 7]]
    assert cut.readings[:, :, 0].tolist() == [[0, 1], [1, 2], [2, 3], [4, 5]]
    assert cut.initial_covariance.shape == (4, 2, 2)
    with pytest.raises(ValueError, match="`length` must be between 1 and the 6"):
        filtrax.trajectory.windows(data, 7)


def test_one_by_one_and_joint_updates_agree_and_times_are_not_in_single_precision():
    """Stamps since 1970 give the same steps as stamps from zero."""
    early = along_a_circle()
    late = early.shifted(**dict.fromkeys(early.streams, 1_700_000_000.0))
    model = models.build(
        models.DrivenPose("wheels.v", "wheels.w", distance_std=0.1), {"uwb": sensors()["uwb"]}
    )
    a, b = early.events(model), late.events(model)
    np.testing.assert_array_equal(a.inputs["dt"], b.inputs["dt"])
    np.testing.assert_allclose(a.inputs["wheels"]["v"], b.inputs["wheels"]["v"], rtol=1e-12)
