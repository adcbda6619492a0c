import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

from filtrax.cli.data import app
from filtrax.lab.tasks.pushing import agreement
from filtrax.lab.tasks.pushing.calibration import (
    LENGTH,
    PUSHER,
    REGISTRATION,
    Calibration,
    even_pressure,
    fit,
    from_vector,
    grouped,
    predict,
)
from filtrax.lab.tasks.pushing.contact import Friction
from filtrax.lab.tasks.pushing.disturbances import disturbed, real_friction, simulated_ends
from filtrax.lab.tasks.pushing.physics import Touch, push
from filtrax.lab.tasks.pushing.recordings.endpoints import COLUMNS, Pushes, read_endpoints
from filtrax.lab.tasks.pushing.residual import LearnedCorrection, ResidualTraining, untrained
from filtrax.lab.tasks.pushing.shapes import shape
from filtrax.lab.tasks.pushing.validation import Row, Validation, halves, repetitions, validate

SHAPES = {name: shape(name) for name in ("rect1", "hex")}


def some_pushes(names, num_starts=6, speeds=(10.0,), travel=10.0):
    """Pushes towards the objects from places around them; the objects stay."""
    rows = []
    for name in names:
        for speed in speeds:
            for angle in np.linspace(0.2, 6.0, num_starts):
                out = np.asarray([np.cos(angle), np.sin(angle)])
                aim = np.asarray([np.cos(angle + 0.3), np.sin(angle + 0.3)])
                rows.append((name, speed, 70 * out, 70 * out - travel * aim))
    count = len(rows)
    return Pushes(
        np.full(count, "abs"),
        np.asarray([row[0] for row in rows]),
        np.asarray([row[1] for row in rows]),
        np.zeros((count, 3)),
        np.zeros((count, 3)),
        np.stack([row[2] for row in rows]),
        np.stack([row[3] for row in rows]),
    )


def with_ends(pushes, calibrations):
    """The same pushes with ends that a calibration predicts."""
    groups = grouped(pushes, SHAPES, np.ones(len(pushes), bool))
    ends = np.array(pushes.ends)
    used = groups.weights > 0
    ends[groups.indices[used]] = predict(groups, calibrations)[used]
    return dataclasses.replace(pushes, ends=ends)


def calibrations(*rows):
    return jax.vmap(from_vector)(jnp.asarray(rows))


@pytest.mark.long
def test_a_fit_finds_the_calibration_that_made_the_pushes():
    truth = calibrations(
        [np.log(28.0), np.log(0.18), 0.7, -0.3, 0.5, 0.0, 0.0],
        [np.log(45.0), np.log(0.3), 0.4, 0.2, -0.4, 0.0, 0.0],
    )
    pushes = with_ends(some_pushes(("rect1", "hex"), 14, travel=30.0), truth)
    groups = grouped(pushes, SHAPES, np.ones(len(pushes), bool))
    start = jax.vmap(even_pressure)(groups.shapes)
    found = fit(groups, start, (*LENGTH, *PUSHER, *REGISTRATION), (4.0, 2.0, *[1.0] * 8))
    assert np.asarray(found.friction.length) == pytest.approx([28.0, 45.0], rel=0.05)
    assert np.asarray(found.friction.coefficient) == pytest.approx([0.18, 0.3], rel=0.15)
    assert np.asarray(found.registration) == pytest.approx(np.asarray(truth.registration), abs=0.25)
    # What is not free stays.
    assert np.abs(found.friction.centre).max() == 0
    errors = np.abs(predict(groups, found) - np.asarray(groups.ends))
    assert np.median(errors) < 0.05 < np.median(np.abs(predict(groups, start) - groups.ends))


def test_a_calibration_survives_its_vector():
    calibration = Calibration(
        Friction(30.0, 0.2, jnp.asarray([1.0, 2.0])), jnp.asarray([3.0, 4, 5])
    )
    again = from_vector(calibration.as_vector())
    for found, expected in zip(jax.tree.leaves(again), jax.tree.leaves(calibration), strict=True):
        assert np.asarray(found) == pytest.approx(np.asarray(expected))


def test_pushes_are_grouped_by_object_and_unused_places_have_no_weight():
    pushes = some_pushes(("rect1", "hex"), 4)
    chosen = np.asarray([True] * 3 + [False] + [True, False, True, False])
    groups = grouped(pushes, SHAPES, chosen)
    assert groups.names == ("rect1", "hex")
    assert groups.weights.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert groups.indices[1, :2].tolist() == [4, 6]
    assert groups.num_steps == 25


