"""Quasi-static planar pushing: the motion of an object that a pusher touches, without inertia.

K. Lynch, H. Maekawa and K. Tanie, *Manipulation and active sensing by pushing using tactile
feedback*, IROS 1992, with the ellipsoidal limit surface of S. Goyal, A. Ruina and J. Papadopoulos
(1991): if f is a force and m a moment that friction with the table just holds, the object moves
with

    v = c²·f/k,   ω = m/k

for some k > 0, where c is the largest moment divided by the largest force. With r from the centre
of friction to the contact, m = r × f, so that the contact moves with (c²·I + r⊥·r⊥ᵀ)·f/k. The
pusher transmits forces within α = atan(μ) of the inward normal n. They move the contact within the
*motion cone*. A push inside of it sticks; one outside slides along the nearer edge.

Lengths are in mm, angles in degrees. Vectors may be in any common frame.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from filtrax._types import Scalar

STATE = ("x", "y", "theta", "l", "alpha", "rx", "ry", "nx", "ny", "s")
"""Components of the state: position, rotation since the start, l = c²/100, α, the contact point in
the world, the inward normal there, and contact during the push (0 to 1)."""

SMALLEST_PUSH = 1e-6
SMALLEST_NORMAL = 1e-6
SMALLEST_L = 0.1
"""The paper's lower bound on l in cm², because c² is a divisor."""

_LEAVING = -0.01
"""Cosine of the angle between push and normal below which the pusher leaves the object."""
_OUTWARD = math.sin(0.1)
"""Tolerance: a valid normal may point outward from the centre of friction by up to 0.1 rad."""
_STEEPEST = 0.1
"""Cosine of the largest angle between normal and sliding direction."""


class Touch(NamedTuple):
    """A pusher that touches an object and is about to move."""

    offset: Float[Array, " 2"]
    """r, from the centre of friction to the contact."""
    normal: Float[Array, " 2"]
    """n, inward; it need not have unit length."""
    displacement: Float[Array, " 2"]
    """u, the displacement of the pusher."""
    squared_length: Scalar
    """c² in mm², positive."""
    half_angle: Scalar
    """α in degrees."""


class Push(NamedTuple):
    """The result of a push."""

    motion: Float[Array, " 3"]
    """The motion of the object: mm, mm, degrees."""
    contact: Float[Array, " 2"]
    """The motion of the touched point of the object."""
    sticks: Bool[Array, ""]
    leaves: Bool[Array, ""]
    """True if the pusher moves away from the object, which then rests."""


Correction = Callable[[Touch, Push], Float[Array, " 3"]]
"""An addition to the motion of a push, for example by a network trained on real pushes."""


def push(touch: Touch) -> Push:
    """Moves an object by a small displacement of the pusher that touches it.

    The branches are those of the reference code of Kloss et al. (2021): a push without direction or
    with an invalid normal sticks, a push away from the surface leaves it. Derivatives are those of
    the branch taken, and finite. To keep them finite, sliding differs from that code in two cases:
    a pusher that moves along the surface does not pull, and an edge of the motion cone that is more
    than 84° from the normal acts like one at 84°.
    """
    offset, normal, displacement, squared_length, _ = touch
    unit, normal_length = _direction(normal, SMALLEST_NORMAL)
    heading, push_length = _direction(displacement, SMALLEST_PUSH)
    # The root is only used in comparisons, so that no derivative passes it at zero.
    inward = unit @ offset <= _OUTWARD * jnp.sqrt(offset @ offset)
    known = inward & (normal_length > SMALLEST_NORMAL) & (push_length > SMALLEST_PUSH)
    leaves = known & (heading @ unit < _LEAVING)
    outside, along_edge = _along_edge(touch._replace(normal=unit))
    slides = known & outside & ~leaves
    contact = jnp.where(slides, along_edge, displacement)
    contact = jnp.where(leaves, 0.0, contact)
    motion = motion_of_contact(offset, contact, squared_length)
    return Push(motion, contact, ~slides & ~leaves, leaves)


