"""Drawings of states of the pushing task from above, and their projection into images."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from filtrax.lab.tasks.base import Sketch
from filtrax.lab.tasks.pushing.camera import MILLIMETRES, TABLE_HEIGHT, Camera
from filtrax.lab.tasks.pushing.shapes import NAMES, THICKNESS, shape
from filtrax.trajectory import Trajectory

NORMAL_LENGTH = 30.0
"""The length of the arrow of a unit normal, in mm."""

TOP = TABLE_HEIGHT + THICKNESS / MILLIMETRES
"""The height of drawings in images, in metres: the upper side of the object."""

NUM_POINTS = 48
"""The number of points of an outline, enough for smooth curves."""

SHARPEST_CURVE = 0.3
"""The largest change of direction between two sides of an outline without a corner, in radians."""

MEANINGS = (
    *("position x", "position y", "orientation θ", "pressure distribution l", "friction angle α"),
    *("contact point x", "contact point y", "normal x", "normal y", "chance of contact s"),
)
"""Descriptions of the state's components; l is the squared ratio of largest moment and force."""


def sketch(trajectory: Trajectory, states: Float[np.ndarray, "t 10"]) -> Sketch:
    """Draws the object at the pose of each state, and the normal at its contact point.

    The rotation of a state is relative to the first moment of the sequence. Arrows are proportional
    to the length of the normal, and points without a normal.
    """
    name = NAMES[int(trajectory.context["shape"])]
    x, y = few_points(np.asarray(shape(name).outline)).T
    angles = np.radians(states[:, 2:3] + float(trajectory.context["first"]["pose"][2]))
    cosine, sine = np.cos(angles), np.sin(angles)
    turned = np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)
    points, normals = states[:, 5:7], states[:, 7:9]
    arrows = np.stack([points, points + NORMAL_LENGTH * normals], axis=1)
    return Sketch(states[:, None, :2] + turned, arrows[:, None])


def few_points(outline: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, "few 2"]:
    """Thins an outline to about evenly spaced points, including all corners."""
    sides = np.roll(outline, -1, 0) - outline
    directions = np.arctan2(sides[:, 1], sides[:, 0])
    turns = np.angle(np.exp(1j * (directions - np.roll(directions, 1))))
    chosen = np.round(np.arange(NUM_POINTS) * len(outline) / NUM_POINTS).astype(int)
    for corner in np.flatnonzero(np.abs(turns) > SHARPEST_CURVE):
        chosen[np.abs(chosen - corner).argmin()] = corner
    return outline[chosen]


def projection(camera: Camera) -> Float[np.ndarray, "3 3"]:
    """Returns the homography of the object's upper side, as `Drawing.projection` does.

    Depth, and pixels times depth, are affine in the position, so three positions determine it.
    """
    far = 100.0  # mm, large enough for differences in float32
    middle = jnp.asarray([camera.width / 2, camera.height / 2])

    def seen(place):
        point = jnp.append(place / MILLIMETRES, TOP)
        depth = camera.depth(point)
        return jnp.append(depth * (camera.project(point) + middle), depth)

    places = jnp.asarray([[0.0, 0.0], [far, 0.0], [0.0, far]])
    origin, on_x, on_y = np.asarray(jax.vmap(seen)(places))
    return np.stack([(on_x - origin) / far, (on_y - origin) / far, origin], axis=1)