def test_repeated_pushes_are_in_one_half_and_halves_are_deterministic():
    pushes = some_pushes(("rect1", "hex"), 10, speeds=(10.0, 20.0))
    turned = np.deg2rad(40.0)
    matrix = np.asarray([[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]])
    fast = pushes.speeds == 20
    # The same pushes again, elsewhere on the table.
    pushes.starts[fast] = [100.0, 50.0, 40.0]
    pushes.tip_starts[fast] = pushes.tip_starts[fast] @ matrix.T + [100.0, 50.0]
    pushes.tip_ends[fast] = pushes.tip_ends[fast] @ matrix.T + [100.0, 50.0]
    labels = repetitions(pushes[pushes.shapes == "hex"])
    assert len(np.unique(labels)) == 10
    assert (labels[:10] == labels[10:]).all()
    first = halves(pushes, 3)
    for name in ("rect1", "hex"):
        half = first[pushes.shapes == name]
        assert (half[:10] == half[10:]).all()
        assert half.sum() == 10
    assert (first == halves(pushes, 3)).all()
    assert (first != halves(pushes, 4)).any()


def test_pushes_of_one_speed_are_their_own():
    assert len(np.unique(repetitions(some_pushes(("hex",), 30)))) == 30


def test_parts_of_the_pushes():
    pushes = some_pushes(("rect1", "hex"), 2)
    pushes.ends[1] = [3.0, 5.0, 0.0]
    validation = Validation(pushes, (), ("rect1", "hex"), {})
    parts = validation.parts()
    assert [*parts] == ["rect1", "hex", "all", "moved > 5 mm"]
    assert parts["moved > 5 mm"].tolist() == [False, True, False, False]
    assert parts["hex"].tolist() == [False, False, True, True]


def corrections():
    """A correction that does something."""
    quiet = untrained(2, key=jr.key(0))
    loud = eqx.tree_at(lambda net: net.layers[-1].weight, quiet, replace_fn=lambda w: 100 * w)
    return LearnedCorrection(loud, jnp.asarray([0.0, 1.0]))


@eqx.filter_jit
def corrected(correct, offset, normal, displacement):
    touch = Touch(offset, normal, displacement, jnp.asarray(900.0), jnp.asarray(14.0))
    return correct(touch, push(touch))


def test_a_learned_correction_keeps_the_contact_and_mirrors():
    mirror = jnp.asarray([1.0, -1.0])
    vectors = [jnp.asarray(v) for v in ([-40.0, 12.0], [1.0, 0.0], [2.0, 1.0])]
    here = np.asarray(corrected(corrections(), *vectors))
    there = np.asarray(corrected(corrections(), *(mirror * vector for vector in vectors)))
    assert there == pytest.approx(here * [1, -1, -1])
    assert abs(here[2]) > 1e-3
    along_normal = here[0] - np.deg2rad(here[2]) * float(vectors[0][1])
    assert along_normal == pytest.approx(0.0, abs=1e-9)


def test_no_push_has_no_correction_and_finite_derivatives():
    normal = jnp.asarray([1.0, 0.0])
    arguments = (corrections(), -40 * normal, normal, jnp.zeros(2))
    assert np.abs(corrected(*arguments)).max() == 0
    assert np.isfinite(jax.jacrev(corrected, 3)(*arguments)).all()


def test_disturbances_vanish_with_their_spread_and_follow_the_key():
    pushes = some_pushes(("rect1", "hex"), 5)
    groups = grouped(pushes, SHAPES, np.ones(len(pushes), bool))
    start = jax.vmap(even_pressure)(groups.shapes)
    spread = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[real_friction("hex")[1]] * 2)
    plain = predict(groups, start)
    none = simulated_ends(groups, start, jax.tree.map(jnp.zeros_like, spread), key=jr.key(0))
    assert none == pytest.approx(plain, abs=1e-9)
    one, same, other = (simulated_ends(groups, start, spread, key=jr.key(k)) for k in (0, 0, 1))
    assert (one == same).all()
    moved = np.abs(plain).max(-1) > 0.1
    assert (np.abs(one - plain)[moved].max(-1) > 1e-3).all()
    assert np.abs(one - other).max() > 0.05


def test_small_disturbances_keep_the_contact_and_are_larger_where_it_slides():
    friction, spread = real_friction("tri1")
    _, disturb = disturbed(friction, spread, key=jr.key(1))
    offset, normal, ahead = (jnp.asarray(v) for v in ([-40.0, 9.0], [1.0, 0.0], [0.4, 0.1]))
    touch = Touch(offset, normal, ahead, friction.length**2, jnp.asarray(12.0))
    result = push(touch)
    sticking, sliding = (
        np.asarray(disturb(touch, result._replace(sticks=jnp.asarray(sticks)), jr.key(2)))
        for sticks in (True, False)
    )
    assert sliding == pytest.approx(2 * sticking)
    along_normal = sticking[0] - np.deg2rad(sticking[2]) * float(offset[1])
    assert along_normal == pytest.approx(0.0, abs=1e-9)
    still = disturb(touch._replace(displacement=jnp.zeros(2)), result, jr.key(2))
    assert np.abs(still).max() == 0


