"""Images against solids that every ray is followed through in small steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing import render as drawing
from filtrax.lab.tasks.pushing.camera import TABLE_HEIGHT, WALL, Camera
from filtrax.lab.tasks.pushing.render import Look, Scene, random_arm, random_look, visible_pixels
from filtrax.lab.tasks.pushing.shapes import THICKNESS, TIP_RADIUS, shape

CAMERA = Camera(24, 32)
TOP = TABLE_HEIGHT + THICKNESS / 1000
WALL_LABEL, TABLE, ARM, OBJECT = 0, 1, 2, 3


@eqx.filter_jit
def render(scene, camera=CAMERA):
    return drawing.render(scene, camera)


def scene(name="rect3", pose=(20.0, -30.0, 25.0), tip=(80.0, -20.0), arm=(0.3, 0.25, 0.5)):
    gray = jnp.full(3, 0.5)
    look = Look(gray, 1.6 * gray, gray, jnp.asarray([0.8, 0.4, 0.1]), jnp.asarray([0.0, 0.6, 0.8]))
    return Scene(*(jnp.asarray(pose), shape(name), jnp.asarray(tip), jnp.asarray(arm), look))


SCENES = {
    "rectangle": scene(),
    "rectangle behind the arm": scene(pose=(-60.0, 0.0, -70.0), tip=(60.0, 40.0)),
    "circle": scene("ellip1", (0.0, 60.0, 10.0), (-60.0, 60.0), (0.0, -0.4, 0.5)),
}


def inside_outline(scene, x, y):
    """Whether points of the world, in metres, are over the object."""
    (px, py, turn), name = np.asarray(scene.pose), float(scene.shape.period)
    angle = np.radians(turn)
    across, along = 1000 * x - px, 1000 * y - py
    first = np.cos(angle) * across + np.sin(angle) * along
    second = np.cos(angle) * along - np.sin(angle) * across
    if name == 0.0:  # the circle
        return np.hypot(first, second) < 52.5
    return (np.abs(first) < 135.01 / 2) & (np.abs(second) < 89.94 / 2)


def in_capsule(points, start, end, radius):
    axis = end - start
    share = np.clip(((points - start) @ axis) / (axis @ axis), 0, 1)
    return np.linalg.norm(points - start - share[..., None] * axis, axis=-1) < radius


def solids(scene, points):
    """The label of what is at points of the world, or -1."""
    x, y, z = np.moveaxis(points, -1, 0)
    tip = np.asarray(scene.tip) / 1000
    bottom, top = (np.asarray([*tip, h]) for h in (drawing.ROD_END, drawing.ROD_TOP))
    labels = np.full(x.shape, -1)
    labels[z < TABLE_HEIGHT] = TABLE
    labels[x < WALL] = WALL_LABEL
    labels[inside_outline(scene, x, y) & (z > TABLE_HEIGHT) & (z < TOP)] = OBJECT
    labels[in_capsule(points, bottom, top, TIP_RADIUS / 1000)] = ARM
    labels[in_capsule(points, top, np.asarray(scene.arm), drawing.ARM_RADIUS)] = ARM
    return labels


@pytest.mark.parametrize("name", SCENES)
def test_pixels_show_what_their_rays_meet_first(name):
    # Rejects a wrong order of things, a turn in the other direction, sides that are missing, and
    # coordinates that are not those of what is shown.
    image, rays = render(SCENES[name]), np.stack(np.broadcast_arrays(*CAMERA.rays()), -1)
    depths = np.arange(0.05, 1.1, 0.0005)
    points = np.asarray([0.5, 0.0, 0.45]) + depths[:, None, None, None] * rays
    met = solids(SCENES[name], points)
    first = (met >= 0).argmax(0)
    labels = np.take_along_axis(met, first[None], 0)[0]
    shown, seen = np.asarray(image.segmentation), np.asarray(image.xyz)
    assert (labels == OBJECT).sum() > 5
    assert (labels == ARM).sum() > 10
    # Rays that graze an edge may differ.
    assert (shown != labels).mean() < 0.01
    alike = shown == labels
    distance = np.linalg.norm(seen - points[first, *np.indices(first.shape)], axis=-1)
    assert np.quantile(distance[alike], 0.98) < 0.0015
    np.testing.assert_allclose(seen[shown == TABLE][:, 2], TABLE_HEIGHT, atol=1e-9)
    assert np.isfinite(seen).all()


def test_what_is_visible_is_counted_and_the_arm_hides_some_of_it():
    # Rejects counts of hidden pixels, and of anything else.
    for name, here in SCENES.items():
        free = eqx.tree_at(lambda s: (s.tip, s.arm), here, (here.tip + 900.0, here.arm + 3.0))
        image = render(here)
        shown = int(visible_pixels(image))
        assert shown == int((np.asarray(image.segmentation) > 2.5).sum())
        hidden = int(visible_pixels(render(free))) - shown
        assert hidden > 0 if name == "rectangle behind the arm" else hidden >= 0


def test_the_picture_has_the_symmetry_of_the_shape():
    # Rejects a texture or a light that moves with the object.
    for name, period, differs in (
        ("rect1", 90.0, 30.0),
        ("hex", 60.0, 20.0),
        ("tri1", 360.0, 180.0),
    ):
        images = [render(scene(name, (20.0, -30.0, 25.0 + t))) for t in (0.0, period, differs)]
        np.testing.assert_allclose(images[0].rgb, images[1].rgb, atol=0.02)
        assert np.abs(images[0].rgb - images[2].rgb).max() > 0.1
    # The map of the circle is a grid of points, which shows at its rim alone.
    circles = [render(scene("ellip1", (20.0, -30.0, turn))).rgb for turn in (0.0, 45.0)]
    assert np.quantile(np.abs(circles[0] - circles[1]), 0.99) < 0.02


def test_colours_are_in_their_range_and_faces_that_look_to_the_light_are_brighter():
    # Rejects a light that is forgotten, and normals that point inwards.
    here = scene("rect1", (0.0, 0.0, 0.0), (150.0, 150.0))
    camera = Camera(96, 128)
    sides = []
    for light in (0.6, -0.6):
        lit = eqx.tree_at(lambda s: s.look.light, here, jnp.asarray([light, 0.0, 0.8]))
        image = render(lit, camera)
        assert image.rgb.min() >= 0
        assert image.rgb.max() <= 1
        height = np.asarray(image.xyz)[..., 2]
        # The camera sees the side that looks to +x.
        side = (np.asarray(image.segmentation) == OBJECT) & (height < TOP - 1e-4)
        assert side.sum() > 20
        sides.append(np.asarray(image.rgb)[side].mean())
    assert sides[0] > 1.5 * sides[1]


def test_scenes_that_are_drawn_at_random_are_possible_and_differ():
    draw = jax.jit(jax.vmap(lambda key: (random_look(key=key), random_arm(key=key))))
    looks, arms = draw(jax.random.split(jax.random.key(0), 50))
    np.testing.assert_allclose(np.linalg.norm(looks.light, axis=-1), 1.0)
    assert looks.light[:, 2].min() > 0.5
    for color in (looks.object, looks.table, looks.wall, looks.arm):
        assert color.min() >= 0
        assert color.max() <= 1
        assert color.std(0).min() > 0.01
    # The object differs from the table, and arms come from both sides.
    assert (looks.table - looks.object).min() > 0.02
    assert arms[:, 1].min() < -0.2 < 0.2 < arms[:, 1].max()
    assert arms[:, 2].min() > drawing.ROD_TOP
