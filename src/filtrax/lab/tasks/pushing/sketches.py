"""What states of the pushing task look like from above, and where the camera shows that."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from filtrax.lab.tasks.base import Sketch
from filtrax.lab.tasks.pushing.camera import MILLIMETRES, TABLE_HEIGHT, Camera
from filtrax.lab.tasks.pushing.shapes import NAMES, THICKNESS, shape
from filtrax.trajectory import Trajectory

NORMAL_LENGTH = 30.0
"""Of the arrow of a unit normal, in mm."""

TOP = TABLE_HEIGHT + THICKNESS / MILLIMETRES
"""The height of what is drawn into images, in metres: the upper side of the object."""

NUM_POINTS = 48
"""Of an outline: enough that nobody sees corners in a curve."""

SHARPEST_CURVE = 0.3
"""Larger changes of direction between two sides of an outline are corners, in radians."""

MEANINGS = (
    *("position x", "position y", "orientation θ", "pressure distribution l", "friction angle α"),
    *("contact point x", "contact point y", "normal x", "normal y", "chance of contact s"),
)
"""Of the components of the state; l is the squared ratio of the largest moment and force."""


def sketch(trajectory: Trajectory, states: Float[np.ndarray, "t 10"]) -> Sketch:
    """The object at the pose of each state, and the normal at its contact point.

    The rotation of a state counts from the first moment of the sequence. An arrow is as much
    shorter as the normal is, and a point where the state has none.
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
    """Some points of an outline, about evenly spaced, with all of its corners."""
    sides = np.roll(outline, -1, 0) - outline
    directions = np.arctan2(sides[:, 1], sides[:, 0])
    turns = np.angle(np.exp(1j * (directions - np.roll(directions, 1))))
    chosen = np.round(np.arange(NUM_POINTS) * len(outline) / NUM_POINTS).astype(int)
    for corner in np.flatnonzero(np.abs(turns) > SHARPEST_CURVE):
        chosen[np.abs(chosen - corner).argmin()] = corner
    return outline[chosen]


def projection(camera: Camera) -> Float[np.ndarray, "3 3"]:
    """How images show the upper side of the object, as `AbstractTask.projection` says it.

    Depth, and pixels times depth, are linear in the position; so three positions tell all.
    """
    far = 100.0  # mm; numbers of single precision that are close to each other have no difference
    middle = jnp.asarray([camera.width / 2, camera.height / 2])

    def seen(place):
        point = jnp.append(place / MILLIMETRES, TOP)
        depth = camera.depth(point)
        return jnp.append(depth * (camera.project(point) + middle), depth)

    places = jnp.asarray([[0.0, 0.0], [far, 0.0], [0.0, far]])
    origin, on_x, on_y = np.asarray(jax.vmap(seen)(places))
    return np.stack([(on_x - origin) / far, (on_y - origin) / far, origin], axis=1)
