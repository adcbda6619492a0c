"""Pushes by chance, one after the other, and the free motion of the pusher between them.

A push begins somewhere at the outline of an object and goes straight on for 50 mm, in one of nine
directions about the inward normal, as those of the MIT Push data set do. It moves the object as
`contact` says in steps of 0.4 mm, disturbed as `disturbances` says. A moment is every 10 mm, which
is 5 Hz at 50 mm/s; so a push has 5 steps, like the data set's. Then the pusher goes around the
object to the next start, without touching it. These steps are up to 40 mm long: nothing happens in
them, and at 10 mm most steps of a sequence would be of this kind.

Of a few places and directions for the next push the one with the shortest way there is taken, among
those that keep the object where the camera sees it.
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
"""Of a step of a push, in mm."""
PUSH_STEPS = 5
SMALL_STEPS = round(STEP_LENGTH / STEP)
FREE_LENGTH = 40.0
"""Of a step of free motion at most, in mm."""
DIRECTIONS = tuple(20.0 * number for number in range(-4, 5))
"""Angles between pushes and the inward normal at their start, in degrees."""
CANDIDATES = 6
"""For the next push."""
WORKSPACE = 100.0
"""How far from the origin pushes may lead the middle of an object, in mm. All of it, and the
pusher, is then in the image."""
FIRST_PLACES = 80.0
"""How far from the origin an object is at the start, in mm."""


class Moment(NamedTuple):
    """An object and a pusher, and what the coming step will be."""

    pose: Float[Array, "*t 3"]
    tip: Float[Array, "*t 2"]
    next_tip: Float[Array, "*t 2"]
    point: Float[Array, "*t 2"]
    """Where the object will be touched; the tip without contact."""
    normal: Float[Array, "*t 2"]
    """Inward there; zero without contact."""
    touches: Bool[Array, "*t"]
    pushes: Bool[Array, "*t"]
    """Whether the step belongs to a push, which may have slid off the object."""


class Plan(eqx.Module):
    """The way to a push, and the push.

    **Attributes:**

    - `number`: of the push, from 0.
    - `way`: to its start.
    - `heading`: its direction, a unit vector.
    - `left_out`: how many of its steps are left out.
    """

    number: Int[Array, ""]
    way: Way
    heading: Float[Array, " 2"]
    left_out: Int[Array, ""]

    @property
    def num_steps(self) -> Int[Array, ""]:
        """Of the way and of the push."""
        return self.way.num_steps + PUSH_STEPS - self.left_out

    def place(self, step: Int[Array, ""]) -> Float[Array, " 2"]:
        """Where the tip is after so many steps."""
        pushed = jnp.maximum(step - self.way.num_steps, 0).astype(self.heading.dtype)
        return self.way.place(step) + STEP_LENGTH * pushed * self.heading


def simulate(
    shape: Shape, friction: Friction, spread: Spread, num_moments: int, *, key: Key
) -> Moment:
    """What happens to one object, moment by moment.

    The first moment may be anywhere on the way to a push, or between two of its steps: the push
    then lacks those before.

    Args:
        shape: the object.
        friction: of the sequence; pushes differ from it.
        spread: how much they do.
        num_moments: how many moments there are.
        key: of everything that is drawn.
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
    """An object somewhere, a push of it, and how many steps of the way to it are done.

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
    """The best of some pushes from where the pusher is."""

    def plan(key):
        start, heading = _candidate(shape, pose, key=key)
        way = way_around(shape, pose[:2], tip, start, FREE_LENGTH)
        return Plan(number, way, heading, jnp.zeros_like(number))

    def cost(plan):
        pushed = pose[:2] + PUSH_STEPS * STEP_LENGTH * plan.heading
        beyond = jnp.maximum(_length(pushed) - WORKSPACE, 0.0)
        # To stay there comes first.
        return jnp.abs(plan.way.turn) + 100.0 * beyond

    plans = jax.vmap(plan)(jr.split(jr.fold_in(key, number), CANDIDATES))
    best = jnp.argmin(jax.vmap(cost)(plans))
    return jax.tree.map(lambda leaf: leaf[best], plans)


def _candidate(
    shape: Shape, pose: Float[Array, " 3"], *, key: Key
) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    """A place of the tip at the outline, and a direction into the object, in the world."""
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
