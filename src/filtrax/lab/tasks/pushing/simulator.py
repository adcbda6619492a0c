"""Simulates random pushes, and the free motion of the pusher between them.

A push starts at a random point of an object's outline and is straight for 50 mm, in one of nine
directions around the inward normal, as in the MIT Push data set. The object moves by `contact` in
steps of 0.4 mm, with `disturbances`. There is a moment every 10 mm, which is 5 Hz at 50 mm/s, so a
push has 5 steps, as in the data set. Then the pusher moves around the object to the next start
without touching it. These steps are up to 40 mm long, because with 10 mm, most steps of a sequence
would be free motion.

The next push is chosen from a few random candidates: the one with the shortest way among those that
keep the object within view.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from filtrax._types import Key, Scalar
from filtrax.lab.tasks.pushing.contact import STEP, Friction, nearest, push_along, straight_path
from filtrax.lab.tasks.pushing.disturbances import Spread, disturbed
from filtrax.lab.tasks.pushing.physics import turned_left
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, Shape, rotated
from filtrax.lab.tasks.pushing.ways import Way, way_around

STEP_LENGTH = 10.0
"""The length of a step of a push, in mm."""
PUSH_STEPS = 5
SMALL_STEPS = round(STEP_LENGTH / STEP)
FREE_LENGTH = 40.0
"""The largest length of a step of free motion, in mm."""
DIRECTIONS = tuple(20.0 * number for number in range(-4, 5))
"""Angles between pushes and the inward normal at their start, in degrees."""
CANDIDATES = 6
"""The number of candidates for the next push."""
WORKSPACE = 100.0
"""The largest distance of an object from the origin after a push, in mm, so that object and pusher
stay in the image."""
FIRST_PLACES = 80.0
"""The largest initial distance of an object from the origin, in mm."""


class Moment(NamedTuple):
    """The poses of object and pusher, and the contact of the coming step."""

    pose: Float[Array, "*t 3"]
    tip: Float[Array, "*t 2"]
    next_tip: Float[Array, "*t 2"]
    point: Float[Array, "*t 2"]
    """The contact point of the coming step; the tip without contact."""
    normal: Float[Array, "*t 2"]
    """The inward normal at the contact point; zero without contact."""
    touches: Bool[Array, "*t"]
    pushes: Bool[Array, "*t"]
    """True if the step belongs to a push, which may have slid off the object."""


class Plan(eqx.Module):
    """A push, and the way to its start.

    **Attributes:**

    - `number`: the index of the push in its sequence.
    - `way`: the way to the start of the push.
    - `heading`: the direction of the push, a unit vector.
    - `left_out`: the number of steps by which the push is shorter than usual.
    """

    number: Int[Array, ""]
    way: Way
    heading: Float[Array, " 2"]
    left_out: Int[Array, ""]

    @property
    def num_steps(self) -> Int[Array, ""]:
        """The number of steps of way and push."""
        return self.way.num_steps + PUSH_STEPS - self.left_out

    def place(self, step: Int[Array, ""]) -> Float[Array, " 2"]:
        """Returns the position of the tip after a number of steps."""
        pushed = jnp.maximum(step - self.way.num_steps, 0).astype(self.heading.dtype)
        return self.way.place(step) + STEP_LENGTH * pushed * self.heading


def simulate(
    shape: Shape, friction: Friction, spread: Spread, num_moments: int, *, key: Key
) -> Moment:
    """Simulates one object; moments are the leading axis of the result.

    The first moment may be anywhere on the way to a push, or within the push, which is then
    shorter.

    Args:
        shape: the object.
        friction: the friction of the sequence.
        spread: the spread of its pushes.
        num_moments: the number of moments.
        key: the key for all random draws.
    """
    start_key, plan_key, push_key, step_key = jr.split(key, 4)
    pose, plan, place = _start(shape, key=start_key)

    def step(carry, number):
        pose, plan, place = carry
        tip = plan.place(place)
        new = _next_plan(shape, pose, tip, plan.number + 1, key=plan_key)
        done = place == plan.num_steps
        plan = jax.tree.map(lambda new, old: jnp.where(done, new, old), new, plan)
        place = jnp.where(done, 0, place) + 1
        next_tip, pushes = plan.place(place), place > plan.way.num_steps
        friction_key = jr.fold_in(push_key, plan.number)
        drawn, disturb = disturbed(friction, spread, key=friction_key)
        contact = push_along(
            shape,
            pose,
            straight_path(tip, next_tip, SMALL_STEPS),
            drawn,
            disturb=disturb,
            key=jr.fold_in(step_key, number),
        )
        touches = pushes & contact.touches.any()
        after = jnp.where(touches, contact.pose[-1], pose)
        _, point, normal = nearest(shape, pose, tip)
        point, normal = jnp.where(touches, point, tip), jnp.where(touches, normal, 0.0)
        moment = Moment(pose, tip, next_tip, point, normal, touches, pushes)
        return (after, plan, place), moment

    return jax.lax.scan(step, (pose, plan, place), jnp.arange(num_moments))[1]


def _start(shape: Shape, *, key: Key) -> tuple[Float[Array, " 3"], Plan, Int[Array, ""]]:
    """Draws a pose of the object, a push of it, and the number of finished steps of its plan.

    All steps of the way and of the push are equally likely to be the next one.
    """
    place_key, rest_key, push_key, step_key = jr.split(key, 4)
    distance, angle, turn = jr.uniform(place_key, (3,))
    place = jnp.stack([FIRST_PLACES * jnp.sqrt(distance), jnp.zeros_like(angle)])
    pose = jnp.append(rotated(place, 360.0 * angle), 360.0 * turn - 180.0)
    rest, _ = _candidate(shape, pose, key=rest_key)
    start, heading = _candidate(shape, pose, key=push_key)
    way = way_around(shape, pose[:2], rest, start, FREE_LENGTH)
    done = jr.randint(step_key, (), 0, way.num_steps + PUSH_STEPS)
    left_out = jnp.maximum(done - way.num_steps, 0)
    return pose, Plan(jnp.zeros_like(done), way, heading, left_out), done - left_out


def _next_plan(
    shape: Shape,
    pose: Float[Array, " 3"],
    tip: Float[Array, " 2"],
    number: Int[Array, ""],
    *,
    key: Key,
) -> Plan:
    """Draws candidates for the next push, and returns the best one."""

    def plan(key):
        start, heading = _candidate(shape, pose, key=key)
        way = way_around(shape, pose[:2], tip, start, FREE_LENGTH)
        return Plan(number, way, heading, jnp.zeros_like(number))

    def cost(plan):
        pushed = pose[:2] + PUSH_STEPS * STEP_LENGTH * plan.heading
        beyond = jnp.maximum(_length(pushed) - WORKSPACE, 0.0)
        # Staying within the workspace has priority.
        return jnp.abs(plan.way.turn) + 100.0 * beyond

    plans = jax.vmap(plan)(jr.split(jr.fold_in(key, number), CANDIDATES))
    best = jnp.argmin(jax.vmap(cost)(plans))
    return jax.tree.map(lambda leaf: leaf[best], plans)


def _candidate(
    shape: Shape, pose: Float[Array, " 3"], *, key: Key
) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    """Draws a position of the tip at the outline, and a direction into the object, in the world."""
    along, across = jr.uniform(key, (2,), shape.outline.dtype)
    along, across = shape.outline.shape[0] * along, len(DIRECTIONS) * across
    index = along.astype(int)
    corner, after = shape.outline[index], jnp.roll(shape.outline, -1, 0)[index]
    side = after - corner
    inward = turned_left(side / _length(side))
    middle = corner + (along % 1.0) * side - TIP_RADIUS * inward
    angle = jnp.asarray(DIRECTIONS)[across.astype(int)]
    return pose[:2] + rotated(middle, pose[2]), rotated(inward, pose[2] + angle)


def _length(vector: Float[Array, " 2"]) -> Scalar:
    return jnp.sqrt(vector @ vector)
