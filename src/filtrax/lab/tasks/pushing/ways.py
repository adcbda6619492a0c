"""Ways of the pusher around an object without touching it.

A way leads away from the middle of the object to a circle around it, along the circle in the
shorter direction, and back towards the middle. On its first and last part, the distance to a convex
object is monotonic. Steps are straight, and none contains a corner between two parts.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax._types import Scalar
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, Shape

CLEARANCE = 8.0
"""The smallest distance between tip and object on the circle, in mm."""

_FULL_TURN = 2 * math.pi


class Way(eqx.Module):
    """A way around an object, with steps of equal length within each part.

    **Attributes:**

    - `start`, `end`: initial and final position of the tip, in mm.
    - `middle`, `radius`: centre and radius of the circle, in mm.
    - `angle`, `turn`: angle at which the way enters the circle, and angle along it, in radians.
    - `counts`: the number of steps of the three parts.
    """

    start: Float[Array, " 2"]
    end: Float[Array, " 2"]
    middle: Float[Array, " 2"]
    radius: Scalar
    angle: Scalar
    turn: Scalar
    counts: Int[Array, " 3"]

    @property
    def num_steps(self) -> Int[Array, ""]:
        """The number of steps."""
        return self.counts.sum(dtype=self.counts.dtype)

    def place(self, number: Int[Array, ""]) -> Float[Array, " 2"]:
        """Returns the position of the tip after a number of steps."""
        out, around, _ = self.counts
        begun = jnp.stack([jnp.zeros_like(out), out, out + around])
        shares = (number - begun) / jnp.maximum(self.counts, 1)
        leaving, turning, coming = jnp.clip(shares.astype(self.radius.dtype), 0.0, 1.0)
        entry, exit = self._on_circle(0.0), self._on_circle(self.turn)
        outward = self.start + leaving * (entry - self.start)
        inward = exit + coming * (self.end - exit)
        along = self._on_circle(turning * self.turn)
        return jnp.where(number <= out, outward, jnp.where(coming > 0, inward, along))

    def _on_circle(self, turned: Scalar | float) -> Float[Array, " 2"]:
        angle = self.angle + turned
        return self.middle + self.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def way_around(
    shape: Shape,
    middle: Float[Array, " 2"],
    start: Float[Array, " 2"],
    end: Float[Array, " 2"],
    longest: float,
) -> Way:
    """Plans a way around an object centred at `middle`, in steps of at most `longest` mm."""
    squares = (shape.outline**2).sum(-1)
    radius = jnp.sqrt(squares.max()) + TIP_RADIUS + CLEARANCE
    (first, out), (last, back) = (_polar(place - middle) for place in (start, end))
    turn = (last - first + math.pi) % _FULL_TURN - math.pi
    lengths = jnp.stack([jnp.abs(radius - out), jnp.abs(turn) * radius, jnp.abs(radius - back)])
    counts = jnp.maximum(jnp.ceil(lengths / longest).astype(int), jnp.asarray([1, 0, 1]))
    return Way(start, end, middle, radius, first, turn, counts)


def _polar(vector: Float[Array, " 2"]) -> tuple[Scalar, Scalar]:
    return jnp.arctan2(vector[1], vector[0]), jnp.sqrt(vector @ vector)
