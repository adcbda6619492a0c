import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filtrax.lab.tasks.pushing.physics import (
    STATE,
    Touch,
    half_angle_of,
    motion_cone,
    motion_of_contact,
    process,
    push,
)


def cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


ANGLES = st.floats(-180, 180)
step = jax.jit(process)
one_push = jax.jit(push)
slopes = jax.jit(jax.jacrev(process, (0, 1)))


def touch(offset, normal, displacement, c=35.0, alpha=14.0):
    vectors = (jnp.asarray(v, float) for v in (offset, normal, displacement))
    return Touch(*vectors, jnp.asarray(c**2), jnp.asarray(alpha))


def turned(vector, degrees):
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.asarray([[cosine, -sine], [sine, cosine]]) @ np.asarray(vector)


@st.composite
def touches(draw, widest=80.0):
    """A contact at the right side of an object, pushed to the left within 80 degrees."""
    offset = (draw(st.floats(10, 60)), draw(st.floats(-50, 50)))
    normal = turned((-1.0, 0.0), draw(st.floats(-30, 30)))
    displacement = draw(st.floats(0.1, 10)) * turned(normal, draw(st.floats(-widest, widest)))
    return touch(offset, normal, displacement, draw(st.floats(20, 60)), draw(st.floats(1, 35)))


def state_of(given, s=1.0):
    position = np.asarray([300.0, -40.0])
    length, angle = float(given.squared_length) / 100, float(given.half_angle)
    numbers = [*position, 20.0, length, angle, *(position + np.asarray(given.offset))]
    return jnp.asarray([*numbers, *np.asarray(given.normal), s])


@given(ANGLES, st.floats(0.1, 50))
def test_a_push_through_the_centre_of_friction_does_not_rotate(angle, size):
    normal = turned((1.0, 0.0), angle)
    result = one_push(touch(-40 * normal, normal, size * normal))
    assert result.motion[2] == pytest.approx(0, abs=1e-9)
    assert np.asarray(result.motion[:2]) == pytest.approx(size * normal)


@given(touches())
def test_the_touched_point_moves_with_the_object_and_with_a_pusher_that_sticks(given):
    result = one_push(given)
    offset, motion = np.asarray(given.offset), np.asarray(result.motion)
    turn = np.deg2rad(motion[2])
    of_point = motion[:2] + turn * np.asarray([-offset[1], offset[0]])
    assert of_point == pytest.approx(np.asarray(result.contact), abs=1e-9)
    if result.sticks:
        assert np.asarray(result.contact) == pytest.approx(np.asarray(given.displacement))


@given(touches())
def test_a_contact_that_slides_moves_along_an_edge_of_the_motion_cone(given):
    result = one_push(given)
    edges = [np.asarray(edge) for edge in motion_cone(given)]
    contact, displacement = np.asarray(result.contact), np.asarray(given.displacement)
    normal = np.asarray(given.normal)
    sines = [cross(edge, contact) / np.linalg.norm(edge) for edge in edges]
    if not result.sticks:
        assert min(map(abs, sines)) < 1e-6 * np.linalg.norm(contact) + 1e-9
        assert contact @ normal == pytest.approx(displacement @ normal)
        # The pusher leads on the side of that edge.
        assert cross(contact, displacement) * sines[int(abs(sines[0]) < abs(sines[1]))] >= -1e-6
    else:
        assert sines[0] <= 1e-9 <= 2e-9 + sines[1]


def test_both_ways_of_touching_occur():
    normal = (-1.0, 0.0)
    assert one_push(touch((40.0, 5.0), normal, (-1.0, 0.0))).sticks
    assert not one_push(touch((40.0, 5.0), normal, (-1.0, 3.0))).sticks


@given(touches(), st.floats(-180, 180))
def test_rotated_pushes_rotate(given, angle):
    other = given._replace(
        offset=jnp.asarray(turned(given.offset, angle)),
        normal=jnp.asarray(turned(given.normal, angle)),
        displacement=jnp.asarray(turned(given.displacement, angle)),
    )
    here, there = one_push(given), one_push(other)
    expected = [*turned(here.motion[:2], angle), float(here.motion[2])]
    assert np.asarray(there.motion) == pytest.approx(np.asarray(expected), abs=1e-6)


@given(touches())
def test_mirrored_pushes_mirror(given):
    mirror = jnp.asarray([1.0, -1.0])
    other = given._replace(
        offset=given.offset * mirror,
        normal=given.normal * mirror,
        displacement=given.displacement * mirror,
    )
    expected = one_push(given).motion * jnp.asarray([1.0, -1.0, -1.0])
    assert np.asarray(one_push(other).motion) == pytest.approx(np.asarray(expected), abs=1e-9)


