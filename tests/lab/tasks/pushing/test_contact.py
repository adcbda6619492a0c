import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.contact import Friction, push_along, straight_path
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, rotated, shape, signed_distance

NUM_STEPS = 50
SQUARE = shape("rect1")
TOUCHING = 45 + TIP_RADIUS


@jax.jit
def simulate(shape, pose, start, end, friction):
    return push_along(shape, pose, straight_path(start, end, NUM_STEPS), friction)


def pushed(start, end, pose=(0.0, 0.0, 0.0), shape=SQUARE, c=30.0, mu=0.25, centre=(0.0, 0.0)):
    vectors = (jnp.asarray(vector, float) for vector in (pose, start, end))
    return simulate(shape, *vectors, Friction(c, mu, jnp.asarray(centre)))


def gaps(contacts, shape=SQUARE):
    def gap(pose, tip):
        return signed_distance(shape, rotated(tip - pose[:2], -pose[2])) - TIP_RADIUS

    return np.asarray(jax.jit(jax.vmap(gap))(contacts.pose, contacts.tip))


def test_a_push_at_the_middle_of_a_side_moves_the_object_as_far_as_it_touches_it():
    contacts = pushed((-TOUCHING - 3, 0.0), (-TOUCHING + 17, 0.0))
    assert np.asarray(contacts.pose[-1]) == pytest.approx([17.0, 0.0, 0.0], abs=0.02)
    assert int(contacts.touches.sum()) == pytest.approx(NUM_STEPS * 17 / 20, abs=1)
    assert contacts.sticks[-1]


def test_the_tip_stays_on_the_surface_and_the_contact_is_there():
    contacts = pushed((-TOUCHING, 20.0), (-TOUCHING + 20, 26.0))
    assert contacts.touches.all()
    assert np.abs(gaps(contacts)).max() < 0.02
    assert abs(float(contacts.pose[-1, 2])) > 5
    point = np.asarray(contacts.point - contacts.tip)
    assert point == pytest.approx(TIP_RADIUS * np.asarray(contacts.normal))
    assert np.hypot(*np.asarray(contacts.normal).T) == pytest.approx(1.0)


def test_a_tip_that_slides_off_leaves_the_object_alone():
    contacts = pushed((-TOUCHING, 40.0), (-TOUCHING + 15, 70.0))
    touches = np.asarray(contacts.touches)
    last = int(np.flatnonzero(touches)[-1])
    assert 0 < last < NUM_STEPS - 5
    assert not np.asarray(contacts.sticks).all()
    after = np.asarray(contacts.pose[last:])
    assert after == pytest.approx(np.broadcast_to(after[0], after.shape))
    assert np.asarray(contacts.point[-1]) == pytest.approx(np.asarray(contacts.tip[-1]))
    assert np.abs(contacts.normal[-1]).max() == 0


def test_a_push_beside_the_object_moves_nothing():
    contacts = pushed((-60.0, 60.0), (60.0, 60.0))
    assert not contacts.touches.any()
    assert np.abs(contacts.pose).max() == 0


def test_a_tip_inside_of_the_object_at_the_start_is_taken_to_touch_it():
    contacts = pushed((-TOUCHING + 0.5, 0.0), (-TOUCHING + 10.5, 0.0))
    assert np.asarray(contacts.pose[-1]) == pytest.approx([10.0, 0.0, 0.0], abs=0.02)


def test_the_whole_scene_may_be_moved():
    start, end, pose = np.asarray([-TOUCHING, 15.0]), np.asarray([-30.0, 25.0]), np.zeros(3)
    here = pushed(start, end, pose)
    shift, angle = np.asarray([300.0, -20.0]), np.deg2rad(70.0)
    matrix = np.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    there = pushed(matrix @ start + shift, matrix @ end + shift, (*shift, 70.0))
    expected = np.append(matrix @ np.asarray(here.pose[-1, :2]) + shift, here.pose[-1, 2] + 70)
    assert np.asarray(there.pose[-1]) == pytest.approx(expected, abs=1e-6)


def test_smaller_steps_change_little():
    start, end = jnp.asarray([-TOUCHING, 20.0]), jnp.asarray([-30.0, 30.0])
    path, friction = straight_path(start, end, 8 * NUM_STEPS), Friction(30.0, 0.2)
    finer = push_along(SQUARE, jnp.zeros(3), path, friction).pose[-1]
    coarser = simulate(SQUARE, jnp.zeros(3), start, end, friction).pose[-1]
    assert np.asarray(coarser) == pytest.approx(np.asarray(finer), abs=0.1)
    assert (coarser != finer).any()


def test_an_uneven_pressure_turns_an_object_that_is_pushed_at_the_middle():
    even = pushed((-TOUCHING, 0.0), (-30.0, 0.0))
    uneven = pushed((-TOUCHING, 0.0), (-30.0, 0.0), centre=(0.0, 8.0))
    assert abs(float(even.pose[-1, 2])) < 0.1
    # The centre of friction lags behind on the left of the push: the object turns to the left.
    assert float(uneven.pose[-1, 2]) > 3
    through = pushed((-TOUCHING, 8.0), (-30.0, 8.0), centre=(0.0, 8.0))
    assert np.asarray(through.pose[-1]) == pytest.approx([19.75, 0.0, 0.0], abs=0.05)


def test_derivatives_with_respect_to_friction_are_finite_and_right():
    start, end = jnp.asarray([-TOUCHING, 20.0]), jnp.asarray([-30.0, 22.0])

    def turn(c):
        return simulate(SQUARE, jnp.zeros(3), start, end, Friction(c, 0.25)).pose[-1, 2]

    slope = jax.jacfwd(turn)(jnp.asarray(30.0))
    difference = (turn(jnp.asarray(30.01)) - turn(jnp.asarray(29.99))) / 0.02
    assert float(slope) == pytest.approx(float(difference), rel=0.02)


def test_corrections_and_disturbances_are_added_where_the_object_is_touched():
    path = straight_path(jnp.asarray([-TOUCHING - 2, 0.0]), jnp.asarray([-30.0, 0.0]), 20)

    def corrected(touch, result):
        del touch
        return jnp.zeros(3).at[2].set(1.0) + 0 * result.motion

    def disturbed(touch, result, key):
        del touch, result
        return jnp.zeros(3).at[2].set(jr.normal(key))

    arguments = (SQUARE, jnp.zeros(3), path, Friction(30.0, 0.25))
    both = jax.jit(
        lambda key: push_along(*arguments, correct=corrected, disturb=disturbed, key=key)
    )
    same, again, other = (both(jr.key(seed)) for seed in (0, 0, 1))
    assert (same.pose == again.pose).all()
    assert np.abs(same.pose[-1] - other.pose[-1]).max() > 0.1
    # At first there is a gap; then all is added to no rotation.
    assert np.abs(same.pose[0]).max() == 0
    first = int(np.flatnonzero(same.touches)[0])
    expected = 1 + jr.normal(jr.split(jr.key(0), 20)[first])
    assert float(same.pose[first, 2]) == pytest.approx(float(expected), abs=1e-6)
    with pytest.raises(ValueError, match="given together"):
        push_along(*arguments, disturb=disturbed)