def motion_cone(touch: Touch) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    """Returns the motions of the contact for forces at both edges of the friction cone.

    v = c²·f + (r × f)·r⊥ with f = Rot(±α)·n.
    """
    angle = touch.half_angle * (math.pi / 180)
    ahead = jnp.cos(angle) * touch.normal
    sideways = jnp.sin(angle) * turned_left(touch.normal)
    left, right = (
        touch.squared_length * force + cross(touch.offset, force) * turned_left(touch.offset)
        for force in (ahead + sideways, ahead - sideways)
    )
    return left, right


def motion_of_contact(
    offset: Float[Array, " 2"], contact: Float[Array, " 2"], squared_length: Scalar
) -> Float[Array, " 3"]:
    """Returns the motion (mm, mm, degrees) of an object whose point at r moves by a vector v.

    (Δx, Δy) = (c²·v + r·(r·v))/(c² + |r|²),   Δθ = r × (Δx, Δy)/c² = r × v/(c² + |r|²)
    """
    divisor = squared_length + offset @ offset
    moved = (squared_length * contact + (offset @ contact) * offset) / divisor
    turned = cross(offset, contact) / divisor
    return jnp.append(moved, turned * (180 / math.pi))


def process(
    state: Float[Array, " 10"],
    inputs: Float[Array, " 2"],
    correct: Correction | None = None,
) -> Float[Array, " 10"]:
    """Returns the state (`STATE`) after a push by `inputs`, the displacement of the pusher.

    The contact point moves with the pusher; friction is constant. If the pusher leaves, normal and
    contact become zero. An object without contact (s < 0.5) rests. The rotation of a circle, which
    is undefined, is not treated specially here.
    """
    position, contact, normal, touching = state[:2], state[5:7], state[7:9], state[9]
    length = jnp.maximum(state[3], SMALLEST_L)
    touch = Touch(contact - position, normal, inputs, 100.0 * length, state[4])
    result = push(touch)
    motion = result.motion if correct is None else result.motion + correct(touch, result)
    touches = touching >= 0.5
    pose = state[:3] + jnp.where(touches & ~result.leaves, motion, 0.0)
    kept = jnp.where(touches & result.leaves, 0.0, 1.0)
    return jnp.concatenate([pose, state[3:5], contact + inputs, kept * state[7:]])


def half_angle_of(friction: Scalar) -> Scalar:
    """Returns α = atan(μ) in degrees."""
    return jnp.arctan(friction) * (180 / math.pi)


def turned_left(vector: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Rotates a vector by 90° to the left."""
    return jnp.stack([-vector[1], vector[0]])


def cross(a: Float[Array, " 2"], b: Float[Array, " 2"]) -> Scalar:
    """Returns the third component of the cross product."""
    return a[0] * b[1] - a[1] * b[0]


def _along_edge(touch: Touch) -> tuple[Array, Array]:
    """Returns True if a push is outside of the motion cone, and the motion along its nearer edge.

    The motion is v·(u·n)/(v·n), with which the contact keeps up with the pusher along the normal.
    """
    displacement = touch.displacement
    left, right = motion_cone(touch)
    beyond_left, beyond_right = cross(left, displacement) > 0, cross(displacement, right) > 0
    edge = jnp.where(beyond_left, left, right)
    edge = edge / jnp.sqrt(edge @ edge)
    ahead = jnp.maximum(displacement @ touch.normal, 0.0)
    return beyond_left | beyond_right, ahead / jnp.maximum(edge @ touch.normal, _STEEPEST) * edge


def _direction(vector: Array, smallest: float) -> tuple[Array, Array]:
    """Returns unit vector and length; very short vectors have an arbitrary direction, length 0."""
    known = vector @ vector > smallest**2
    some = np.full(2, math.sqrt(0.5), vector.dtype)
    vector = jnp.where(known, vector, some)
    length = jnp.sqrt(vector @ vector)
    return vector / length, jnp.where(known, length, 0.0)
