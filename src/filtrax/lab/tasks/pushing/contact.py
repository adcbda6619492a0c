"""Pushes of an object by a round tip, simulated in small steps.

Each step moves the tip, determines its depth in the object, and moves the object by `physics` until
the tip just touches it again. Without contact the object rests. Poses are (x, y, orientation) of
the object's frame in the world, in mm and degrees.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from filtrax._checks import as_float
from filtrax._types import Key, Scalar
from filtrax.lab.tasks.pushing.physics import (
    Correction,
    Push,
    Touch,
    half_angle_of,
    push,
    turned_left,
)
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, Shape, distance_and_normal, rotated

STEP = 0.4
"""The length of simulated steps in mm."""

Disturbance = Callable[[Touch, Push, Key], Float[Array, " 3"]]
"""A random addition to the motion of a small step, in the frame of the object."""


class Friction(eqx.Module):
    """Friction between object and table, and between object and pusher.

    **Attributes:**

    - `length`: c in mm, the largest moment of the table's friction divided by its largest force.
    - `coefficient`: μ of the pusher.
    - `centre`: the centre of friction in the object's frame, in mm; the origin for even pressure.
    """

    length: Float[Array, "*b"] = eqx.field(converter=as_float)
    coefficient: Float[Array, "*b"] = eqx.field(converter=as_float)
    centre: Float[Array, "*b 2"] = eqx.field(converter=as_float, default=(0.0, 0.0))


class Contact(NamedTuple):
    """The state of object and pusher after each small step."""

    pose: Float[Array, "*t 3"]
    tip: Float[Array, "*t 2"]
    point: Float[Array, "*t 2"]
    """The contact point in the world; the tip without contact."""
    normal: Float[Array, "*t 2"]
    """The inward normal in the world; zero without contact."""
    touches: Bool[Array, "*t"]
    sticks: Bool[Array, "*t"]


def push_along(
    shape: Shape,
    pose: Float[Array, " 3"],
    tips: Float[Array, "t 2"],
    friction: Friction,
    *,
    tip_radius: float = TIP_RADIUS,
    correct: Correction | None = None,
    disturb: Disturbance | None = None,
    key: Key | None = None,
) -> Contact:
    """Moves the tip along a path; returns the state after each point but the first.

    If the tip starts inside of the object, as measured poses may imply, it is assumed to touch it
    there.

    Args:
        shape: the shape of one object.
        pose: the initial pose of the object's frame.
        tips: positions of the tip's centre, about `STEP` apart.
        friction: the friction of this push.
        tip_radius: the radius of the tip in mm.
        correct: a learned correction of each small motion, in the frame of the object.
        disturb: a random addition to each small motion, which needs a key.
        key: the key for `disturb`.
    """
    if (disturb is None) != (key is None):
        raise ValueError("`disturb` and `key` must be given together, got only one of them.")
    start, _ = distance_and_normal(shape, rotated(tips[0] - pose[:2], -pose[2]))
    radius = jnp.minimum(start, tip_radius)

    def step(carry, inputs):
        pose, before = carry
        tip, step_key = inputs
        touch, touches = _touch(shape, pose, before, tip, radius, friction)
        result = push(touch)
        motion = result.motion
        if correct is not None:
            motion = motion + correct(touch, result)
        if disturb is not None:
            motion = motion + disturb(touch, result, step_key)
        moved = _moved(pose, friction.centre, jnp.where(touches, motion, 0.0))
        inward = jnp.where(touches, rotated(touch.normal, pose[2]), 0.0)
        point = tip + radius * inward
        return (moved, tip), Contact(moved, tip, point, inward, touches, touches & result.sticks)

    keys = None if key is None else jr.split(key, tips.shape[0] - 1)
    return jax.lax.scan(step, (pose, tips[0]), (tips[1:], keys))[1]


class Nearest(NamedTuple):
    """The point of an outline nearest to a position, in the world."""

    distance: Scalar
    """The signed distance of the position, negative inside."""
    point: Float[Array, " 2"]
    normal: Float[Array, " 2"]
    """The inward normal."""


def nearest(shape: Shape, pose: Float[Array, " 3"], place: Float[Array, " 2"]) -> Nearest:
    """Returns the point of an object's outline nearest to a position."""
    distance, inward = distance_and_normal(shape, rotated(place - pose[:2], -pose[2]))
    normal = rotated(inward, pose[2])
    return Nearest(distance, place + distance * normal, normal)


def straight_path(
    start: Float[Array, " 2"], end: Float[Array, " 2"], num_steps: int
) -> Float[Array, "t 2"]:
    """Returns evenly spaced points from start to end, both included."""
    shares = jnp.linspace(0.0, 1.0, num_steps + 1, dtype=start.dtype)
    return start[None] + shares[:, None] * (end - start)[None]


def _touch(
    shape: Shape, pose: Array, before: Array, tip: Array, radius: Array, friction: Friction
) -> tuple[Touch, Array]:
    """Returns the touch of a tip that moves, in the object's frame, and True if there is contact.

    The displacement along the normal is the depth of the tip, so that errors do not accumulate.
    """
    middle = rotated(tip - pose[:2], -pose[2])
    ahead = rotated(tip - before, -pose[2])
    distance, inward = distance_and_normal(shape, middle)
    depth = jnp.maximum(radius - distance, 0.0)
    forward = ahead @ inward
    # The tip drags the surface along only for the part of the step in which it touches.
    late = forward > depth
    share = jnp.where(late, depth / jnp.where(late, forward, 1.0), 1.0)
    sideways = turned_left(inward)
    displacement = depth * inward + share * (ahead @ sideways) * sideways
    touch = Touch(
        offset=middle + distance * inward - friction.centre,
        normal=inward,
        displacement=displacement,
        squared_length=friction.length**2,
        half_angle=half_angle_of(friction.coefficient),
    )
    return touch, distance < radius


def _moved(pose: Array, centre: Array, motion: Array) -> Array:
    """Moves a pose by a motion of the centre of friction, in the frame of the object."""
    turned = pose[2] + motion[2]
    place = pose[:2] + rotated(centre + motion[:2], pose[2]) - rotated(centre, turned)
    return jnp.append(place, turned)
