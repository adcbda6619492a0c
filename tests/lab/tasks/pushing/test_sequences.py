"""Simulated sequences: what must hold for each of them, whatever is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.agreement import error_quantiles, pushes_of
from filtrax.lab.tasks.pushing.contact import nearest
from filtrax.lab.tasks.pushing.physics import process
from filtrax.lab.tasks.pushing.recordings.endpoints import read_endpoints, wrapped_difference
from filtrax.lab.tasks.pushing.sequences import make_sequences
from filtrax.lab.tasks.pushing.shapes import NAMES, TIP_RADIUS, shape
from filtrax.lab.tasks.pushing.simulator import FREE_LENGTH, PUSH_STEPS, STEP_LENGTH

OBJECTS = ("tri3", "ellip2")
NUM_STEPS = 30


@pytest.fixture(scope="module")
def sequences():
    found = make_sequences("train", num_sequences=40, num_steps=NUM_STEPS, seed=3, objects=OBJECTS)
    return jax.tree.map(np.asarray, found)


@jax.jit
def distances(number, poses, tips):
    """Of tips to the outline of one of two objects."""
    one, other = (shape(name) for name in OBJECTS)
    shapes = jax.tree.map(lambda *leaves: jnp.stack(leaves)[number], one, other)
    moments = jax.vmap(lambda pose, tip: nearest(shapes, pose, tip).distance)
    return jax.vmap(moments)(poses, tips)


def gaps(sequences, share=0.0):
    """Between tip and outline at moments, or on the way to the next one while the object stays."""
    tips = (1 - share) * sequences.tips[:, :-1] + share * sequences.tips[:, 1:]
    found = np.empty(sequences.touches.shape)
    for number in range(len(OBJECTS)):
        own = slice(number, None, len(OBJECTS))
        found[own] = distances(number, sequences.poses[own], tips[own])
    return found - TIP_RADIUS


def test_shapes_and_the_order_of_objects(sequences):
    assert sequences.poses.shape == (40, NUM_STEPS + 1, 3)
    assert sequences.tips.shape == (40, NUM_STEPS + 2, 2)
    assert sequences.touches.shape == sequences.pushes.shape == (40, NUM_STEPS + 1)
    names = [NAMES[number] for number in sequences.shape]
    assert names == [*OBJECTS] * 20
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(sequences))
    # Friction differs from sequence to sequence, about that of the object.
    lengths = 10 * np.sqrt(sequences.friction)
    assert np.median(lengths[::2]) == pytest.approx(78.0, rel=0.1)
    assert np.log(lengths[1::2]).std() > 0.2
    assert np.ptp(sequences.half_angle[::2]) > 1.0


def test_the_tip_is_never_inside_of_the_object_and_touches_it_where_that_is_said(sequences):
    gap = gaps(sequences)
    assert gap.min() > -0.1
    assert (np.abs(gap[sequences.touches]) < 0.1).mean() > 0.98
    free = ~sequences.pushes
    for share in np.linspace(0.1, 0.9, 9):
        assert gaps(sequences, share)[free].min() > -0.1


def test_the_object_moves_only_where_it_is_touched(sequences):
    moves = (np.diff(sequences.poses, axis=1) != 0).any(-1)
    touches = sequences.touches[:, :-1]
    assert (moves == touches).all()
    assert (sequences.pushes | ~sequences.touches).all()
    assert 0.3 < touches.mean() < 0.6


def test_steps_of_pushes_have_one_length_and_free_ones_are_not_too_long(sequences):
    lengths = np.hypot(*np.moveaxis(np.diff(sequences.tips, axis=1), -1, 0))
    assert lengths[sequences.pushes] == pytest.approx(STEP_LENGTH, rel=1e-6)
    assert lengths[~sequences.pushes].max() < FREE_LENGTH + 1e-6
    # A whole push has five steps, and the pusher leaves the object after it.
    changes = np.diff(sequences.pushes.astype(int), axis=1)
    for row in changes:
        begins, ends = np.flatnonzero(row == 1), np.flatnonzero(row == -1)
        ends = ends[ends > begins[0]]
        assert (ends - begins[: len(ends)] == PUSH_STEPS).all()


def test_labels_without_contact_are_the_tip_and_no_normal(sequences):
    free = ~sequences.touches
    assert (sequences.points[free] == sequences.tips[:, :-1][free]).all()
    assert np.abs(sequences.normals[free]).max() == 0
    touched = sequences.normals[~free]
    assert np.hypot(*touched.T) == pytest.approx(1.0)
    offsets = (sequences.points - sequences.tips[:, :-1])[~free]
    assert (offsets * touched).sum(1) == pytest.approx(np.hypot(*offsets.T), rel=1e-6)


def test_the_physics_predicts_the_next_pose_from_labels(sequences):
    count = sequences.touches.shape[1] - 1
    constant = np.stack([sequences.friction, sequences.half_angle], -1)
    states = np.concatenate(
        [
            sequences.poses,
            np.repeat(constant[:, None], count + 1, 1),
            sequences.points,
            sequences.normals,
            sequences.touches[..., None],
        ],
        -1,
    )
    pushes = np.diff(sequences.tips, axis=1)[:, :-1]
    after = jax.jit(jax.vmap(jax.vmap(process)))(jnp.asarray(states[:, :-1]), jnp.asarray(pushes))
    errors = (np.asarray(after) - states[:, 1:])[..., :3]
    touches = sequences.touches[:, :-1]
    assert np.abs(errors[~touches]).max() == 0
    (median, _, high), (turned, _, turned_high) = error_quantiles(errors[touches])
    steps = error_quantiles(np.diff(sequences.poses, axis=1)[touches])
    assert median < 0.15 * steps[0, 0]
    assert turned < 0.35 * steps[1, 0]
    assert 0.1 < high < 2.5
    assert 0.1 < turned_high < 3.0


def test_the_object_stays_in_the_workspace(sequences):
    assert np.hypot(sequences.poses[..., 0], sequences.poses[..., 1]).max() < 150


def test_a_sequence_depends_on_its_number_and_the_seed_alone(sequences):
    options = {"num_steps": NUM_STEPS, "objects": OBJECTS}
    fewer = make_sequences("train", num_sequences=39, seed=3, **options)
    assert (np.asarray(fewer.poses) == sequences.poses[:39]).all()
    for split, seed in (("train", 4), ("validation", 3)):
        other = make_sequences(split, num_sequences=40, seed=seed, **options)
        assert (np.asarray(other.poses)[:, 0] != sequences.poses[:, 0]).all()


def test_whole_pushes_become_a_table_like_that_of_real_ones(sequences):
    pushes = pushes_of(jax.tree.map(jnp.asarray, sequences))
    changes = np.diff(sequences.pushes[:, :-PUSH_STEPS].astype(int), axis=1)
    assert len(pushes) == (changes == 1).sum()
    assert {*pushes.shapes} == {*OBJECTS}
    travel = pushes.tip_ends - pushes.tip_starts
    assert np.hypot(*travel.T) == pytest.approx(PUSH_STEPS * STEP_LENGTH)
    # In the data set's frame the corner of the triangle is not the centroid.
    triangle = pushes[pushes.shapes == "tri3"]
    first = np.flatnonzero(np.diff(sequences.pushes[0].astype(int)) == 1)[0] + 1
    offset = np.hypot(*(triangle.starts[0, :2] - sequences.poses[0, first, :2]))
    assert offset == pytest.approx(np.hypot(*np.asarray(shape("tri3").centroid)))
    assert triangle.starts[0, 2] == sequences.poses[0, first, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "tests"}, "test"),
        ({"objects": ("rect9",)}, "rect"),
        ({"num_steps": 0}, "num_steps"),
        ({"num_sequences": 0}, "num_sequences"),
    ],
)
def test_what_cannot_be_made_is_refused(change, message):
    wanted = {"split": "train", "num_sequences": 1, "num_steps": 1, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        make_sequences(wanted.pop("split"), **wanted)


@pytest.mark.long
def test_pushes_move_objects_as_far_as_real_ones(real_pushes):
    real = read_endpoints(next(real_pushes.glob("push_endpoints*.csv*")))
    made = make_sequences("test", num_sequences=400, num_steps=50, seed=0, objects=("rect3", "hex"))
    simulated = pushes_of(made)
    for name in ("rect3", "hex"):
        ours, theirs = (
            error_quantiles(wrapped_difference(p.ends, p.starts))
            for p in (simulated[simulated.shapes == name], real[real.shapes == name])
        )
        assert ours == pytest.approx(theirs, rel=0.3)
