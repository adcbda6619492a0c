"""Sketches of pushes: outlines, normals, and where the camera shows them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.camera import MILLIMETRES, Camera
from filtrax.lab.tasks.pushing.shapes import NAMES, data_set_outline
from filtrax.lab.tasks.pushing.sketches import NORMAL_LENGTH, TOP, few_points, projection, sketch
from filtrax.trajectory import Trajectory


def trajectory(name, orientation):
    """One of two steps, with what a sketch needs to know of it."""
    context = {
        "shape": jnp.asarray(NAMES.index(name)),
        "first": {"pose": jnp.asarray([7.0, 8.0, orientation]), "tip": jnp.zeros(2)},
    }
    return Trajectory(
        initial=jnp.zeros(10),
        initial_covariance=jnp.eye(10),
        readings={"tip": jnp.zeros((2, 2))},
        inputs=jnp.zeros((2, 2)),
        states=jnp.zeros((2, 10)),
        context=context,
    )


def area(outline):
    x, y = outline.T
    return 0.5 * (x * np.roll(y, -1) - y * np.roll(x, -1)).sum()


@pytest.mark.parametrize("name", NAMES)
def test_few_points_keep_the_corners(name):
    # Rejects cut corners: a triangle would lose several percent of its area.
    outline = data_set_outline(name)
    few = few_points(outline)
    assert len(few) < len(outline) / 4
    assert area(few) == pytest.approx(area(outline), rel=4e-3)
    if name.startswith(("rect", "tri", "hex")):
        assert area(few) == pytest.approx(area(outline), rel=1e-6)


def test_an_outline_turns_with_the_state_from_the_first_orientation():
    states = np.zeros((2, 10))
    states[:, :3] = [[0, 0, 0], [100, -50, 60]]
    drawn = sketch(trajectory("rect2", 30.0), states)
    # At 30 + 60 degrees the sides of 89.91 and 112.58 mm are exchanged.
    np.testing.assert_allclose(np.ptp(drawn.outlines[1], axis=0), [112.58, 89.91], atol=1e-3)
    middle = (drawn.outlines[1].min(0) + drawn.outlines[1].max(0)) / 2
    np.testing.assert_allclose(middle, [100, -50], atol=1e-3)
    # Turned by 30 degrees to the left: its corner at (+, +) is at this angle.
    corner = 0.5 * np.hypot(89.91, 112.58)
    angle = np.arctan2(112.58, 89.91) + np.pi / 6
    expected = corner * np.asarray([np.cos(angle), np.sin(angle)])
    assert np.linalg.norm(drawn.outlines[0] - expected, axis=1).min() < 1e-3


def test_an_arrow_is_the_normal_at_the_contact_point():
    states = np.zeros((2, 10))
    states[:, 5:9] = [[10, 20, 0, 0], [10, 20, 0.6, -0.8]]
    arrows = sketch(trajectory("ellip1", 0.0), states).arrows
    assert arrows.shape == (2, 1, 2, 2)
    np.testing.assert_array_equal(arrows[0, 0, 0], arrows[0, 0, 1])  # a point: no contact
    np.testing.assert_allclose(arrows[1, 0], [[10, 20], [10 + 18, 20 - 24]])
    assert NORMAL_LENGTH == 30


@pytest.mark.parametrize("size", [(48, 64), (192, 256)])
def test_the_projection_is_that_of_the_camera_from_the_upper_left_edge(size):
    camera = Camera(*size)
    places = np.random.default_rng(0).uniform(-150, 150, (20, 2))
    points = np.column_stack([places / MILLIMETRES, np.full(20, TOP)])
    exact = np.asarray(jax.vmap(camera.project)(jnp.asarray(points)))
    seen = np.column_stack([places, np.ones(20)]) @ projection(camera).T
    offset = np.asarray([size[1] / 2, size[0] / 2])
    np.testing.assert_allclose(seen[:, :2] / seen[:, 2:], exact + offset, atol=1e-6)
