"""Angles and bounds. A program that subtracts angles as numbers fails most of these."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filtrax import Euclidean, Space
from strategies import PERIODS, angles, arrays, periods, space_arguments, vectors_in


def circle(period):
    return Space(("a",), angles={"a": period})


@given(st.data())
def test_wrap_is_idempotent_to_the_last_bit_and_keeps_its_range(data):
    # Rejects rounding that leaves a wrapped angle on, or just past, the end of the interval.
    space = Space(**data.draw(space_arguments()))
    vector = data.draw(vectors_in(space))
    for dtype in (np.float64, np.float32):
        once = space.wrap(jnp.asarray(vector, dtype))
        assert once.dtype == dtype
        np.testing.assert_array_equal(space.wrap(once), once)
        for value, period, bound in zip(np.asarray(once), space.periods, space.bounds, strict=True):
            if period is not None:
                half = dtype(period) / 2
                assert -half <= value < half
            if bound is not None:
                assert dtype(bound[0]) <= value <= dtype(bound[1])


@given(st.data())
def test_wrap_turns_angles_by_whole_periods_and_leaves_the_rest_alone(data):
    period = data.draw(periods())
    vector = np.asarray([data.draw(angles(period)), data.draw(st.floats(-1e6, 1e6))])
    wrapped = Space(("a", "b"), angles={"a": period}).wrap(jnp.asarray(vector))
    turns = (vector[0] - float(wrapped[0])) / period
    assert abs(turns - round(turns)) < 1e-11
    assert wrapped[1] == vector[1]


def test_an_angle_inside_the_interval_is_not_touched_in_any_bit():
    for period in PERIODS:
        values = np.linspace(-period / 2, np.nextafter(period / 2, 0), 41)[:, None]
        np.testing.assert_array_equal(jax.vmap(circle(period).wrap)(jnp.asarray(values)), values)


def test_both_ends_of_the_interval_are_the_lower_one():
    for period in PERIODS:
        for dtype in (jnp.float32, jnp.float64):
            half = jnp.asarray([period], dtype) / 2
            np.testing.assert_array_equal(circle(period).wrap(half), -half)
            np.testing.assert_array_equal(circle(period).wrap(-half), -half)


@given(st.data())
def test_difference_is_antisymmetric_up_to_the_branch_point(data):
    period = data.draw(periods())
    a, b = (jnp.asarray([data.draw(angles(period))]) for _ in range(2))
    there, back = (float(circle(period).difference(*pair)[0]) / period for pair in ((a, b), (b, a)))
    assert -0.5 <= there < 0.5
    if abs(abs(there) - 0.5) > 1e-9:
        assert abs(there + back) < 1e-11


@given(st.data())
def test_difference_returns_a_small_step_even_across_the_seam(data):
    # Rejects plain subtraction, and wrapping with the wrong period.
    period = data.draw(periods())
    start = data.draw(st.sampled_from([0.0, 0.49, 0.4999, -0.5, 0.25])) * period
    step = data.draw(st.floats(-0.49, 0.49)) * period
    space = circle(period)
    end = space.wrap(jnp.asarray([start + step]))
    np.testing.assert_allclose(
        space.difference(end, jnp.asarray([start])), [step], atol=1e-12 * period
    )


def test_difference_of_other_components_is_plain_subtraction():
    space = Space(("x", "a"), angles={"a": 360.0}, bounds={"x": (0.0, 1.0)})
    difference = space.difference(jnp.asarray([-500.0, 170.0]), jnp.asarray([500.0, -170.0]))
    np.testing.assert_allclose(difference, [-1000.0, -20.0])


@pytest.mark.parametrize("period", [2 * math.pi, 360.0])
def test_mean_with_a_negative_centre_weight_is_linear_and_turns_with_the_points(period):
    # The angle of the weighted mean unit vector is neither; that is checked, too.
    unit = period / 360.0
    offsets = unit * np.asarray([0.0, 70.0, 20.0, -40.0, -90.0])
    weights = np.asarray([-3.0, 1.5, 1.0, 0.7, 0.8])
    space, shifts = circle(period), unit * np.linspace(-400.0, 400.0, 81)

    @jax.jit
    @jax.vmap
    def error(shift):
        points = jax.vmap(space.wrap)((jnp.asarray(offsets) + shift)[:, None])
        mean = space.mean(points, jnp.asarray(weights), reference=points[0])
        return space.difference(mean, (weights @ offsets + shift)[None])

    errors = error(jnp.asarray(shifts))
    np.testing.assert_allclose(errors, 0, atol=1e-12 * period)

    phases = 2 * math.pi * offsets / period
    vector_mean = np.arctan2(weights @ np.sin(phases), weights @ np.cos(phases))
    assert abs(vector_mean * period / (2 * math.pi) - weights @ offsets) > 5 * unit


@pytest.mark.parametrize(
    ("points", "weights", "expected"),
    [
        ([179.0, -179.0], [0.5, 0.5], -180.0),
        ([170.0, -170.0], [0.75, 0.25], 175.0),
        ([150.0, 170.0, -160.0], [0.2, 0.5, 0.3], 175.0),
        ([-10.0, 30.0], [0.5, 0.5], 10.0),
    ],
)
def test_mean_of_particles_is_circular(points, weights, expected):
    # A linear mean is off by up to 180 degrees; the angle of the mean vector by a few tenths.
    space = circle(360.0)
    mean = space.mean(jnp.asarray(points)[:, None], jnp.asarray(weights))
    np.testing.assert_allclose(space.difference(mean, jnp.asarray([expected])), 0, atol=1e-10)


@jax.jit
def error_of_the_mean(points, weights, expected):
    space = circle(24.0)
    mean = space.mean(jax.vmap(space.wrap)(points), weights)
    return space.difference(mean, expected)


@given(arrays(5, -0.2, 0.2), arrays(5, 0.1, 1.0), st.floats(-3, 3))
def test_mean_of_particles_turns_with_them(offsets, weights, shift):
    weights = weights / weights.sum()
    points, expected = 24.0 * (offsets + shift), 24.0 * (weights @ offsets + shift)
    error = error_of_the_mean(points[:, None], weights, np.asarray([expected]))
    np.testing.assert_allclose(error, 0, atol=1e-11)


def test_mean_has_the_weights_as_its_gradient_also_across_the_seam_and_where_vectors_cancel():
    space, weights = circle(360.0), jnp.asarray([0.5, 0.5, 0.0])
    gradient_at = jax.jit(jax.grad(lambda points: space.mean(points, weights)[0]))
    for points in ([[170.0], [-150.0], [-175.0]], [[0.0], [180.0 - 1e-9], [90.0]]):
        gradient = gradient_at(jnp.asarray(points))
        np.testing.assert_allclose(gradient[:, 0], weights)


def test_mean_of_other_components_is_linear_and_bounded():
    space = Space(("x", "y"), bounds={"y": (0.0, 1.0)})
    points = jnp.asarray([[1e3, 0.5], [-2e3, 0.9]])
    np.testing.assert_allclose(space.mean(points, jnp.asarray([2.0, -1.0])), [4e3, 0.1])
    np.testing.assert_allclose(space.mean(points, jnp.asarray([-1.0, 2.0])), [-5e3, 1.0])


def test_bounds_clip_and_leave_the_inside_alone():
    space = Space(("x", "y"), bounds={"x": (-1.0, 2.0)})
    for x, expected in ((-5.0, -1.0), (0.3, 0.3), (7.0, 2.0)):
        np.testing.assert_array_equal(space.wrap(jnp.asarray([x, 9.0])), [expected, 9.0])


def test_functions_are_linear_beyond_bounds_and_themselves_inside():
    """Rejects the value at the bound, and that of the function outside."""
    space = Space(("x", "y"), bounds={"x": (1.0, 2.0)})
    function = lambda v: jnp.stack([v[0] ** 2 * v[1], v[1] ** 3])  # noqa: E731
    np.testing.assert_allclose(space.continued(function, jnp.asarray([1.5, 2.0])), [4.5, 8.0])
    np.testing.assert_allclose(space.continued(function, jnp.asarray([3.0, 2.0])), [16.0, 8.0])
    jacobian = jax.jacobian(lambda v: space.continued(function, v))(jnp.asarray([3.0, 2.0]))
    np.testing.assert_allclose(jacobian[0, 0], 8.0)
    free = Space(("x", "y"))
    np.testing.assert_allclose(free.continued(function, jnp.asarray([3.0, 2.0])), [18.0, 8.0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"angles": ("headin",)},
        {"angles": {"headin": 360.0}},
        {"bounds": {"headin": (0.0, 1.0)}},
    ],
)
def test_an_unknown_name_raises_and_suggests_the_closest(arguments):
    argument = next(iter(arguments))
    with pytest.raises(ValueError, match=rf"`{argument}`.*headin.*Did you mean 'heading'\?"):
        Space(("x", "y", "heading"), **arguments)


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        (("x", "x"), {}, "`names` must be .* distinct"),
        ((), {}, "`names` must be"),
        ("xy", {}, "`names` must be a sequence"),
        (("x", "y"), {"angles": "x"}, "`angles` must be a sequence"),
        (("x", "y"), {"angles": {"x": 0.0}}, "period of 'x' must be positive"),
        (("x", "y"), {"bounds": {"y": (1.0, 1.0)}}, "bounds of 'y' must be ordered"),
    ],
)
def test_a_space_without_meaning_raises(names, arguments, message):
    with pytest.raises(ValueError, match=message):
        Space(names, **arguments)


def test_index_finds_components_in_the_order_asked_for_and_suggests_the_closest():
    space = Space(("x", "y", "heading"))
    assert space.index("heading", "x") == (2, 0)
    with pytest.raises(ValueError, match=r"Did you mean 'heading'\?"):
        space.index("headin")


def test_a_period_that_differs_between_sequences_can_be_mapped_over():
    # Rejects periods that must be Python numbers when the program is traced.
    template = Space(("x", "a"), angles=("a",))

    def results(space, a, b):
        points = jnp.stack([a, b])
        mean = space.mean(points, jnp.asarray([0.25, 0.75]))
        return space.wrap(a), space.difference(a, b), mean

    def bound(period, a, b):
        return results(eqx.tree_at(lambda space: space.periods[1], template, period), a, b)

    given = jnp.asarray([2 * math.pi, 360.0, 3.0])
    a, b = jnp.asarray([[5.0, 1.4], [5.0, 190.0], [5.0, -4.4]]), jnp.asarray([[1.0, -1.3]] * 3)
    together = jax.jit(jax.vmap(bound))(given, a, b)
    for i, period in enumerate(given.tolist()):
        alone = results(Space(("x", "a"), angles={"a": period}), a[i], b[i])
        for ours, expected in zip(together, alone, strict=True):
            np.testing.assert_allclose(ours[i], expected, atol=1e-12)


def test_an_angle_whose_period_is_zero_is_zero_and_so_is_its_gradient():
    # Rejects an angle without meaning that is not zero, and a gradient of it.
    names, angles = ("x", "a", "b"), {"a": 360.0, "b": 24.0}
    space = Space(names, angles=angles)

    def bound(turn):
        return eqx.tree_at(lambda space: space.periods[1], space, turn)

    def results(space, points):
        weights = jnp.asarray([0.25, 0.75])
        mean = space.mean(points, weights)
        return space.wrap(points[0]), space.difference(points[0], points[1]), mean

    points = jnp.asarray([[500.0, 70.0, 13.0], [1.0, -50.0, -11.0]])
    turns = jnp.asarray([90.0, 0.0])
    together = jax.jit(jax.vmap(lambda turn: results(bound(turn), points)))(turns)
    alone = results(Space(names, angles=angles | {"a": 90.0}), points)
    for ours, expected in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours[0], expected, atol=1e-12)
        np.testing.assert_allclose(ours[1], expected.at[1].set(0.0), atol=1e-12)
    circle = bound(jnp.asarray(0.0))
    gradient = jax.grad(lambda points: sum(part.sum() for part in results(circle, points)))(points)
    np.testing.assert_array_equal(gradient[:, 1], 0.0)
    assert np.isfinite(gradient).all()


@given(arrays((2, 3), -100.0, 100.0), arrays((4, 3)), arrays(4, 0.1, 1.0))
def test_a_euclidean_space_adds_and_subtracts_numbers_of_any_size(vectors, points, weights):
    space, (a, b) = Euclidean(), jnp.asarray(vectors)
    weights = weights / weights.sum()
    np.testing.assert_array_equal(space.difference(a, b), a - b)
    np.testing.assert_array_equal(space.add(a, b), a + b)
    for point in (space.wrap(a), space.inside(a), space.continued(lambda x: x, a)):
        np.testing.assert_array_equal(point, a)
    for reference in (None, a):
        mean = space.mean(jnp.asarray(points), jnp.asarray(weights), reference)
        np.testing.assert_allclose(mean, weights @ points, atol=1e-12)
    assert space.size is space.tangent_size is None
    assert space.names_of(3) == ("0", "1", "2")


@given(st.data())
def test_a_difference_is_what_has_to_be_added(data):
    # Rejects a sum that leaves angles outside of their interval, and one that is clipped.
    space = Space(**data.draw(space_arguments()))
    a, b = (jnp.asarray(data.draw(vectors_in(space))) for _ in range(2))
    moved = space.add(a, space.difference(b, a))
    np.testing.assert_allclose(space.difference(moved, b), 0, atol=1e-9)
    for value, period in zip(np.asarray(moved), space.periods, strict=True):
        assert period is None or -period / 2 <= value < period / 2


def test_the_size_of_a_space_is_that_of_its_names():
    space = Space(("x", "y", "heading"), angles=("heading",))
    assert space.size == space.tangent_size == 3
    assert space.names_of(3) == space.names
    with pytest.raises(ValueError, match="must have 3 components, got 2"):
        space.names_of(2)
