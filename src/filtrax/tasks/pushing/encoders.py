"""From a scene to features: what the sensor of the pushing task looks at."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from filtrax.arrays import Context, Key, Reading
from filtrax.tasks.pushing.network import Features, PushingNetwork
from filtrax.tasks.pushing.render import Image, Scene, render
from filtrax.tasks.pushing.shapes import Shape, all_shapes

COARSE = 2
"""How many points of the maps of distances become one: less than a pixel shows is enough."""


class PushingEncoder(eqx.Module):
    """Draws the image of a reading and reads it.

    A reading has the object's `pose` (x and y in mm, absolute orientation in degrees), and where
    the pusher is, `tip`, and will be after the coming push, `next_tip` (both in mm). The context
    has the number of the object's `shape`, the `look` of the scene, where the `arm` comes from, and
    `first`, pose and tip in the image that rotations are counted from.

    That image is of the context alone. So however many readings this is mapped over, it is drawn
    and read once per sequence. No gradient passes through it, because a glimpse has none with
    respect to its place.
    """

    network: PushingNetwork

    def __call__(self, reading: Reading, context: Context, *, key: Key) -> Features:
        del key
        first = self.see(context["first"], context)
        _, pixel = self.network.locate(first)
        glimpse = self.network.object_glimpse(first, pixel)
        image = self.see(reading, context)
        return self.network(image, reading["tip"], reading["next_tip"], glimpse)

    def see(self, reading: Reading, context: Context) -> Image:
        """The image of a reading."""
        shape = shape_of_number(context["shape"])
        tip, arm, look = reading["tip"], context["arm"], context["look"]
        return render(Scene(reading["pose"], shape, tip, arm, look), self.network.camera)


def shape_of_number(number: Int[Array, ""]) -> Shape:
    """One of the objects, with a coarser map of distances."""
    return jax.tree.map(lambda table: jnp.asarray(table)[number], _coarse_shapes())


@functools.cache
def _coarse_shapes() -> Shape:
    """All objects, as NumPy arrays: what is kept must not belong to a program being traced."""
    with jax.ensure_compile_time_eval():
        shapes = all_shapes()
        coarse = shapes.distance[:, ::COARSE, ::COARSE]
        spacing = COARSE * shapes.spacing
        shapes = dataclasses.replace(shapes, distance=coarse, spacing=spacing)
    return jax.tree.map(np.asarray, shapes)
