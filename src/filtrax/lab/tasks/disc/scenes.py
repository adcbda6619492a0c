"""Draws sequences: motion, radii and colours of all discs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from filtrax._types import Key
from filtrax.lab.tasks.disc.images import CANVAS, RED, pixel_centre
from filtrax.lab.tasks.disc.physics import process
from filtrax.linalg import precise
from filtrax.noise import AbstractNoise

TARGET_RADIUS = 7
START_VELOCITY_STD = 3.0
DISTRACTOR_RADII = (3, 9)
DISTRACTOR_COLORS = (0b010, 0b001, 0b011, 0b101, 0b110, 0b111)
"""Green, blue, cyan, magenta, yellow and white: everything but red and black."""

BLOCK = 128
"""The number of sequences that are drawn at once."""


class Scenes(eqx.Module):
    """Sequences of T + 1 times, of which the first is the start; disc 0 is the target.

    **Attributes:**

    - `states`: the states of the target.
    - `centres`: column and row of the centre pixels of all discs.
    - `radii`, `colors`: radii and colour codes of all discs, constant in time.
    """

    states: Float[Any, "*n times 4"]
    centres: Int[Any, "*n times discs 2"]
    radii: Int[Any, "*n discs"]
    colors: Int[Any, "*n discs"]


def draw_scenes(
    noise: AbstractNoise, num_scenes: int, num_discs: int, num_steps: int, *, key: Key
) -> Scenes:
    """Draws sequences, each with a key folded from `key` and its index.

    Sequences are drawn in blocks of a fixed size and joined on the host. One compiled program thus
    serves data sets of all sizes, and a sequence is bitwise equal in all of them.
    """
    firsts = np.arange(0, num_scenes, BLOCK)
    blocks = [_draw_block(noise, first, num_discs, num_steps, key) for first in firsts]
    joined = lambda *parts: np.concatenate([*map(np.asarray, parts)])[:num_scenes]  # noqa: E731
    return jax.tree.map(joined, *blocks)


@eqx.filter_jit
@precise
def _draw_block(
    noise: AbstractNoise, first: Int[Any, ""], num_discs: int, num_steps: int, key: Key
) -> Scenes:
    def scene(index: Array) -> Scenes:
        # Draw few flat arrays, because random draws dominate the compile time.
        uniform_key, normal_key = jr.split(jr.fold_in(key, index))
        uniforms = jr.uniform(uniform_key, (num_discs * 4,)).reshape(num_discs, 4)
        normals = jr.normal(normal_key, (num_discs * (1 + num_steps) * 4,))
        normals = normals.reshape(num_discs, 1 + num_steps, 4)
        positions, looks = jnp.split(uniforms, 2, axis=1)
        starts = jnp.concatenate(
            [CANVAS * (positions - 0.5), START_VELOCITY_STD * normals[:, 0, 2:]], axis=1
        )
        states = jax.vmap(lambda start, normals: _move(noise, start, normals))(
            starts, normals[:, 1:]
        )
        centres = jnp.swapaxes(jax.vmap(jax.vmap(pixel_centre))(states), 0, 1)
        return Scenes(states[0], centres, *_appearance(looks))

    return jax.vmap(scene)(first + jnp.arange(BLOCK))


def _move(
    noise: AbstractNoise, start: Float[Array, " 4"], normals: Float[Array, "t 4"]
) -> Float[Array, "times 4"]:
    """Returns the states of a disc, including its start."""

    def step(state: Array, normal: Array) -> tuple[Array, Array]:
        state = process(state) + noise(state, None) @ normal
        return state, state

    _, states = jax.lax.scan(step, start, normals)
    return jnp.concatenate([start[None], states])


def _appearance(uniforms: Float[Array, "discs 2"]) -> tuple[Array, Array]:
    """Returns radii and colours: those of the target, then random ones from uniform numbers."""
    smallest, largest = DISTRACTOR_RADII
    radii = smallest + ((largest + 1 - smallest) * uniforms[:, 0]).astype(jnp.int8)
    choice = (len(DISTRACTOR_COLORS) * uniforms[:, 1]).astype(jnp.int8)
    colors = jnp.asarray(DISTRACTOR_COLORS, jnp.int8)[choice]
    return radii.at[0].set(TARGET_RADIUS), colors.at[0].set(RED)
