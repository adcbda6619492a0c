"""A learned correction of the physics, trained on the ends of real pushes."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from filtrax._types import Key
from filtrax.lab.tasks.pushing.calibration import Calibration, Groups, predicted_end
from filtrax.lab.tasks.pushing.physics import Push, Touch, turned_left
from filtrax.networks import Perceptron

WIDTH = 32
REACH = 50.0
"""The unit of lengths in network inputs, in mm."""


NUM_FEATURES = 7
_MIRROR = np.asarray([1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0])


class LearnedCorrection(eqx.Module):
    """A network that adds sliding, and rotation about the contact, to a push.

    Neither moves the contact along the normal, so that the tip keeps touching the object.
    The inputs do not depend on the frame: the contact relative to the normal, the direction of the
    push, c, the result of the physics, and the object (one-hot).
    """

    network: Perceptron
    object: Float[Array, "*b objects"]
    """The one-hot encoding of the object."""

    def __call__(self, touch: Touch, result: Push) -> Float[Array, " 3"]:
        normal, sideways = touch.normal, turned_left(touch.normal)
        squared = touch.displacement @ touch.displacement
        moves = squared > 1e-12
        length = jnp.where(moves, jnp.sqrt(jnp.where(moves, squared, 1.0)), 0.0)
        per_length = jnp.where(moves, 1 / jnp.where(moves, length, 1.0), 0.0)
        direction = per_length * touch.displacement
        slip = per_length * (touch.displacement - result.contact)
        turn = per_length * result.motion[2] * (math.pi / 180) * REACH
        seen = [
            touch.offset @ normal / REACH,
            touch.offset @ sideways / REACH,
            direction @ normal,
            direction @ sideways,
            slip @ sideways,
            turn,
            jnp.sqrt(touch.squared_length) / REACH,
        ]
        here = jnp.concatenate([jnp.stack(seen), self.object])
        # Make the correction equivariant under mirroring.
        mirror = jnp.asarray(np.append(_MIRROR, np.ones(self.object.size)), here.dtype)
        slide, spin = self.network(here) - self.network(mirror * here)
        angle = length * spin / REACH
        moved = length * slide * sideways - angle * turned_left(touch.offset)
        return jnp.append(moved, angle * (180 / math.pi))


@dataclasses.dataclass(frozen=True)
class ResidualTraining:
    """The settings for training the correction, by AdamW through simulations of whole pushes."""

    num_steps: int = 1200
    batch: int = 24
    """The number of pushes of each object in a batch."""
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    coarseness: int = 4
    """The factor on the length of simulated steps, relative to predictions."""
    scale: float = 1.0
    """The scale s of the robust loss in mm and degrees, as in `calibration.fit`."""


def train_corrections(
    groups: Groups,
    calibration: Calibration,
    settings: ResidualTraining,
    *,
    key: Key,
) -> LearnedCorrection:
    """Trains corrections for all objects of the pushes, with a leading axis of objects.

    They share one network.
    """
    count = len(groups.names)
    network_key, key = jr.split(key)
    data = (groups.shapes, groups.starts, groups.tips, groups.ends, calibration)
    counts = jnp.asarray(groups.weights.sum(1), int)
    path_steps = max(groups.num_steps // settings.coarseness, 1)
    network = _trained(settings, path_steps, untrained(count, key=network_key), data, counts, key)
    # Copy the network for each object.
    arrays, rest = eqx.partition(network, eqx.is_array)
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), arrays)
    return LearnedCorrection(eqx.combine(copies, rest), jnp.eye(count, dtype=float))


def untrained(num_objects: int, *, key: Key) -> Perceptron:
    """Makes a fresh network, whose corrections are close to zero."""
    return Perceptron((NUM_FEATURES + num_objects, WIDTH, WIDTH, 2), final_std=1e-3, key=key)


@eqx.filter_jit
def _trained(settings, path_steps, network, data, counts, key):
    parameters, static = eqx.partition(network, eqx.is_inexact_array)
    optimizer = optax.adamw(settings.learning_rate, weight_decay=settings.weight_decay)

    def loss(parameters, key):
        return _loss(settings, path_steps, eqx.combine(parameters, static), data, counts, key)

    def step(carry, inputs):
        parameters, state = carry
        key, share = inputs
        gradient = jax.grad(loss)(parameters, key)
        with jax.numpy_dtype_promotion("standard"):  # optax counts steps in int32
            updates, state = optimizer.update(gradient, state, parameters)
        updates = jax.tree.map(lambda update: share.astype(update.dtype) * update, updates)
        return (optax.apply_updates(parameters, updates), state), None

    start = (parameters, optimizer.init(parameters))
    # Decay the learning rate to zero by half a cosine.
    shares = (1 + jnp.cos(jnp.linspace(0.0, math.pi, settings.num_steps))) / 2
    keys = jr.split(key, settings.num_steps)
    (parameters, _), _ = jax.lax.scan(step, start, (keys, shares))
    return eqx.combine(parameters, static)


def _loss(settings, path_steps, network, data, counts, key):
    """Averages the loss over random pushes of each object."""

    def of_object(shape, starts, tips, ends, calibration, number, count, key):
        chosen = jr.randint(key, (settings.batch,), 0, count)
        correct = LearnedCorrection(network, number)

        def of_push(start, tips, end):
            found = predicted_end(shape, start, tips, calibration, path_steps, correct)
            return _robust(found - end, settings.scale)

        return jax.vmap(of_push)(starts[chosen], tips[chosen], ends[chosen]).mean()

    objects = jnp.eye(len(counts), dtype=float)
    mapped: Any = jax.vmap(of_object)
    return mapped(*data, objects, counts, jr.split(key, len(counts))).mean()


def _robust(error: Float[Array, " 3"], scale: float) -> Float[Array, ""]:
    turned = jnp.remainder(error[2] + 180, 360.0) - 180
    squares = jnp.stack([error[:2] @ error[:2], turned**2])
    return jnp.log1p(squares / scale**2).sum()
