"""How the pusher gets around an object without touching it.

Away from the middle of the object to a circle about it, along the circle the short way round, and
back towards the middle. On the first and the last part the tip only gets farther from a convex
object, or only nearer to it. Steps are straight, and none passes a corner between two parts.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax._types import Scalar
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, Shape

CLEARANCE = 8.0
"""Between the tip and the object in mm, on the circle."""

_FULL_TURN = 2 * math.pi


class Way(eqx.Module):
    """A way around an object in steps of equal lengths on each of its parts.

    **Attributes:**

    - `start`, `end`: places of the tip, in mm.
    - `middle`, `radius`: of the circle.
    - `angle`, `turn`: where the circle is entered, and how far the way follows it, in radians.
    - `counts`: numbers of steps: out, around and in.
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
        """How many steps there are."""
        return self.counts.sum(dtype=self.counts.dtype)

    def place(self, number: Int[Array, ""]) -> Float[Array, " 2"]:
        """Where the tip is after this many steps."""
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
    """The way around an object that is there, in steps of at most `longest` mm."""
    squares = (shape.outline**2).sum(-1)
    radius = jnp.sqrt(squares.max()) + TIP_RADIUS + CLEARANCE
    (first, out), (last, back) = (_polar(place - middle) for place in (start, end))
    turn = (last - first + math.pi) % _FULL_TURN - math.pi
    lengths = jnp.stack([jnp.abs(radius - out), jnp.abs(turn) * radius, jnp.abs(radius - back)])
    counts = jnp.maximum(jnp.ceil(lengths / longest).astype(int), jnp.asarray([1, 0, 1]))
    return Way(start, end, middle, radius, first, turn, counts)


def _polar(vector: Float[Array, " 2"]) -> tuple[Scalar, Scalar]:
    return jnp.arctan2(vector[1], vector[0]), jnp.sqrt(vector @ vector)
