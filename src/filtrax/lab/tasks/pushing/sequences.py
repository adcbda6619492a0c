"""Data sets of simulated pushes.

All splits have the same objects and different pushes, as in Kloss et al. (2021): filters are tested
with known objects and unseen pushes.
"""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from filtrax._checks import check_known, check_whole
from filtrax._types import Key
from filtrax.lab.tasks.base import SPLITS
from filtrax.lab.tasks.pushing.contact import Friction
from filtrax.lab.tasks.pushing.disturbances import Spread, of_sequence, real_friction
from filtrax.lab.tasks.pushing.physics import half_angle_of
from filtrax.lab.tasks.pushing.shapes import NAMES, Shape, shape
from filtrax.lab.tasks.pushing.simulator import simulate


class Sequences(eqx.Module):
    """Sequences of pushes, with lengths in mm and angles in degrees; moment 0 is the initial one.

    **Attributes:**

    - `shape`: the index of the object in `NAMES`.
    - `friction`: l = c²/100 of the sequence.
    - `half_angle`: α = atan(μ) of the sequence.
    - `poses`: x and y of the centroid, and the absolute orientation.
    - `tips`: positions of the pusher, one more than moments: the step from moment t to t + 1 moves
      it from `tips[t]` to `tips[t + 1]`.
    - `points`, `normals`, `touches`: contact point, inward normal and contact of the *coming* step.
      Without contact, the point is the tip, and the normal is zero.
    - `pushes`: True if the coming step belongs to a push, which may have slid off the object.
    """

    shape: Int[Array, "*n"]
    friction: Float[Array, "*n"]
    half_angle: Float[Array, "*n"]
    poses: Float[Array, "*n moments 3"]
    tips: Float[Array, "*n tips 2"]
    points: Float[Array, "*n moments 2"]
    normals: Float[Array, "*n moments 2"]
    touches: Bool[Array, "*n moments"]
    pushes: Bool[Array, "*n moments"]


def make_sequences(
    split: str,
    *,
    num_sequences: int,
    num_steps: int,
    seed: int,
    objects: Sequence[str] = NAMES,
) -> Sequences:
    """Simulates the sequences of a split, which have one more moment than steps.

    Objects alternate. Each sequence has its own random numbers: it does not depend on the number of
    sequences, and a shorter sequence is the start of a longer one.
    """
    check_known("A split must be one of the three", {split} - {*SPLITS}, SPLITS)
    check_known("Objects must be those of the data set", {*objects} - {*NAMES}, NAMES)
    check_whole("num_sequences", num_sequences, 1)
    check_whole("num_steps", num_steps, 1)
    key = jr.fold_in(jr.key(seed), SPLITS.index(split))
    count = min(len(objects), num_sequences)
    places = -(-num_sequences // count)
    # Simulate objects separately, because each has its own map of distances.
    parts = [
        _of_object(
            shape(name),
            *real_friction(name),
            jnp.asarray(NAMES.index(name), int),
            first + count * jnp.arange(places),
            num_steps + 1,
            key=key,
        )
        for first, name in enumerate(objects[:count])
    ]
    return _in_turn(parts, num_sequences)


@functools.partial(jax.jit, static_argnums=1)
def _in_turn(parts: list[Sequences], num_sequences: int) -> Sequences:
    """Interleaves parts: the first sequence of each part, then the second of each, and so on."""

    def merged(*leaves: Array) -> Array:
        stacked = jnp.stack(leaves, 1)
        return stacked.reshape(-1, *stacked.shape[2:])[:num_sequences]

    return jax.tree.map(merged, *parts)


@eqx.filter_jit
def _of_object(
    shape: Shape,
    friction: Friction,
    spread: Spread,
    object_number: Int[Array, ""],
    numbers: Int[Array, " n"],
    num_moments: int,
    *,
    key: Key,
) -> Sequences:
    """Simulates the sequences of one object with these indices."""

    def one(number: Int[Array, ""]) -> Sequences:
        friction_key, own_key = jr.split(jr.fold_in(key, number))
        own, rest = of_sequence(friction, spread, key=friction_key)
        moments = simulate(shape, own, rest, num_moments, key=own_key)
        return Sequences(
            shape=object_number,
            friction=own.length**2 / 100,
            half_angle=half_angle_of(own.coefficient),
            poses=moments.pose,
            tips=jnp.concatenate([moments.tip, moments.next_tip[-1:]]),
            points=moments.point,
            normals=moments.normal,
            touches=moments.touches,
            pushes=moments.pushes,
        )

    return jax.vmap(one)(numbers)
