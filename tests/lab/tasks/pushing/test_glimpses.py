"""Windows of images against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.glimpses import glimpse, value_at

HEIGHT, WIDTH = 7, 10
IMAGE = np.random.default_rng(0).uniform(size=(HEIGHT, WIDTH, 2))
FILL = -3.0

cut = jax.jit(glimpse, static_argnums=(2, 3))


def at(row, column):
    inside = 0 <= row < HEIGHT and 0 <= column < WIDTH
    return IMAGE[row, column] if inside else np.full(2, FILL)


def window(centre, size):
    """Each entry from the four pixels about it."""
    result = np.zeros((size, size, 2))
    for i, j in np.ndindex(size, size):
        # Places of pixels are counted from the middle of the image to their centres.
        row = centre[1] + HEIGHT / 2 + i - size / 2
        column = centre[0] + WIDTH / 2 + j - size / 2
        above, left = int(np.floor(row)), int(np.floor(column))
        down, right = row - above, column - left
        upper = (1 - right) * at(above, left) + right * at(above, left + 1)
        lower = (1 - right) * at(above + 1, left) + right * at(above + 1, left + 1)
        result[i, j] = (1 - down) * upper + down * lower
    return result


@pytest.mark.parametrize("size", [3, 4])
def test_windows_are_interpolated_between_pixels_and_filled_outside(size):
    # Rejects rows for columns, windows that are off by a half, and clamping at the border.
    for centre in ([0.0, 0.0], [0.5, 1.0], [-2.3, 1.7], [-4.6, -3.4], [4.9, 3.2], [6.1, 0.0]):
        np.testing.assert_allclose(
            cut(IMAGE, jnp.asarray(centre), size, FILL), window(centre, size), atol=1e-12
        )


def test_windows_far_outside_are_all_fill():
    # Rejects a window that sticks to the border, which a slice does on its own.
    for centre in ([40.0, 0.0], [0.0, -40.0], [-1e6, 1e6], [8.0, 0.0]):
        np.testing.assert_array_equal(cut(IMAGE, jnp.asarray(centre), 4, FILL), FILL)


def test_a_window_about_whole_pixels_is_a_copy():
    whole = cut(IMAGE, jnp.asarray([1.0, -0.5]), 4, FILL)
    np.testing.assert_array_equal(whole, IMAGE[1:5, 4:8])


def test_the_derivative_is_that_of_the_interpolation():
    weights = np.random.default_rng(1).normal(size=(4, 4, 2))
    value = lambda centre: (cut(IMAGE, centre, 4, FILL) * weights).sum()  # noqa: E731
    for centre in ([0.3, 0.4], [-4.7, 3.3]):
        place, step = jnp.asarray(centre), 1e-6
        numbers = [
            (value(place + step * e) - value(place - step * e)) / (2 * step) for e in jnp.eye(2)
        ]
        np.testing.assert_allclose(jax.grad(value)(place), numbers, atol=1e-7)
    # On the seam between pixels, and outside, it is finite as well.
    for centre in ([0.5, 0.5], [99.0, 0.0]):
        assert np.isfinite(jax.grad(value)(jnp.asarray(centre))).all()


def test_values_are_those_of_pixels_and_between_them():
    read = jax.jit(value_at)
    for i, j in ((0, 0), (3, 8), (6, 9)):
        pixel = jnp.asarray([j + 0.5 - WIDTH / 2, i + 0.5 - HEIGHT / 2])
        np.testing.assert_allclose(read(IMAGE, pixel), IMAGE[i, j], atol=1e-15)
    between = read(IMAGE, jnp.asarray([0.0, 0.0]))
    np.testing.assert_allclose(between, IMAGE[3, 4:6].mean(0))
    beyond = read(IMAGE, jnp.asarray([100.0, -100.0]))
    np.testing.assert_allclose(beyond, IMAGE[0, -1])
