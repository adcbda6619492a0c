"""The camera against the numbers of the reference code, and against itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.camera import TABLE_HEIGHT, WALL, Camera

POINTS = np.asarray([[0.1, -0.2, 0.0133], [-0.3, 0.25, 0.1], [0.25, 0.0, 0.3], [0.017, 0.0, 0.0]])
SIZES = [(192, 256), (48, 64), (30, 100)]


def test_points_are_projected_as_the_reference_does():
    # Rejects swapped axes, signs and focal lengths.
    camera = Camera()
    for x, y, z in POINTS:
        right, down = y, 0.66896468 * x - 0.74329412 * z
        forward = -0.74329412 * x - 0.66896468 * z + 0.67268115
        expected = np.asarray([231.764480591 * right, 231.764488220 * down]) / forward
        point = jnp.asarray([x, y, z])
        np.testing.assert_allclose(
            camera.project(point), expected, atol=3e-5
        )  # digits of 0.67268115
        np.testing.assert_allclose(camera.depth(point), forward, rtol=1e-7)


@pytest.mark.parametrize("size", SIZES)
def test_a_point_is_where_it_was_projected_from(size):
    camera = Camera(*size)
    for point in jnp.asarray(POINTS):
        back = camera.unproject(camera.project(point), camera.depth(point))
        np.testing.assert_allclose(back, point, atol=1e-7)  # of seven digits in the constants


def test_images_of_other_sizes_show_the_same():
    # Rejects a focal length that is not scaled, or scaled by the other axis.
    for point in jnp.asarray(POINTS):
        full = np.asarray(Camera().project(point)) / (256, 192)
        for height, width in SIZES:
            small = np.asarray(Camera(height, width).project(point)) / (width, height)
            np.testing.assert_allclose(small, full)


def test_the_depth_image_of_the_empty_scene_is_the_references():
    # Printed there for every 16th row; the table begins below the 35 rows of the wall.
    printed = [0.835, 0.874, 0.918, 0.845, 0.769, 0.705, 0.651, 0.605, 0.565, 0.530, 0.499, 0.471]
    depth = Camera().plane_depth()
    assert depth.shape == (192, 256)
    np.testing.assert_allclose(depth[::16, 0], printed, atol=6e-4)
    np.testing.assert_array_equal(depth[:, :1], depth[:, -1:])
    assert np.argmax(depth[:, 0]) in (34, 35)


def test_pixels_of_the_depth_image_are_on_the_table_or_the_wall():
    # Rejects centres of pixels that are half a pixel off, and rows for columns.
    camera = Camera(24, 32)
    depth, rays = camera.plane_depth(), camera.rays()
    rows, columns = np.indices((24, 32)).reshape(2, -1)
    pixels = jnp.asarray(np.stack([columns + 0.5 - 16, rows + 0.5 - 12], -1))
    np.testing.assert_allclose(jax.jit(jax.vmap(camera.plane_depth_at))(pixels), depth.ravel())
    points = np.asarray(jax.jit(jax.vmap(camera.unproject))(pixels, depth.ravel()))
    along = np.stack(np.broadcast_arrays(*rays), -1).reshape(-1, 3)
    np.testing.assert_allclose(points, [0.5, 0.0, 0.45] + depth.reshape(-1, 1) * along)
    on_wall, on_table = (
        np.abs(points[:, 0] - WALL) < 1e-9,
        np.abs(points[:, 2] - TABLE_HEIGHT) < 1e-9,
    )
    assert (on_wall | on_table).all()
    assert on_wall.any()
    assert on_table.any()
    assert points[:, 0].min() > WALL - 1e-9
    assert points[:, 2].min() > TABLE_HEIGHT - 1e-9


def test_positions_on_the_table_are_read_back_with_the_derivative_of_the_table():
    # Rejects metres for millimetres, and a derivative at a fixed depth, which is half as large.
    camera = Camera(48, 64)
    position = jnp.asarray([60.0, -120.0])
    pixel = camera.project_position(position)
    np.testing.assert_allclose(camera.position_at(pixel), position, atol=1e-4)
    there = jax.jit(jax.jacobian(camera.project_position))(position)
    back = jax.jit(jax.jacobian(camera.position_at))(pixel)
    np.testing.assert_allclose(there @ back, np.eye(2), atol=1e-6)


def test_a_camera_without_pixels_is_refused():
    with pytest.raises(ValueError, match="`height` must be a whole number, at least 1: got 0"):
        Camera(0, 10)
