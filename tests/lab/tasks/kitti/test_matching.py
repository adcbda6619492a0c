"""The sensor network for few images: what its cells see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.kitti import KittiModel, KittiTask
from filtrax.lab.tasks.kitti.matching import (
    COLUMNS_MOVED,
    NEIGHBOURHOOD,
    ROWS_MOVED,
    MatchingNetwork,
    correlations,
    normalized,
    number_of_cells,
)
from filtrax.lab.tasks.kitti.model import build_model

SIZE = (10, 30)


def scene(seed=0):
    """A smooth random picture that is larger than an image."""
    noise = np.random.default_rng(seed).normal(size=(40, 60))
    for axis in (0, 1):
        noise = sum(np.roll(noise, i, axis) for i in (-1, 0, 1)) / 3
    return 120 + 60 * noise


def cut(picture, down=0, aside=0):
    return jnp.asarray(picture[14 + down : 24 + down, 14 + aside : 44 + aside])


def numpy_correlation(before, present, row, column, down, aside):
    """That of one cell, from its definition."""
    cell = [
        (i, j) for i in range(5 * row, 5 * row + 5) for j in range(15 * column, 15 * column + 15)
    ]
    height, width = before.shape
    here = np.asarray([present[i, j] for i, j in cell])
    there = np.asarray(
        [
            before[np.clip(i + down, 0, height - 1), np.clip(j + aside, 0, width - 1)]
            for i, j in cell
        ]
    )
    return (here * there).sum() / np.sqrt((here**2).sum() * (there**2).sum() + 1)


def test_correlations_are_those_of_their_definition():
    draw = np.random.default_rng(1)
    before, present = draw.normal(size=(2, *SIZE))
    cells, blocks = jax.jit(correlations)(jnp.asarray(before), jnp.asarray(present))
    assert cells.shape == (2, 2, len(ROWS_MOVED), len(COLUMNS_MOVED))
    assert blocks.shape == (1, 1, len(ROWS_MOVED), len(COLUMNS_MOVED))
    for row, column, i, j in [(0, 0, 0, 0), (1, 0, 7, 20), (0, 1, 5, 8), (1, 1, 3, 2)]:
        expected = numpy_correlation(before, present, row, column, ROWS_MOVED[i], COLUMNS_MOVED[j])
        np.testing.assert_allclose(cells[row, column, i, j], expected, rtol=1e-9)


def test_images_are_normalized_around_each_pixel():
    image = scene()
    found = np.asarray(normalized(jnp.asarray(image)))
    reach = NEIGHBOURHOOD // 2

    def mean(values):
        inner = np.lib.stride_tricks.sliding_window_view(
            np.pad(values, reach, mode="edge"), (NEIGHBOURHOOD, NEIGHBOURHOOD)
        )
        return inner.mean((-1, -2))

    detail = image - mean(image)
    np.testing.assert_allclose(found, detail / np.sqrt(mean(detail**2) + 9), atol=1e-9)


@pytest.fixture(scope="module")
def network():
    made = MatchingNetwork(SIZE, num_features=40, dropout=0.5, key=jax.random.key(0))
    return eqx.nn.inference_mode(made)


@eqx.filter_jit
def encode(network, before, present, key):
    return network(before, present, key=key)


@eqx.filter_jit
def look(network, before, present):
    found = correlations(normalized(before), normalized(present))
    return jnp.concatenate([network._look(part) for part in found])


def means(network, before, present):
    """Columns and rows by which the cells moved, at the largest sharpness."""
    return np.asarray(look(network, before, present))[:, 4:6] * 2


@pytest.mark.parametrize(("down", "aside"), [(0, 0), (-2, 3), (1, -5)])
def test_cells_know_where_they_were(network, down, aside):
    # The picture moved: what is at p now was at p + (down, aside) before. Rejects a wrong sign,
    # rows in place of columns, and an order of displacements that is another one.
    picture = scene()
    found = means(network, cut(picture), cut(picture, down, aside))
    np.testing.assert_allclose(found.mean(0), [aside, down], atol=0.8)


def test_brightness_and_contrast_do_not_matter(network, key):
    picture = scene()
    plain = (cut(picture)[..., None], cut(picture, -1, 2)[..., None])
    other = (plain[0], 1.3 * plain[1] - 20)
    features = [encode(network, *pair, key) for pair in (plain, other)]
    np.testing.assert_allclose(*features, atol=0.05 * np.abs(features[0]).max())
    moved = (plain[0], cut(picture, 1, -3)[..., None])
    assert np.abs(encode(network, *moved, key) - features[0]).max() > 0.5


def test_it_has_few_parameters_and_sees_gray_or_colour():
    task = KittiTask()
    gray, colour = (
        eqx.filter_eval_shape(
            lambda c=c: build_model(task, KittiModel(sensor="matching"), c, key=jax.random.key(0))
        ).sensor.encoder
        for c in (1, 3)
    )
    shapes = eqx.filter_eval_shape(
        lambda: MatchingNetwork((50, 150), num_features=128, dropout=0.3, key=jax.random.key(0))
    )
    assert number_of_cells((50, 150)) == (10, 10)
    assert shapes.dense.layers[0].weight.shape == (64, 125 * 9)
    expected = 64 * 1125 + 64 + 96 * 64 + 96 + 32 * 1125 + 32 + 3
    for encoder in (gray, colour):
        sizes = [leaf.size for leaf in jax.tree.leaves(encoder) if hasattr(leaf, "size")]
        assert sum(sizes) == expected


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match=r"at least 10 x 30 pixels .* got 10 x 29"):
        number_of_cells((10, 29))
