"""What makes real pushes differ from the physics, as numbers that were fitted to real pushes.

Under an object, pressure and friction change from push to push, and within one push the object does
not follow the limit surface exactly. `disturbed` draws both: a c, a μ and a centre of friction for
the push, and a turning about the contact and a sliding along the tip that are partly the same all
along the push and partly new in each small step. They are larger where the contact slides.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax.arrays import Key, Scalar
from filtrax.checks import check_known
from filtrax.tasks.pushing.calibration import Calibration, Groups, predicted_end
from filtrax.tasks.pushing.contact import Disturbance, Friction
from filtrax.tasks.pushing.physics import Push, Touch, turned_left
from filtrax.tasks.pushing.shapes import NAMES


class Spread(eqx.Module):
    """How much pushes of one object differ from each other.

    **Attributes:**

    - `length`, `coefficient`: standard deviations of ln c and ln μ.
    - `centre`: of the centre of friction along both axes, in mm.
    - `slide`: of the sliding along the tip, in mm for each mm of the push.
    - `spin`: of the turning about the contact, in degrees for each mm of the push.
    - `tail`: of the logarithm of a factor for all of these, drawn once for each push.
    """

    length: Float[Array, "*b"]
    coefficient: Float[Array, "*b"]
    centre: Float[Array, "*b"]
    slide: Float[Array, "*b"]
    spin: Float[Array, "*b"]
    tail: Float[Array, "*b"]


_REAL = {
    # c, μ; spreads of ln c, ln μ, centre, slide, spin, tail
    "rect1": (33.4, 0.135, 0.203, 0.144, 1.954, 0.008, 0.033, 0.430),
    "rect2": (20.5, 0.204, 0.310, 0.345, 2.002, 0.009, 0.027, 0.285),
    "rect3": (55.7, 0.239, 0.204, 0.269, 0.644, 0.023, 0.014, 0.676),
    "tri1": (48.4, 0.192, 0.213, 0.468, 1.536, 0.032, 0.032, 0.568),
    "tri2": (41.3, 0.147, 0.274, 0.114, 0.832, 0.010, 0.036, 0.601),
    "tri3": (76.7, 0.212, 0.063, 0.513, 1.734, 0.016, 0.033, 0.789),
    "ellip1": (25.3, 0.225, 0.511, 0.101, 1.700, 0.015, 0.018, 0.463),
    "ellip2": (15.3, 0.192, 0.645, 0.201, 0.652, 0.009, 0.018, 0.475),
    "ellip3": (29.4, 0.212, 0.199, 0.137, 3.761, 0.006, 0.028, 0.160),
    "hex": (40.0, 0.194, 0.340, 0.348, 3.450, 0.015, 0.027, 0.831),
    "butter": (36.6, 0.262, 0.124, 0.167, 2.638, 0.023, 0.046, 0.323),
}
"""Fitted to pushes on the surface "abs": c and μ to where one half of them ends, the spreads to the
quantiles of how far all of them end from where the physics says."""


def real_friction(name: str) -> tuple[Friction, Spread]:
    """The friction of an object on the surface "abs", and how much it differs among pushes."""
    check_known("An object must be one of the data set", {name} - {*_REAL}, NAMES)
    length, coefficient, *spreads = (jnp.asarray(number, float) for number in _REAL[name])
    return Friction(length, coefficient, jnp.zeros(2)), Spread(*spreads)


SLIDING_FACTOR = 2.0
"""How much larger disturbances are where the contact slides."""
STEP_SHARE = 0.5
"""Of the variance of slide and spin in 10 mm of a push: what is drawn anew in each small step."""
_STEP_REACH = 10.0


def disturbed(friction: Friction, spread: Spread, *, key: Key) -> tuple[Friction, Disturbance]:
    """The friction of one push, and the disturbance of its small steps for `push_along`."""
    keys = jr.split(key, 5)
    dtype = friction.length.dtype
    factor = jnp.exp(spread.tail * jr.normal(keys[0], (), dtype))
    drawn = Friction(
        friction.length * jnp.exp(_limited(factor * spread.length * jr.normal(keys[1], (), dtype))),
        friction.coefficient
        * jnp.exp(_limited(factor * spread.coefficient * jr.normal(keys[2], (), dtype))),
        friction.centre + factor * spread.centre * jr.normal(keys[3], (2,), dtype),
    )
    stds = factor * jnp.stack([spread.slide, spread.spin])
    bias = math.sqrt(1 - STEP_SHARE) * stds * jr.normal(keys[4], (2,), dtype)

    def disturb(touch: Touch, result: Push, key: Key) -> Float[Array, " 3"]:
        length = _length(touch.displacement)
        # White noise whose sum over 10 mm has the stated share of the variance there.
        white = math.sqrt(STEP_SHARE * _STEP_REACH) * stds * jr.normal(key, (2,), dtype)
        scale = jnp.where(result.sticks, 1.0, SLIDING_FACTOR)
        slide, spin = scale * (length * bias + jnp.sqrt(length) * white)
        turned = spin * (math.pi / 180) * turned_left(touch.offset)
        return jnp.append(slide * turned_left(touch.normal) - turned, spin)

    return drawn, disturb


def simulated_ends(
    groups: Groups, calibration: Calibration, spreads: Spread, *, key: Key
) -> Float[np.ndarray, "shapes places 3"]:
    """Where disturbed pushes end, if they begin as real ones do.

    `calibration` and `spreads` have a leading axis of objects.
    """
    keys = jr.split(key, groups.starts.shape[:2])
    inputs = (groups.shapes, groups.starts, groups.tips, calibration, spreads)
    return np.asarray(_simulated_ends(*inputs, keys, groups.num_steps))


@eqx.filter_jit
def _simulated_ends(shapes, starts, tips, calibration, spreads, keys, num_steps):
    def of_push(shape, start, tips, calibration, spread, key):
        friction_key, key = jr.split(key)
        friction, disturb = disturbed(calibration.friction, spread, key=friction_key)
        drawn = Calibration(friction, calibration.registration)
        return predicted_end(shape, start, tips, drawn, num_steps, disturb=disturb, key=key)

    of_object = jax.vmap(of_push, (None, 0, 0, None, None, 0))
    return jax.vmap(of_object)(shapes, starts, tips, calibration, spreads, keys)


def _limited(logarithm: Array) -> Array:
    """Factors of friction stay between a third and three."""
    return jnp.clip(logarithm, -math.log(3.0), math.log(3.0))


def _length(vector: Array) -> Scalar:
    squared = vector @ vector
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
