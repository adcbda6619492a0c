"""Images of discs against a raster that is drawn pixel by pixel in plain Python."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.disc import images

COLORS = {1: (0, 0, 255), 2: (0, 255, 0), 3: (0, 255, 255), 4: (255, 0, 0)}
COLORS |= {5: (255, 0, 255), 6: (255, 255, 0), 7: (255, 255, 255)}


def raster(centres, radii, colors):
    canvas = np.zeros((120, 120, 3), np.uint8)
    for (column, row), radius, color in zip(centres, radii, colors, strict=True):
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                inside = 0 <= column + dx < 120 and 0 <= row + dy < 120
                if dx**2 + dy**2 <= radius**2 and inside:
                    canvas[row + dy, column + dx] = COLORS[color]
    return canvas


def random_scenes(num_scenes=6, num_discs=12):
    """Crowded scenes with discs inside, partly outside and wholly outside of the image."""
    rng = np.random.default_rng(0)
    centres = rng.integers(-15, 136, (num_scenes, num_discs, 2))
    centres[:, 0] = rng.integers(-4, 125, (num_scenes, 2))
    centres[:, 1:5] = centres[:, :1] + rng.integers(-9, 10, (num_scenes, 4, 2))
    centres[0, 5:8] = [[-900, 50], [60, 1200], [-1200, -1200]]
    radii = rng.integers(3, 10, (num_scenes, num_discs))
    colors = rng.choice([1, 2, 3, 5, 6, 7], (num_scenes, num_discs))
    radii[:, 0], colors[:, 0] = 7, 4
    return centres.astype(np.int16), radii.astype(np.int8), colors.astype(np.int8)


SCENES = random_scenes()
RASTERS = [raster(*(part.tolist() for part in scene)) for scene in zip(*SCENES, strict=True)]


def draw(scenes=SCENES, **options):
    return np.asarray(jax.jit(jax.vmap(lambda *scene: images.render(*scene, **options)))(*scenes))


def test_images_are_those_of_the_raster():
    # Rejects rows for columns, swapped colours, another rule for the rim, another draw order.
    drawn = draw()
    np.testing.assert_array_equal(drawn * 255, RASTERS)
    assert drawn.dtype == np.float64
    assert draw(dtype=jnp.float32).dtype == np.float32


def test_a_lone_disc_has_the_pixels_of_the_paper():
    # Rejects a rim that is left out or smoothed.
    radii = np.arange(3, 10)[:, None]
    alone = (np.full((7, 1, 2), 60), radii, np.full((7, 1), 4))
    assert jax.vmap(images.visible_pixels)(*alone).tolist() == [29, 49, 81, 113, 149, 197, 253]


def test_distractors_are_in_front():
    # Rejects the target drawn last, and first distractors in front of later ones.
    centres, radii = jnp.full((3, 2), 60), jnp.asarray([7, 5, 3])
    image = np.asarray(images.render(centres, radii, jnp.asarray([4, 7, 1])))
    middle = image[60]
    np.testing.assert_array_equal(middle[60], [0, 0, 1])
    np.testing.assert_array_equal(middle[[56, 64]], np.ones((2, 3)))
    np.testing.assert_array_equal(middle[[54, 66]], [[1, 0, 0]] * 2)


def test_what_is_visible_is_what_is_red():
    # Rejects counts of pixels outside of the image, and of covered ones.
    centres, radii, colors = (jnp.asarray(part) for part in SCENES)
    counted = images.count_visible(centres[:, None], radii, colors)
    red = (np.stack(RASTERS) == (255, 0, 0)).all(-1).sum((1, 2))
    np.testing.assert_array_equal(counted[:, 0], red)
    assert (red > 0).sum() > 3  # the scenes have something to count
    assert red.max() < 149  # and something hidden


def test_the_centre_is_truncated_towards_zero():
    # Rejects floor and rounding, and small integers that overflow.
    places = {-60.0: 0, -60.9: 0, -61.5: -1, -0.001: 59, 59.99: 119, 60.0: 120, -75.2: -15}
    for position, pixel in places.items():
        state = jnp.asarray([position, -position, 7.0, 7.0])
        assert images.pixel_centre(state).tolist() == [pixel, int(60 - position)]
    for distance in (1e6, -1e6):
        column, row = images.pixel_centre(jnp.asarray([distance, 0.0, 0.0, 0.0])).tolist()
        assert abs(column) > 1000
        assert (column > 0, row) == (distance > 0, 60)


@pytest.mark.parametrize("size", [16, 50, 119])
def test_other_sizes_show_pixels_of_the_canvas(size):
    # Rejects interpolation, an offset by half a pixel, and discs drawn anew at another size.
    pixels = [int((Fraction(k) + Fraction(1, 2)) * 120 / size) for k in range(size)]
    expected = [canvas[np.ix_(pixels, pixels)] for canvas in RASTERS]
    np.testing.assert_array_equal(draw(size=size) * 255, expected)


def test_frames_are_the_images_of_a_sequence():
    # Rejects frames in another range or order.
    centres, radii, colors = (jnp.asarray(part) for part in SCENES)
    frames = images.draw_frames(centres[0, None], radii[0], colors[0], 120)
    assert frames.dtype == jnp.uint8
    np.testing.assert_array_equal(frames[0], RASTERS[0])
