"""The reference of the pushing task, with which learned models are compared.

It consists of the simulator without disturbances, the covariance of the disturbances, and a sensor
that reads all visible quantities with an accuracy of a pixel.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from filtrax._readers import AbstractReader
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
"""The number of simulated steps of a push, 0.4 mm each for a push of 10 mm."""

NUM_DRAWS = 16
"""The number of draws of disturbances to estimate their covariance."""

CONTACT_STDS = (1.4, 1.4, 0.3, 0.3, 0.42)
"""Standard deviations of contact point, normal and contact after a step from the process, because
the coming push is unknown; estimated from simulated pushes."""

FLOORS = (0.03, 0.03, 0.03, 0.003, 0.003)
"""The smallest standard deviations of pose and friction, in the units of the state."""

MOTION_STDS = (5.0, 5.0, 6.0)
"""Standard deviations of the motion of a pose by a push, in mm and degrees."""

CONTACT_VARIANCE = 1e-3
"""The variance of measured contact, which is exact: the same floor as that of learned noise."""

UNIFORM_STD = math.sqrt(1 / 12)
"""The standard deviation of a uniform distribution over an interval of length one."""

HIDDEN = 0.03
"""A point is hidden if the visible depth is smaller than its own by this, in metres."""


class ReferenceProcess(eqx.Module):
    """The simulator without disturbances, for a known object.

    The pusher moves along a straight line (`push_along`). Contact during the coming push is
    unknown; it is assumed to be that at the end of this push.
    """

    shape: Shape | None = None
    orientation: Scalar | None = None

    def bind(self, context: Context) -> "ReferenceProcess":
        """Returns the process for the object of one sequence."""
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
        """Returns the pose after a push, and a mask of its small steps with contact.

        The object rests if the state has no contact (s < 0.5).
        """
        shape, orientation = self._object()
        pose = jnp.append(state[:2], state[2] + orientation)
        tip = tip_of(state)
        path = straight_path(tip, tip + inputs, SMALL_STEPS)
        contact = push_along(shape, pose, path, friction, **disturbance)
        return jnp.where(state[9] >= 0.5, contact.pose[-1], pose), contact.touches

    def _object(self) -> tuple[Shape, Scalar]:
        """Returns the object, and its orientation at the start of the sequence."""
        if self.shape is None or self.orientation is None:
            raise ValueError(
                "The reference process must know the object that is pushed, but it is not bound to "
                "a sequence: use `model.bind(context)`."
            )
        return self.shape, self.orientation


def tip_of(state: State) -> Float[Array, " 2"]:
    """Returns the position of the pusher, which is the contact point if the normal is zero."""
    return state[5:7] - TIP_RADIUS * state[7:9]


def friction_of(state: State) -> Friction:
    """Returns the friction of a state: c² = 100 l, μ = tan α."""
    return Friction(10 * jnp.sqrt(state[3]), jnp.tan(state[4] * (math.pi / 180)), jnp.zeros(2))


class ReferenceNoise(AbstractNoise):
    """The covariance of the pose under the simulator's disturbances, estimated from draws.

    `spreads` are those of all objects, and `number` is the index of the pushed object.

    The draws are the same for all states. The components of contact have fixed variances. If the
    state has contact but the simulated pusher misses the object, its pose must be inaccurate, and
    the motion is as uncertain as motions are in general (`MOTION_STDS`).
    """

    spreads: Spread
    process: ReferenceProcess = ReferenceProcess()
    number: Int[Array, ""] | int = 0

    @property
    def size(self) -> int:
        return 10

    def bind(self, context: Context) -> "ReferenceNoise":
        """Returns the noise for the object of one sequence."""
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
    """Returns the noise of the simulator, which is never trained."""
    # The spread within a sequence does not depend on its common part, so any key will do.
    spreads = [of_sequence(*real_friction(name), key=jr.key(0))[1] for name in NAMES]
    return FixedNoise(ReferenceNoise(jax.tree.map(lambda *numbers: jnp.stack(numbers), *spreads)))


class ReferenceSensor(AbstractReader):
    """Reads all visible quantities with an accuracy of a pixel, and states this accuracy.

    Positions are those of pixel centres. Angles are rounded to a pixel at the mean distance of the
    object's points from its centre. Errors are thus uniform with the stated variance.
    The reading must have the true `contact`: contact point, normal and contact.
    """

    frames_at_once: ClassVar[int | None] = FRAMES_AT_ONCE
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
        """Rounds a position to a pixel; returns it, a factor of its covariance, and its width."""
        pixel = jnp.floor(self.camera.project_position(place)) + 0.5
        slope = jax.jacfwd(self.camera.position_at)(pixel)
        width = jnp.sqrt(jnp.abs(slope[0, 0] * slope[1, 1] - slope[0, 1] * slope[1, 0]))
        return self.camera.position_at(pixel), UNIFORM_STD * slope, width

    def _seen(self, reading: Reading, context: Context) -> Bool[Array, " 8"]:
        """Returns a mask of the components that are not hidden by the arm."""
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
    """Returns a unit vector with rounded angle; zero for a zero vector."""
    angle = _rounded(jnp.arctan2(vector[1], vector[0]), unit)
    direction = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return jnp.where((vector**2).sum() > 0, direction, 0.0)
