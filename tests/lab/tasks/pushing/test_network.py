"""The sensor's network: sizes by the reference's table, values by geometry."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing import scenes, shapes
from filtrax.lab.tasks.pushing.branches import PositionBranch
from filtrax.lab.tasks.pushing.camera import Camera
from filtrax.lab.tasks.pushing.encoders import PushingEncoder
from filtrax.lab.tasks.pushing.network import PushingNetwork
from filtrax.lab.tasks.pushing.render import Image, Look

SMALL = Camera(48, 64)
STEPS = 3


def network_shapes(camera, **glimpses):
    """A network without its numbers."""
    build = lambda: PushingNetwork(camera, key=jax.random.key(0), **glimpses)  # noqa: E731
    return eqx.filter_eval_shape(build)


def image_shapes(camera):
    size = (camera.height, camera.width)
    color = jnp.zeros((*size, 3))
    return eqx.filter_eval_shape(lambda: Image(color, color, jnp.zeros(size, jnp.uint8)))


def count(part):
    return sum(leaf.size for leaf in jax.tree.leaves(part) if hasattr(leaf, "size"))


def convolutions(function, *arguments):
    """The shapes of what all convolutions give on a CPU, each once, in their order."""
    shapes, rest = eqx.partition(arguments, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    program = jax.jit(lambda arrays: function(*eqx.combine(arrays, rest))).lower(shapes).as_text()
    found = re.findall(r"stablehlo.convolution.* -> tensor<([\dx]+)xf", program)
    return list(dict.fromkeys(tuple(map(int, shape.split("x"))) for shape in found))


def test_layers_have_the_sizes_of_the_references_table():
    camera = Camera()
    network, image = network_shapes(camera), image_shapes(camera)
    sizes = convolutions(lambda network, image: network.locate(image), network, image)
    down = [(186, 250, 8), (89, 121, 16), (43, 59, 32)]
    assert [shape[1:] for shape in sizes] == [*down, (23, 27, 16), (47, 63, 8), (98, 130, 1)]
    assert network.position.logits_size == (98, 130)
    tip, glimpse = (jax.ShapeDtypeStruct(shape, float) for shape in ((2,), (72, 72, 3)))
    everything = convolutions(lambda n, *rest: n(*rest), network, image, tip, tip, glimpse)
    rotation, contact = [(70, 70, 32), (32, 32, 64)], [(62, 62, 8), (28, 28, 16), (11, 11, 32)]
    assert [shape[1:] for shape in everything[6:]] == rotation + contact
    features = eqx.filter_eval_shape(network, image, tip, tip, glimpse)
    assert features.logits.shape == (98, 130)
    sizes = [leaf.shape for leaf in (features.rotation, features.contact, features.value)]
    assert sizes == [(64,), (128,), (8,)]


def test_branches_have_as_many_parameters_as_the_references():
    network = network_shapes(Camera())
    convolved = 2360 + 3216 + 4640 + (13**2 * 32 * 16 + 16) + 1160 + 73
    assert count(network.position) == convolved + 2 * (8 + 16 + 32 + 16 + 8) == 98_153
    dense = (14_400 * 128 + 128) + (128 * 64 + 64) + 65
    assert count(network.rotation) == 896 + 18_496 + 2 * 96 + dense == 1_871_233
    dense = (3876 * 128 + 128) + 2 * (128 * 64 + 64 + 130) + 3877
    assert count(network.contact) == 440 + 1168 + 4640 + 2 * 56 + dense == 523_265


def test_smaller_images_leave_something_everywhere():
    for size in ((48, 64), (96, 128), (60, 52)):
        camera = Camera(*size)
        network = network_shapes(camera)
        assert network.position.logits_size == (size[0] // 2 + 2, size[1] // 2 + 2)
        assert min(leaf.size for leaf in jax.tree.leaves(network) if hasattr(leaf, "size")) > 0
    assert network_shapes(SMALL).rotation_glimpse == 18
    assert network_shapes(SMALL).contact_glimpse == 16
    assert network_shapes(SMALL, contact_glimpse=24).contact_glimpse == 24


def test_what_is_too_small_is_refused():
    network_shapes(Camera(23, 23), rotation_glimpse=20, contact_glimpse=20)
    with pytest.raises(ValueError, match=r"at least 23 x 23 pixels .* got 22 x 40"):
        network_shapes(Camera(22, 40))
    with pytest.raises(ValueError, match=r"`rotation_glimpse` must be larger.* got 12 pixels"):
        network_shapes(SMALL, rotation_glimpse=12)
    with pytest.raises(ValueError, match=r"`contact_glimpse` must be larger.* got 6 pixels"):
        network_shapes(SMALL, contact_glimpse=6)


def test_the_pixel_of_the_object_is_the_mean_of_the_scores():
    # Rejects rows for columns, and coordinates that are half a pixel off.
    branch = eqx.filter_eval_shape(lambda: PositionBranch((48, 64)))
    logits = np.random.default_rng(0).normal(size=(26, 34))
    logits[5:8, 25:30] += 6.0
    weights = np.exp(jax.image.resize(logits, (48, 64), "linear"))
    columns, rows = np.arange(64) - 31.5, np.arange(48) - 23.5
    expected = [(weights.sum(0) * columns).sum(), (weights.sum(1) * rows).sum()] / weights.sum()
    np.testing.assert_allclose(jax.jit(branch.mean_pixel)(logits), expected, rtol=1e-9)


def test_no_gradient_passes_to_the_place_of_the_objects_glimpse():
    network = network_shapes(SMALL)
    ramp = jnp.broadcast_to(jnp.arange(64.0)[None, :, None], (48, 64, 3))
    image = Image(ramp, ramp, jnp.zeros((48, 64), jnp.uint8))
    glimpse = lambda pixel: network.object_glimpse(image, pixel).sum()  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(glimpse))(jnp.asarray([2.5, 1.0]))
    np.testing.assert_allclose(value, 18 * 18 * 3 * (31.5 + 2.5))
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.fixture(scope="module", autouse=True)
def two_shapes():
    """Maps of two objects, because those of eleven take long."""
    several = [shapes.shape(name) for name in ("rect2", "ellip1")]
    with pytest.MonkeyPatch.context() as patch:
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
        patch.setattr(scenes, "all_shapes", lambda: stacked)
        scenes._coarse_shapes.cache_clear()
        yield
    scenes._coarse_shapes.cache_clear()


def sequence():
    poses = np.asarray([[10.0, -20.0, 30.0], [12.0, -18.0, 34.0], [15.0, -15.0, 40.0]])
    tips = np.asarray([[-60.0, -20.0], [-50.0, -18.0], [-40.0, -16.0], [-30.0, -15.0]])
    readings = {"pose": poses, "tip": tips[:-1], "next_tip": tips[1:]}
    context = {
        "shape": np.asarray(0),
        "look": Look(
            *jnp.asarray([[0.5] * 3, [0.8] * 3, [0.6] * 3, [0.8, 0.4, 0.1], [0, 0.6, 0.8]])
        ),
        "arm": np.asarray([0.1, 0.3, 0.5]),
        "first": {"pose": np.asarray([9.0, -21.0, 27.0]), "tip": np.asarray([-70.0, -20.0])},
    }
    return jax.tree.map(jnp.asarray, (readings, context))


def encode_all(encoder, readings, context):
    return jax.vmap(lambda reading: encoder(reading, None, context))(readings)


@pytest.mark.long
def test_everything_is_finite_every_branch_learns_and_normals_need_contact():
    encoder = PushingEncoder(PushingNetwork(SMALL, key=jax.random.key(0)))

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def gradient_and_features(encoder, readings, context):
        features = encode_all(encoder, readings, context)
        return (features.value**2).sum(), features

    readings, context = sequence()
    logit = lambda encoder: encoder.network.contact.contact.layers[0].bias  # noqa: E731
    for bias in (-50.0, 50.0):
        certain = eqx.tree_at(logit, encoder, jnp.full(1, bias))
        gradient, features = gradient_and_features(certain, readings, context)
        assert features.value.shape == (STEPS, 8)
        for leaf in jax.tree.leaves((features, gradient)):
            assert np.isfinite(leaf).all()
        value = np.asarray(features.value)
        np.testing.assert_allclose(np.hypot(value[:, 5], value[:, 6]), bias > 0, atol=1e-6)
        for branch in (gradient.network.rotation, gradient.network.contact):
            assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(branch.convolutions))
        parts = jax.tree.leaves((gradient.network.position.down, gradient.network.position.up))
        # An offset of all scores changes nothing.
        assert [np.abs(leaf).max() > 1e-9 for leaf in parts] == [True] * (len(parts) - 1) + [False]


@pytest.mark.long
def test_with_bfloat16_the_features_are_the_same_but_for_rounding():
    # Rejects places in the image, or points of the world, with eight digits. Encodings differ more,
    # because glimpses about places that differ a little are subtracted from each other.
    readings, context = sequence()
    found = {}
    for precision in ("full", "bfloat16"):
        network = PushingNetwork(SMALL, precision=precision, key=jax.random.key(0))
        found[precision] = eqx.filter_jit(encode_all)(PushingEncoder(network), readings, context)
    exact, rounded = found["full"], found["bfloat16"]
    assert 1e-9 < np.abs(rounded.pixel - exact.pixel).max() < 0.05
    for name in ("logits", "rotation", "contact", "value"):
        ours, theirs = getattr(rounded, name), getattr(exact, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=0.15 * np.abs(theirs).max(), err_msg=name)


def test_the_first_image_is_read_once_per_sequence():
    # Rejects an encoder that reads it again for every reading.
    encoder = PushingEncoder(network_shapes(SMALL))
    shapes_found = convolutions(encode_all, encoder, *sequence())
    assert (1, 42, 58, 8) in shapes_found
    batched = [shape for shape in shapes_found if shape[-3:] == (42, 58, 8)]
    assert sorted(int(np.prod(shape[:-3])) for shape in batched) == [1, STEPS]


def network_with_outputs(*, offset, along, logit):
    """A network whose offset, normal and score of contact do not depend on images."""
    zeros = lambda leaf: jnp.zeros(leaf.shape) if hasattr(leaf, "shape") else leaf  # noqa: E731
    network = jax.tree.map(zeros, network_shapes(SMALL))
    contact = network.contact

    def constant(perceptron, value):
        last = perceptron.layers[-1]
        numbers = (jnp.zeros_like(last.weight), jnp.asarray(value))
        return eqx.tree_at(lambda p: (p.layers[-1].weight, p.layers[-1].bias), perceptron, numbers)

    parts = (
        constant(contact.offset, offset),
        constant(contact.normal, along),
        constant(contact.contact, [logit]),
    )
    contact = eqx.tree_at(lambda c: (c.offset, c.normal, c.contact), contact, parts)
    return eqx.tree_at(lambda n: n.contact, network, contact)


@eqx.filter_jit
def contact_of(network, image, tip):
    return network._contact(image, tip, tip + 5.0)


def test_contact_point_and_normal_are_those_of_the_pixels():
    # Rejects metres for millimetres, other depths than the measured one, and normals of pixels.
    tip, camera = jnp.asarray([20.0, -30.0]), SMALL
    network = network_with_outputs(offset=[1.0, -2.0], along=[0.5, 3.0], logit=2.0)
    place = np.append(tip / 1000, 0.0133 + 0.0065)
    unit = np.asarray([64, 48]) / 128
    pixel = np.asarray(camera.project(jnp.asarray(place))) + unit * (1.0, -2.0)
    end = pixel + unit * (0.5, 3.0)
    of_tip = float(camera.depth(jnp.asarray(place)))
    for measured in (of_tip + 0.01, of_tip + 0.2):
        # A flat wall before the camera; where it is far from the tip, the tip's depth is taken.
        rays = np.stack(np.broadcast_arrays(*camera.rays()), -1)
        xyz = jnp.asarray(np.asarray([0.5, 0.0, 0.45]) + measured * rays)
        image = Image(jnp.zeros((48, 64, 3)), xyz, jnp.zeros((48, 64), jnp.uint8))
        depth = jnp.asarray(measured if measured < of_tip + 0.05 else of_tip)
        points = [np.asarray(camera.unproject(jnp.asarray(p), depth)) for p in (pixel, end)]
        _, point, normal, touching = contact_of(network, image, tip)
        np.testing.assert_allclose(point, 1000 * points[0][:2], atol=1e-3)
        along = (points[1] - points[0])[:2]
        np.testing.assert_allclose(normal, along / np.hypot(*along), atol=1e-5)
        np.testing.assert_allclose(touching, 1 / (1 + np.exp(-2.0)))
    short = network_with_outputs(offset=[0.0, 0.0], along=[0.0, 0.0], logit=2.0)
    np.testing.assert_allclose(contact_of(short, image, tip)[2], 0.0, atol=1e-6)
