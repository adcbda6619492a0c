"""What a filter could know at best.

That is the simulator without its disturbances, their covariance, and a sensor that reads whatever
is not hidden to a pixel. A filter with all three is what learned ones are compared with.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from filtrax._types import Context, Inputs, Key, Reading, Scalar, State
from filtrax.lab.tasks.pushing.camera import MILLIMETRES, Camera
from filtrax.lab.tasks.pushing.contact import Friction, nearest, push_along, straight_path
from filtrax.lab.tasks.pushing.disturbances import Spread, disturbed, of_sequence, real_friction
from filtrax.lab.tasks.pushing.glimpses import value_at
from filtrax.lab.tasks.pushing.render import TIP_HEIGHT, visible_pixels
from filtrax.lab.tasks.pushing.scenes import FRAMES_AT_ONCE, image_of, shape_of_number
from filtrax.lab.tasks.pushing.shapes import NAMES, TIP_RADIUS, Shape
from filtrax.lab.tasks.pushing.space import observation_space
from filtrax.linalg import precise, root_sum
from filtrax.noise import AbstractNoise, FixedNoise
from filtrax.sensors import Measurement

SMALL_STEPS = 25
"""Of a push, which are 0.4 mm each for one of 10 mm."""

NUM_DRAWS = 16
"""Of disturbances, to compute their covariance."""

CONTACT_STDS = (1.4, 1.4, 0.3, 0.3, 0.42)
"""Of contact point, normal and contact after a step: how far they are from what the process says,
because the coming push is not known. Measured on simulated pushes."""

FLOORS = (0.03, 0.03, 0.03, 0.003, 0.003)
"""Standard deviations of pose and friction at least, in the units of the state."""

MOTION_STDS = (5.0, 5.0, 6.0)
"""Of what a push does to a pose, in mm and degrees."""

CONTACT_VARIANCE = 1e-3
"""Of the measured contact, which is right: the floor that learned noise has, too."""

UNIFORM_STD = math.sqrt(1 / 12)
"""Of a number that is uniform over an interval of length one."""

HIDDEN = 0.03
"""What is seen so much closer than a point, in metres, hides it."""


class ReferenceProcess(eqx.Module):
    """The simulator without disturbances, for an object that is known.

    The pusher moves along a straight line (`push_along`). Whether and where the coming push will
    touch the object is not known; it is taken to go on as it ends.
    """

    shape: Shape | None = None
    orientation: Scalar | None = None

    def bind(self, context: Context) -> "ReferenceProcess":
        """The process for one sequence."""
        return ReferenceProcess(shape_of_number(context["shape"]), context["first"]["pose"][2])

    def __call__(self, state: State, inputs: Inputs) -> State:
        shape, orientation = self._object()
        pose, contact = self.push(state, inputs, friction_of(state))
        touches = (state[9] >= 0.5) & contact[-1]
        tip = tip_of(state) + inputs
        _, point, normal = nearest(shape, pose, tip)
        touched = jnp.concatenate([point, normal, jnp.ones(1, state.dtype)])
        nothing = jnp.concatenate([tip, jnp.zeros(3, state.dtype)])
        turned = pose[2:] - orientation
        return jnp.concatenate([pose[:2], turned, state[3:5], jnp.where(touches, touched, nothing)])

    def push(
        self, state: State, inputs: Inputs, friction: Friction, **disturbance: Any
    ) -> tuple[Float[Array, " 3"], Bool[Array, " small"]]:
        """The pose after a push, and in which of its small steps the pusher meets the object.

        An object that is not touched, as the state says, stays.
        """
        shape, orientation = self._object()
        pose = jnp.append(state[:2], state[2] + orientation)
        tip = tip_of(state)
        path = straight_path(tip, tip + inputs, SMALL_STEPS)
        contact = push_along(shape, pose, path, friction, **disturbance)
        return jnp.where(state[9] >= 0.5, contact.pose[-1], pose), contact.touches

    def _object(self) -> tuple[Shape, Scalar]:
        """The object, and its orientation at the start of the sequence."""
        if self.shape is None or self.orientation is None:
            raise ValueError(
                "The reference process must know the object that is pushed, but it is not bound to "
                "a sequence: use `model.bind(context)`."
            )
        return self.shape, self.orientation


def tip_of(state: State) -> Float[Array, " 2"]:
    """Where the pusher is: without contact the normal is zero, and the contact point is the tip."""
    return state[5:7] - TIP_RADIUS * state[7:9]


def friction_of(state: State) -> Friction:
    """c² = 100 l, μ = tan α."""
    return Friction(10 * jnp.sqrt(state[3]), jnp.tan(state[4] * (math.pi / 180)), jnp.zeros(2))


class ReferenceNoise(AbstractNoise):
    """The covariance of what the simulator's disturbances do to the pose, by draws of them.

    `spreads` are those of all objects, and `number` is the one that is pushed.

    The draws are the same for all states. Contact of the coming push has fixed variances. If the
    state says that a push touches the object, but it misses it, the pose is not known yet: then
    the object may move as objects do (`MOTION_STDS`).
    """

    spreads: Spread
    process: ReferenceProcess = ReferenceProcess()
    number: Int[Array, ""] | int = 0

    @property
    def size(self) -> int:
        return 10

    def bind(self, context: Context) -> "ReferenceNoise":
        """The noise for one sequence."""
        return ReferenceNoise(self.spreads, self.process.bind(context), context["shape"])

    @precise
    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "10 10"]:
        own = jax.tree.map(lambda numbers: numbers[self.number], self.spreads)

        def end(key):
            friction_key, key = jr.split(key)
            friction, disturb = disturbed(friction_of(state), own, key=friction_key)
            return self.process.push(state, inputs, friction, disturb=disturb, key=key)

        ends, contact = jax.vmap(end)(jr.split(jr.key(0), NUM_DRAWS))
        offsets = ends - ends.mean(0)[None]
        misses = (state[9] >= 0.5) & ~contact.any()
        spread = offsets.T / math.sqrt(NUM_DRAWS - 1)
        anything = jnp.zeros_like(spread).at[:, :3].set(np.diag(MOTION_STDS))
        floor = jnp.diag(jnp.asarray(FLOORS + CONTACT_STDS, state.dtype))
        pose = root_sum(floor[:3, :3], jnp.where(misses, anything, spread))
        return floor.at[:3, :3].set(pose)


def reference_noise() -> AbstractNoise:
    """The noise of the simulator, which no training changes."""
    # What pushes of one sequence differ by does not depend on what they have in common.
    spreads = [of_sequence(*real_friction(name), key=jr.key(0))[1] for name in NAMES]
    return FixedNoise(ReferenceNoise(jax.tree.map(lambda *numbers: jnp.stack(numbers), *spreads)))


class ReferenceSensor(eqx.Module):
    """Reads everything that is not hidden to a pixel, and says so.

    Positions are the middles of pixels. Angles are rounded to what a pixel is at the mean distance
    of the object's points from its centre. So errors are uniform, with the variance that is stated.
    The reading needs the true `contact`: point, normal and whether the coming push touches.
    """

    frames_at_once: ClassVar[int] = FRAMES_AT_ONCE
    camera: Camera

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        del inputs, key
        shape, space = shape_of_number(context["shape"]), observation_space().bind(context)
        pose, point = reading["pose"], reading["contact"][:2]
        position, position_factor, width = self._read(pose[:2])
        touched, touched_factor, _ = self._read(point)
        angle = width / shape.even_pressure_length
        degrees = angle * (180 / math.pi)
        turned = _rounded(pose[2] - context["first"]["pose"][2], degrees)
        normal, contact = _rounded_direction(reading["contact"][2:4], angle), reading["contact"][4:]
        value = jnp.concatenate([position, turned[None], touched, normal, contact])
        stds = UNIFORM_STD * jnp.stack([degrees, angle, angle])
        factor = jnp.diag(jnp.full(8, math.sqrt(CONTACT_VARIANCE), value.dtype))
        factor = factor.at[:2, :2].set(position_factor).at[3:5, 3:5].set(touched_factor)
        place = np.asarray([2, 5, 6])
        factor = factor.at[place, place].set(stds)
        seen = self._seen(reading, context)
        return Measurement(space.wrap(value), factor=factor, observed=seen)

    def _read(
        self, place: Float[Array, " 2"]
    ) -> tuple[Float[Array, " 2"], Float[Array, "2 2"], Scalar]:
        """A place on the table, read to a pixel; a factor of its covariance; the pixel's width."""
        pixel = jnp.floor(self.camera.project_position(place)) + 0.5
        slope = jax.jacfwd(self.camera.position_at)(pixel)
        width = jnp.sqrt(jnp.abs(slope[0, 0] * slope[1, 1] - slope[0, 1] * slope[1, 0]))
        return self.camera.position_at(pixel), UNIFORM_STD * slope, width

    def _seen(self, reading: Reading, context: Context) -> Bool[Array, " 8"]:
        """Which components are not hidden by the arm."""
        image = image_of(reading, context, self.camera)
        place = reading["contact"][:2] / MILLIMETRES
        point = jnp.append(place, jnp.asarray(TIP_HEIGHT, place.dtype))
        shown = self.camera.depth(value_at(image.xyz, self.camera.project(point)))
        contact = shown > self.camera.depth(point) - HIDDEN
        of_object = np.arange(8) < 3
        return jnp.where(of_object, visible_pixels(image) > 0, contact)


def _rounded(number: Scalar, unit: Scalar) -> Scalar:
    return jnp.round(number / unit) * unit


def _rounded_direction(vector: Float[Array, " 2"], unit: Scalar) -> Float[Array, " 2"]:
    """A unit vector whose angle is rounded; zero stays zero."""
    angle = _rounded(jnp.arctan2(vector[1], vector[0]), unit)
    direction = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return jnp.where((vector**2).sum() > 0, direction, 0.0)
