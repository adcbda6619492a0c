"""A pushing task that is small enough for tests, and what several of them look at."""

import functools

import jax

from filtrax.lab.tasks.pushing import PushingTask
from filtrax.lab.tasks.pushing.shapes import NAMES

__all__ = ["NAMES", "OBJECTS", "TASK", "data", "sequence"]

OBJECTS = ("rect1", "ellip1", "tri1")
TASK = PushingTask(
    objects=OBJECTS,
    image_size=(48, 64),
    num_steps=8,
    num_test_steps=8,
    num_train=6,
    num_validation=6,
    num_test=6,
)


@functools.cache
def data(split="train"):
    return TASK.data(split)


def sequence(number, split="train"):
    return jax.tree.map(lambda leaf: leaf[number], data(split))
