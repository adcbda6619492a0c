import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.recordings.outlines import read_outlines
from filtrax.lab.tasks.pushing.shapes import (
    HALF_WIDTH,
    NAMES,
    NUM_POINTS,
    SPACING,
    SYMMETRY,
    all_shapes,
    data_set_outline,
    distance_and_normal,
    from_data_set,
    normal,
    rotated,
    shape,
    signed_distance,
    to_data_set,
)


@jax.jit
def look(shape, points):
    return jax.vmap(distance_and_normal, (None, 0))(shape, points)


def area_and_centroid(outline):
    after = np.roll(outline, -1, 0)
    crosses = outline[:, 0] * after[:, 1] - outline[:, 1] * after[:, 0]
    return crosses.sum() / 2, crosses @ (outline + after) / (3 * crosses.sum())


@pytest.mark.parametrize("name", NAMES)
def test_an_outline_is_counter_clockwise_about_its_centroid(name):
    outline = np.asarray(shape(name).outline)
    area, centroid = area_and_centroid(outline)
    assert outline.shape == (NUM_POINTS, 2)
    assert area > 5000
    assert np.abs(centroid).max() < 1e-9


def test_stated_sizes():
    extents = {name: np.ptp(data_set_outline(name), axis=0) for name in NAMES}
    assert extents["rect2"] == pytest.approx([89.91, 112.58])
    assert extents["tri3"] == pytest.approx([176.5, 125.61])
    assert extents["ellip3"] == pytest.approx([105.0, 157.0])
    assert extents["hex"] == pytest.approx([121.0, 60.5 * 3**0.5])
    assert extents["butter"] == pytest.approx([95.5, 156.0], abs=0.3)
    assert data_set_outline("tri1").max(0) == pytest.approx([45.0, 45.0])


def test_objects_look_alike_after_their_period():
    turn = jax.jit(jax.vmap(rotated, (0, None)))
    for name in NAMES:
        here = shape(name)
        period = SYMMETRY[name] or 77.0
        assert np.abs(look(here, turn(here.outline, jnp.asarray(period)))[0]).max() < 0.4, name
        if SYMMETRY[name]:
            half = turn(here.outline, jnp.asarray(period / 2))
            assert np.abs(look(here, half)[0]).max() > 3, name


def test_distances_of_a_rectangle_are_exact():
    points = jnp.asarray([[0.0, 0.0], [44.0, 3.3], [60.0, 10.2], [48.0, 49.0], [-20.5, -51.25]])
    distances, normals = look(shape("rect1"), points)
    assert distances == pytest.approx([-45.0, -1.0, 15.0, 5.0, 6.25], abs=0.01)
    assert np.asarray(normals[1:]) == pytest.approx(
        np.asarray([[-1.0, 0.0], [-1.0, 0.0], [-0.6, -0.8], [0.0, 1.0]]), abs=0.01
    )


def test_distances_of_a_circle_are_exact_where_a_tip_may_be():
    angles = np.linspace(0, 6, 50)
    directions = np.stack([np.cos(angles), np.sin(angles)], -1)
    distances, normals = look(shape("ellip1"), jnp.asarray(57.25 * directions))
    assert np.asarray(distances) == pytest.approx(np.full(50, 4.75), abs=0.01)
    assert np.asarray(normals) == pytest.approx(-directions, abs=0.005)


def test_the_normal_is_the_slope_of_the_distance_and_all_is_finite_everywhere():
    here = shape("ellip1")
    places = jnp.asarray([[0.0, 0.0], [30.0, 40.0], [128.0, 0.0], [127.0, -127.0], [500.0, 3.0]])
    derivatives = jax.jit(jax.vmap(jax.jacrev(distance_and_normal, 1), (None, 0)))
    slopes, bends = derivatives(here, places)
    distances, normals = look(here, places)
    assert np.isfinite(slopes).all()
    assert np.isfinite(bends).all()
    assert np.asarray(slopes[1]) == pytest.approx(-np.asarray(normals[1]), abs=0.01)
    assert distances[4] == pytest.approx(447.5, abs=1.0)
    assert np.abs(normals[0]).max() == 0


def test_distance_and_normal_are_what_they_are_alone():
    here, place = shape("tri1"), jnp.asarray([50.0, 3.0])
    distances, normals = look(here, place[None])
    assert jax.jit(signed_distance)(here, place) == pytest.approx(float(distances[0]))
    assert np.asarray(jax.jit(normal)(here, place)) == pytest.approx(np.asarray(normals[0]))


def test_the_map_is_indexed_by_x_and_then_y():
    here = shape("rect3")  # 135 mm along x, 90 mm along y
    middle = round(HALF_WIDTH / SPACING)
    assert here.distance[middle + 60, middle] < 0 < here.distance[middle, middle + 60]


def test_even_pressure_lengths_have_their_closed_forms():
    assert float(shape("ellip1").even_pressure_length) == pytest.approx(2 / 3 * 52.5, rel=1e-3)
    square = (2**0.5 + np.log(1 + 2**0.5)) / 6 * 90  # mean distance from the middle of a square
    assert float(shape("rect1").even_pressure_length) == pytest.approx(square, rel=1e-6)


def test_triangles_keep_the_origin_of_the_data_set():
    here, pose = shape("tri3"), jnp.asarray([300.0, -50.0, 90.0])
    moved = from_data_set(here, pose)
    # The centroid (-13.83, 3.13), turned by 90 degrees.
    assert np.asarray(moved) == pytest.approx([300 - 3.13, -50 - 13.8333, 90.0], abs=1e-3)
    assert np.asarray(to_data_set(here, moved)) == pytest.approx(np.asarray(pose))


def test_all_shapes_are_stacked_in_the_order_of_names():
    stacked = all_shapes()
    assert stacked.distance.shape[0] == len(NAMES)
    assert (stacked.outline[3] == shape("tri1").outline).all()
    assert stacked.period[NAMES.index("hex")] == 60


def test_an_unknown_object_is_refused_with_the_closest_name():
    with pytest.raises(ValueError, match="Did you mean 'butter'"):
        shape("buter")


def test_outlines_are_those_of_the_data_set(real_pushes):
    for name, outline in read_outlines(real_pushes / "shapes.json").items():
        here = shape(name)
        centred = jnp.asarray(outline) - here.centroid[None]
        distances = np.abs(look(here, centred)[0])
        assert distances.max() < (0.35 if name == "butter" else 0.3), name
        assert distances.mean() < (0.06 if name == "butter" else 0.03), name
