"""Features: what a network sees of a vector, and the units in which it answers."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filtrax import Euclidean, Features, Space
from strategies import arrays

SPACE = Space(("x", "y", "heading"), angles={"heading": 360.0})


@given(arrays(3, -100.0, 100.0), st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3))
def test_scale_divides_for_networks_and_is_undone_after_them(vector, scale):
    named = Features(SPACE, scale=dict(zip(SPACE.names, scale, strict=True)))
    for features in (named, Features(scale=scale)):
        assert features.scale == tuple(scale)
        scaled = features.scaled(jnp.asarray(vector))
        np.testing.assert_allclose(scaled * np.asarray(scale), vector, rtol=1e-14)
        np.testing.assert_allclose(features.unscaled(scaled), vector, rtol=1e-14)
        np.testing.assert_array_equal(features(jnp.asarray(vector)), scaled)


def test_one_scale_is_for_all_components_and_unnamed_ones_are_one():
    space = Space(("x", "y"))
    assert Features(space, scale=60.0).scale == (60.0, 60.0)
    assert Features(space, scale={"y": 3.0}).scale == (1.0, 3.0)
    np.testing.assert_array_equal(
        Features(scale=60.0)(jnp.asarray([60.0, 120.0, 30.0])), [1, 2, 0.5]
    )


def test_networks_see_directions_as_cosine_and_sine_and_nothing_that_is_unseen():
    # Rejects radians of another period, an order that changes, and a scale that is forgotten.
    space = Space(("x", "heading", "speed", "phase"), angles={"heading": 360.0, "phase": 4.0})
    features = Features(
        space, scale={"speed": 10.0, "x": 3.0}, unseen=("x",), directions=("phase", "heading")
    )
    vector, inputs = jnp.asarray([7.0, 30.0, 5.0, 1.0]), jnp.asarray([[2.0]])
    expected = [0.5, 0.0, np.cos(np.pi / 6), 1.0, 0.5, 2.0]
    np.testing.assert_allclose(features(vector, inputs), expected, atol=1e-15)
    assert features.size == 5
    space = Space(space.names, angles=("heading",))
    hidden = Features(space, unseen=("heading",), directions=("heading",))
    np.testing.assert_allclose(hidden(vector), [7.0, 5.0, 1.0])
    assert hidden.size == 3
    plain = Features(Space(space.names), scale=2.0)
    np.testing.assert_allclose(plain(vector), vector / 2)
    assert plain.size == 4


class Turning(Space):
    """A space whose angle has a period of its own in each sequence."""

    def bind(self, context):
        return eqx.tree_at(lambda space: space.periods[1], self, context)


def test_directions_have_the_period_of_their_sequence():
    features = Features(Turning(("x", "a"), angles={"a": 360.0}), directions=("a",))
    vector = jnp.asarray([2.0, 15.0])
    np.testing.assert_allclose(features(vector)[2], np.sin(np.pi / 12))
    bound = features.bind(jnp.asarray(60.0))
    np.testing.assert_allclose(bound(vector)[2], 1.0)
    assert Features(SPACE).bind(jnp.asarray(60.0)).space is SPACE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": {"headin": 2.0}}, r"`scale`.*headin.*Did you mean 'heading'\?"),
        ({"unseen": ("headin",)}, r"`unseen`.*headin.*Did you mean 'heading'\?"),
        ({"unseen": ("z",)}, r"`unseen` must name components .* got \['z'\]"),
        ({"directions": ("x",)}, r"`directions` must name angles .* got \['x'\]"),
        ({"scale": {"x": -1.0}}, "`scale` must be positive"),
        ({"scale": 0.0}, "`scale` must be positive"),
    ],
)
def test_features_that_the_space_does_not_have_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Features(SPACE, **arguments)


def test_components_without_names_cannot_be_named():
    with pytest.raises(ValueError, match=r"`unseen` must name components .* got \['x'\]"):
        Features(Euclidean(), unseen=("x",))
    with pytest.raises(ValueError, match=r"`scale` must name components .* got \['x'\]"):
        Features(scale={"x": 1.0})
    with pytest.raises(ValueError, match="`Euclidean` space have no `size`"):
        _ = Features().size
