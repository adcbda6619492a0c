"""Renders the images of readings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from filtrax._types import Context, Reading
from filtrax.lab.tasks.pushing.camera import Camera
from filtrax.lab.tasks.pushing.render import Image, Scene, render
from filtrax.lab.tasks.pushing.shapes import Shape, all_shapes

FRAMES_AT_ONCE = 640
"""The number of frames to encode at once outside of training; each takes about ten megabytes."""

COARSE = 2
"""The stride of the coarser maps of distances, whose spacing is still less than a pixel."""


def image_of(reading: Reading, context: Context, camera: Camera) -> Image:
    """Renders a reading, which has the `pose` of the object and the `tip` of the pusher."""
    shape = shape_of_number(context["shape"])
    scene = Scene(reading["pose"], shape, reading["tip"], context["arm"], context["look"])
    return render(scene, camera)


def shape_of_number(number: Int[Array, ""]) -> Shape:
    """Returns the object of an index in `NAMES`, with a coarser map of distances."""
    return jax.tree.map(lambda table: jnp.asarray(table)[number], _coarse_shapes())


@functools.cache
def _coarse_shapes() -> Shape:
    """Returns all objects as NumPy arrays, because a cache must not keep tracers."""
    with jax.ensure_compile_time_eval():
        shapes = all_shapes()
        coarse = shapes.distance[:, ::COARSE, ::COARSE]
        spacing = COARSE * shapes.spacing
        shapes = dataclasses.replace(shapes, distance=coarse, spacing=spacing)
    return jax.tree.map(np.asarray, shapes)