def write(path, pushes):
    rows = [
        f"abs,{name},{speed:g}," + ",".join(f"{number:.9f}" for number in numbers)
        for name, speed, numbers in zip(
            pushes.shapes,
            pushes.speeds,
            np.concatenate(
                [
                    pushes.starts * [1e-3, 1e-3, np.pi / 180],
                    pushes.ends * [1e-3, 1e-3, np.pi / 180],
                    pushes.tip_starts * 1e-3,
                    pushes.tip_ends * 1e-3,
                ],
                1,
            ),
            strict=True,
        )
    ]
    path.write_text("\n".join([",".join(COLUMNS), *rows]))


@pytest.mark.long
def test_the_verb_prints_a_table_of_models_that_get_better(tmp_path, monkeypatch):
    truth = calibrations(
        [np.log(25.0), np.log(0.2), 0.8, 0.0, 0.0, 0.0, 0.0],
        [np.log(50.0), np.log(0.3), 0.8, 0.0, 0.0, 0.0, 0.0],
    )
    pushes = with_ends(some_pushes(("rect1", "hex"), 40, travel=25.0), truth)
    write(tmp_path / "push_endpoints_abs.csv", pushes)
    monkeypatch.setattr(agreement, "SEQUENCES_PER_OBJECT", 5)
    found = validate(tmp_path, residual=ResidualTraining(2, 2, coarseness=15))
    names = [row.name for row in found.rows]
    medians = [float(np.median(row.rotation)) for row in found.rows]
    assert names[:3] == ["no motion", "even pressure", "c"]
    assert names[-1] == "+ learned correction"
    assert medians[0] > medians[1] > medians[2] > medians[3]
    assert medians[3] < 0.2
    assert len(found.pushes) == 40
    assert [row.name for row in found.simulator] == ["rect1", "hex"]
    for row in found.simulator:
        # Simulated pushes are disturbed; those of the table are not, and were fitted.
        assert row.num_pushes > 10
        assert (row.simulated[:, 0] > 0.5).all()
        assert (row.ratios[:, 0] > 3).all()
    # The verb shows what was found, and need not find it again.
    monkeypatch.setattr("filtrax.lab.tasks.pushing.validation.validate", lambda *_, **__: found)
    result = CliRunner().invoke(app, ["pushing", "--validate", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "40 pushes were predicted" in result.output
    for text in ("Median", "75th percentile", "90th percentile", "moved > 5 mm", "hex (20)"):
        assert text in result.output
    ratio = " / ".join(f"{number:.2f}" for number in found.simulator[1].ratios[:, 0])
    assert ratio in result.output.split("simulated sequences")[1]
    assert f"{medians[0]:.2f}" in result.output


@pytest.mark.long
def test_the_simulator_is_as_uncertain_as_real_pushes(real_pushes):
    """The goal of all objects for two of them, with some room for the luck of fewer pushes."""
    pushes = read_endpoints(next(real_pushes.glob("push_endpoints*.csv*")))
    chosen = {name: shape(name) for name in ("rect1", "butter")}
    groups = grouped(pushes, chosen, np.isin(pushes.shapes, [*chosen]))
    start = agreement.simulated_calibrations(groups.names)
    real = agreement.errors(groups, fit(groups, start, REGISTRATION, (2.0, 1.0, 1.0, 1.0)))
    for row in agreement.compare(groups.names, real):
        assert row.ratios == pytest.approx(np.ones((2, 3)), abs=0.25)


@pytest.mark.long
def test_real_pushes_are_predicted_as_well_as_stated(real_pushes):
    """A part of the table, with the goals of the whole a little loosened."""
    path = next(real_pushes.glob("push_endpoints*.csv*"))
    pushes = read_endpoints(path)
    chosen = {name: shape(name) for name in ("rect3", "ellip2")}
    wanted = np.isin(pushes.shapes, [*chosen]) & (np.arange(len(pushes)) % 2 == 0)
    pushes = pushes[wanted]
    first = halves(pushes, 0)
    train, test = grouped(pushes, chosen, first), grouped(pushes, chosen, ~first)
    start = jax.vmap(even_pressure)(train.shapes)
    found = fit(train, start, (*LENGTH, *PUSHER, *REGISTRATION))
    rows = []
    for calibration in (start, found):
        ends, used = predict(test, calibration), test.weights > 0
        errors = (ends - np.asarray(test.ends))[used]
        turned = (errors[:, 2] + 180) % 360 - 180
        rows.append(Row("", np.hypot(errors[:, 0], errors[:, 1]), np.abs(turned)))
    assert np.median(rows[1].translation) < 2.2 < np.median(rows[0].translation)
    assert np.median(rows[1].rotation) < 2.6 < np.median(rows[0].rotation)
    assert 0.5 < float(found.registration[:, 0].min()) < float(found.registration[:, 0].max()) < 1.6