def test_derivatives_are_those_derived_by_hand():
    offset, contact, length = np.asarray([31.0, -17.0]), np.asarray([3.0, 5.0]), 13.0

    def motion(contact, offset, length):
        return motion_of_contact(offset, contact, 100 * length)

    found = jax.jit(jax.jacfwd(motion, (0, 1, 2)))(
        jnp.asarray(contact), jnp.asarray(offset), jnp.asarray(length)
    )
    (x, y), (u, v), c = offset, contact, 100 * length
    d = c + x * x + y * y
    dx, dy, spin = (
        ((c + x * x) * u + x * y * v) / d,
        ((c + y * y) * v + x * y * u) / d,
        ((x * v - y * u) / d),
    )
    degrees = 180 / np.pi
    by_contact = [
        [(c + x * x) / d, x * y / d],
        [x * y / d, (c + y * y) / d],
        [-y / d * degrees, x / d * degrees],
    ]
    by_offset = [
        [(2 * x * u + y * v - 2 * x * dx) / d, (x * v - 2 * y * dx) / d],
        [(y * u - 2 * x * dy) / d, (2 * y * v + x * u - 2 * y * dy) / d],
        [(v - 2 * x * spin) / d * degrees, (-u - 2 * y * spin) / d * degrees],
    ]
    by_l = [100 * (u - dx) / d, 100 * (v - dy) / d, -100 * spin / d * degrees]
    for derivative, expected in zip(found, (by_contact, by_offset, by_l), strict=True):
        assert np.asarray(derivative) == pytest.approx(np.asarray(expected), rel=1e-9)


def test_the_jacobian_of_the_process_has_the_stated_structure():
    given = touch((40.0, 5.0), (-1.0, 0.1), (-8.0, 1.0))
    state, displacement = state_of(given), given.displacement
    jacobian = np.asarray(slopes(state, displacement)[0])
    assert jacobian[3:, :] == pytest.approx(np.eye(10)[3:, :])
    assert jacobian[:2, :2] + jacobian[:2, 5:7] == pytest.approx(np.eye(2))  # a shift shifts
    assert jacobian[:3, 2] == pytest.approx([0, 0, 1])
    assert np.abs(jacobian[:3, 9]).max() == 0
    assert np.abs(jacobian[:3, 3]).min() > 1e-3


CORNERS = {
    "no push": ((40.0, 5.0), (-1.0, 0.0), (0.0, 0.0)),
    "no normal": ((40.0, 5.0), (0.0, 0.0), (-5.0, 0.0)),
    "neither": ((40.0, 5.0), (0.0, 0.0), (0.0, 0.0)),
    "at the centre": ((0.0, 0.0), (-1.0, 0.0), (-5.0, 1.0)),
    "along the surface": ((40.0, 5.0), (-1.0, 0.0), (0.0, 5.0)),
    "outward normal": ((40.0, 5.0), (1.0, 0.0), (-5.0, 0.0)),
    "away": ((40.0, 5.0), (-1.0, 0.0), (5.0, 0.0)),
}


@pytest.mark.parametrize("alpha", [0.0, 14.0, 90.0])
@pytest.mark.parametrize("c", [0.0, 35.0])
@pytest.mark.parametrize("name", CORNERS)
def test_derivatives_are_finite_in_every_corner(name, c, alpha):
    given = touch(*CORNERS[name], c=c, alpha=alpha)
    for s in (0.0, 0.5, 1.0):
        state = state_of(given, s)
        assert np.isfinite(step(state, given.displacement)).all()
        for derivative in slopes(state, given.displacement):
            assert np.isfinite(derivative).all()
            assert np.abs(derivative).max() < 1e4


def test_a_push_on_the_edge_of_the_cone_is_finite_and_continuous():
    given = touch((40.0, 25.0), (-1.0, 0.0), (-1.0, 0.0))
    edge = motion_cone(given)[0]
    motions = [
        one_push(given._replace(displacement=jnp.asarray(turned(edge / 100, angle)))).motion
        for angle in (-1e-5, 0.0, 1e-5)
    ]
    assert np.asarray(motions[0]) == pytest.approx(np.asarray(motions[2]), rel=1e-4)
    derivatives = slopes(state_of(given), edge / 100)
    assert all(np.isfinite(derivative).all() for derivative in derivatives)


def test_a_pusher_that_leaves_ends_the_contact_and_moves_nothing():
    given = touch((40.0, 5.0), (-1.0, 0.0), (5.0, 1.0))
    before = state_of(given)
    after = step(before, given.displacement)
    assert np.asarray(after[:5]) == pytest.approx(np.asarray(before[:5]))
    assert np.asarray(after[5:7] - before[5:7]) == pytest.approx([5.0, 1.0])
    assert np.abs(after[7:]).max() == 0


def test_an_object_that_is_not_touched_stays_and_the_contact_follows_the_pusher():
    given = touch((60.0, 5.0), (-1.0, 0.0), (-5.0, 1.0))
    before = state_of(given, s=0.49)
    after = step(before, given.displacement)
    expected = before + jnp.zeros(10).at[5:7].set(given.displacement)
    assert np.asarray(after) == pytest.approx(np.asarray(expected))


def test_the_state_moves_as_the_push_says():
    given = touch((40.0, 5.0), (-1.0, 0.2), (-5.0, 1.0))
    before = state_of(given)
    after, motion = step(before, given.displacement), np.asarray(one_push(given).motion)
    assert np.asarray(after - before)[:3] == pytest.approx(motion)
    assert len(STATE) == before.size

    def doubled(given, result):
        return result.motion

    twice = process(before, given.displacement, doubled) - before
    assert np.asarray(twice)[:3] == pytest.approx(2 * motion)


def test_the_half_angle_is_that_of_the_paper():
    assert float(half_angle_of(jnp.asarray(0.25))) == pytest.approx(14.036, abs=1e-3)
