import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.training import data_sets
from filtrax.training.data_sets import stacked


def one_set(number, *kinds):
    return {str(i): kind(np.full((2, 3), number + i)) for i, kind in enumerate(kinds)}


@pytest.mark.parametrize("count", [1, 3])
def test_data_sets_are_stacked_on_the_device_whatever_their_arrays_are(count):
    sets = [one_set(10 * n, np.asarray, jnp.asarray) for n in range(count)]
    sets[0]["2"], mixed = jnp.ones(2), np.zeros(2)  # of one kind here, of another one there
    sets[1:] = [one | {"2": mixed} for one in sets[1:]]
    both = stacked(sets)
    assert all(isinstance(leaf, jax.Array) for leaf in both.values())
    for name, array in both.items():
        expected = np.stack([np.asarray(one[name]) for one in sets])
        np.testing.assert_array_equal(array, expected if count > 1 else expected[0])


def test_the_images_of_one_data_set_are_not_copied_before_they_are_moved(monkeypatch):
    moved = []
    monkeypatch.setattr(data_sets.jax, "device_put", lambda tree: moved.append(tree) or tree)
    images = one_set(0, np.asarray)
    stacked([images])
    assert len(moved) == 1
    assert np.shares_memory(moved[0]["0"], images["0"])
