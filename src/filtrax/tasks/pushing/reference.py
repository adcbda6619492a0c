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

from filtrax.arrays import Context, Control, Key, Reading, Scalar, State
from filtrax.linalg import precise, square_root
from filtrax.noise import AbstractNoise, FixedNoise
from filtrax.sensors import Measurement
from filtrax.tasks.pushing.camera import MILLIMETRES, Camera
from filtrax.tasks.pushing.contact import Friction, nearest, push_along, straight_path
from filtrax.tasks.pushing.disturbances import Spread, disturbed, of_sequence, real_friction
from filtrax.tasks.pushing.glimpses import value_at
from filtrax.tasks.pushing.render import TIP_HEIGHT, visible_pixels
from filtrax.tasks.pushing.scenes import FRAMES_AT_ONCE, image_of, shape_of_number
from filtrax.tasks.pushing.shapes import NAMES, TIP_RADIUS, Shape
from filtrax.tasks.pushing.space import observation_space

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

    def __call__(self, state: State, control: Control) -> State:
        shape, orientation = self._object()
        pose, contact = self.push(state, control, friction_of(state))
        touches = (state[9] >= 0.5) & contact[-1]
        tip = tip_of(state) + control
        _, point, normal = nearest(shape, pose, tip)
        touched = jnp.concatenate([point, normal, jnp.ones(1, state.dtype)])
        nothing = jnp.concatenate([tip, jnp.zeros(3, state.dtype)])
        turned = pose[2:] - orientation
        return jnp.concatenate([pose[:2], turned, state[3:5], jnp.where(touches, touched, nothing)])

    def push(
        self, state: State, control: Control, friction: Friction, **disturbance: Any
    ) -> tuple[Float[Array, " 3"], Bool[Array, " small"]]:
        """The pose after a push, and in which of its small steps the pusher meets the object.

        An object that is not touched, as the state says, stays.
        """
        shape, orientation = self._object()
        pose = jnp.append(state[:2], state[2] + orientation)
        tip = tip_of(state)
        path = straight_path(tip, tip + control, SMALL_STEPS)
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

    def __call__(self, state: State, control: Control) -> Float[Array, "10 10"]:
        return square_root(self.covariance(state, control))

    @precise
    def covariance(self, state: State, control: Control) -> Float[Array, "10 10"]:
        own = jax.tree.map(lambda numbers: numbers[self.number], self.spreads)

        def end(key):
            friction_key, key = jr.split(key)
            friction, disturb = disturbed(friction_of(state), own, key=friction_key)
            return self.process.push(state, control, friction, disturb=disturb, key=key)

        ends, contact = jax.vmap(end)(jr.split(jr.key(0), NUM_DRAWS))
        offsets = ends - ends.mean(0)[None]
        misses = (state[9] >= 0.5) & ~contact.any()
        stds = jnp.asarray(FLOORS + CONTACT_STDS, state.dtype)
        spread = offsets.T @ offsets / (NUM_DRAWS - 1)
        anything = jnp.diag(jnp.asarray(MOTION_STDS, state.dtype) ** 2)
        return jnp.diag(stds**2).at[:3, :3].add(jnp.where(misses, anything, spread))


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

    def __call__(self, reading: Reading, context: Context, *, key: Key) -> Measurement:
        del key
        shape, space = shape_of_number(context["shape"]), observation_space().bind(context)
        pose, point = reading["pose"], reading["contact"][:2]
        position, position_covariance, width = self._read(pose[:2])
        touched, touched_covariance, _ = self._read(point)
        angle = width / shape.even_pressure_length
        degrees = angle * (180 / math.pi)
        turned = _rounded(pose[2] - context["first"]["pose"][2], degrees)
        normal, contact = _rounded_direction(reading["contact"][2:4], angle), reading["contact"][4:]
        value = jnp.concatenate([position, turned[None], touched, normal, contact])
        variances = jnp.stack([degrees**2, angle**2, angle**2]) / 12
        covariance = jnp.diag(jnp.full(8, CONTACT_VARIANCE, value.dtype))
        covariance = covariance.at[:2, :2].set(position_covariance)
        covariance = covariance.at[3:5, 3:5].set(touched_covariance)
        place = np.asarray([2, 5, 6])
        covariance = covariance.at[place, place].set(variances)
        seen = self._seen(reading, context)
        return Measurement(space.wrap(value), covariance, observed=seen)

    def _read(
        self, place: Float[Array, " 2"]
    ) -> tuple[Float[Array, " 2"], Float[Array, "2 2"], Scalar]:
        """A place on the table, read to a pixel; its covariance, and the width of the pixel."""
        pixel = jnp.floor(self.camera.project_position(place)) + 0.5
        slope = jax.jacfwd(self.camera.position_at)(pixel)
        width = jnp.sqrt(jnp.abs(slope[0, 0] * slope[1, 1] - slope[0, 1] * slope[1, 0]))
        return self.camera.position_at(pixel), slope @ slope.T / 12, width

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
