"""Random deviations of pushes from the physics, fitted to real pushes.

Pressure and friction vary with the position and between pushes, and within one push the object does
not follow the limit surface exactly. `of_sequence` draws c and μ of a sequence of pushes.
`disturbed` draws those of one of its pushes, its centre of friction, and rotations about the
contact and slides along the tip, which are partly constant during the push and partly new in each
small step. They are larger while the contact slides.

The numbers were fitted by `benchmarks/pushing_simulator.py`. Like those of `simulator`, they must
not change, because trained models and records depend on them.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._types import Key, Scalar
from filtrax.lab.tasks.pushing.calibration import Calibration, Groups, predicted_end
from filtrax.lab.tasks.pushing.contact import Disturbance, Friction
from filtrax.lab.tasks.pushing.physics import Push, Touch, turned_left
from filtrax.lab.tasks.pushing.shapes import NAMES


class Spread(eqx.Module):
    """Standard deviations of the differences between pushes of one object.

    **Attributes:**

    - `length`, `coefficient`: those of ln c and ln μ.
    - `centre`: that of the centre of friction along both axes, in mm.
    - `slide`: that of slides along the tip, in mm per mm of the push.
    - `spin`: that of rotations about the contact, in degrees per mm of the push.
    - `tail`: that of the logarithm of a factor on all of these, drawn once per push.
    """

    length: Float[Array, "*b"]
    coefficient: Float[Array, "*b"]
    centre: Float[Array, "*b"]
    slide: Float[Array, "*b"]
    spin: Float[Array, "*b"]
    tail: Float[Array, "*b"]


_REAL = {
    # c, μ; spreads of ln c, ln μ, centre, slide, spin, tail
    "rect1": (33.5, 0.147, 0.252, 0.227, 1.559, 0.012, 0.022, 0.488),
    "rect2": (20.6, 0.210, 0.209, 0.829, 1.688, 0.008, 0.025, 0.610),
    "rect3": (56.9, 0.248, 0.116, 0.134, 1.186, 0.012, 0.026, 0.820),
    "tri1": (48.0, 0.189, 0.164, 0.307, 1.246, 0.026, 0.036, 0.699),
    "tri2": (44.5, 0.141, 0.217, 0.183, 0.826, 0.010, 0.033, 0.901),
    "tri3": (80.1, 0.193, 0.064, 0.231, 1.057, 0.020, 0.029, 0.972),
    "ellip1": (24.7, 0.227, 0.501, 0.171, 1.822, 0.007, 0.029, 0.370),
    "ellip2": (15.5, 0.186, 0.434, 0.241, 1.118, 0.013, 0.016, 0.603),
    "ellip3": (29.7, 0.219, 0.283, 0.218, 2.023, 0.012, 0.026, 0.467),
    "hex": (40.3, 0.205, 0.305, 0.258, 2.728, 0.016, 0.024, 1.098),
    "butter": (37.6, 0.294, 0.130, 0.181, 3.359, 0.019, 0.036, 0.523),
}
"""Numbers fitted to pushes on the surface "abs": c and μ to their ends, spreads to the quantiles of
the deviations of ends from the physics."""


def real_friction(name: str) -> tuple[Friction, Spread]:
    """Returns the friction of an object on the surface "abs", and its spread between pushes."""
    check_known("An object must be one of the data set", {name} - {*_REAL}, NAMES)
    length, coefficient, *spreads = (jnp.asarray(number, float) for number in _REAL[name])
    return Friction(length, coefficient, jnp.zeros(2)), Spread(*spreads)


SEQUENCE_SHARE = 0.5
"""The share of the variance of ln c and ln μ that is common to all pushes of a sequence."""


def of_sequence(friction: Friction, spread: Spread, *, key: Key) -> tuple[Friction, Spread]:
    """Draws the friction of a sequence; returns it with the remaining spread of its pushes."""
    spreads = jnp.stack([spread.length, spread.coefficient])
    drawn = math.sqrt(SEQUENCE_SHARE) * spreads * jr.normal(key, (2,), spreads.dtype)
    factors, rest = jnp.exp(_limited(drawn)), math.sqrt(1 - SEQUENCE_SHARE) * spreads
    length, coefficient = friction.length * factors[0], friction.coefficient * factors[1]
    own = dataclasses.replace(friction, length=length, coefficient=coefficient)
    return own, dataclasses.replace(spread, length=rest[0], coefficient=rest[1])


SLIDING_FACTOR = 2.0
"""The factor on disturbances while the contact slides."""
STEP_SHARE = 0.5
"""The share of the variance of slide and spin over 10 mm that is drawn anew in each small step."""
_STEP_REACH = 10.0


def disturbed(friction: Friction, spread: Spread, *, key: Key) -> tuple[Friction, Disturbance]:
    """Draws the friction of one push, and returns the disturbance of its steps for `push_along`."""
    dtype = friction.length.dtype
    # Draw all numbers at once, because each draw takes time to compile.
    draws = jr.normal(key, (7,), dtype)
    factor = jnp.exp(spread.tail * draws[0])
    drawn = Friction(
        friction.length * jnp.exp(_limited(factor * spread.length * draws[1])),
        friction.coefficient * jnp.exp(_limited(factor * spread.coefficient * draws[2])),
        friction.centre + factor * spread.centre * draws[3:5],
    )
    stds = factor * jnp.stack([spread.slide, spread.spin])
    bias = math.sqrt(1 - STEP_SHARE) * stds * draws[5:]

    def disturb(touch: Touch, result: Push, key: Key) -> Float[Array, " 3"]:
        length = _length(touch.displacement)
        # White noise whose sum over 10 mm has the share `STEP_SHARE` of the variance.
        white = math.sqrt(STEP_SHARE * _STEP_REACH) * stds * jr.normal(key, (2,), dtype)
        scale = jnp.where(result.sticks, 1.0, SLIDING_FACTOR)
        slide, spin = scale * (length * bias + jnp.sqrt(length) * white)
        turned = spin * (math.pi / 180) * turned_left(touch.offset)
        return jnp.append(slide * turned_left(touch.normal) - turned, spin)

    return drawn, disturb


def simulated_ends(
    groups: Groups, calibration: Calibration, spreads: Spread, *, key: Key
) -> Float[np.ndarray, "shapes places 3"]:
    """Simulates the ends of pushes with the same starts, each in a sequence of its own.

    `calibration` and `spreads` have a leading axis of objects.
    """
    keys = jr.split(key, groups.starts.shape[:2])
    inputs = (groups.shapes, groups.starts, groups.tips, calibration, spreads)
    return np.asarray(_simulated_ends(*inputs, keys, groups.num_steps))


@eqx.filter_jit
def _simulated_ends(shapes, starts, tips, calibration, spreads, keys, num_steps):
    def of_push(shape, start, tips, calibration, spread, key):
        sequence_key, friction_key, key = jr.split(key, 3)
        friction, spread = of_sequence(calibration.friction, spread, key=sequence_key)
        friction, disturb = disturbed(friction, spread, key=friction_key)
        drawn = Calibration(friction, calibration.registration)
        return predicted_end(shape, start, tips, drawn, num_steps, disturb=disturb, key=key)

    of_object = jax.vmap(of_push, (None, 0, 0, None, None, 0))
    return jax.vmap(of_object)(shapes, starts, tips, calibration, spreads, keys)


def _limited(logarithm: Array) -> Array:
    """Limits log factors of friction to factors between a third and three."""
    return jnp.clip(logarithm, -math.log(3.0), math.log(3.0))


def _length(vector: Array) -> Scalar:
    squared = vector @ vector
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
