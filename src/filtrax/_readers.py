"""The declared members of whatever reads: sensors and their encoders.

Training and evaluation ask here how many readings fit into memory, and what can be computed once.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PyTree

from filtrax._types import Context, Inputs, Key, Reading

CPU_SHARE = 8
"""The ratio of images read at once on a GPU and on a CPU, which gains nothing by large batches."""


class AbstractReader(eqx.Module):
    """A sensor or an encoder with something to declare; others count as one with all defaults.

    **Attributes:**

    - `frames_at_once`: the number of readings to read at once, so that they fit into memory; None
      stands for any number.
    - `sequential_members`: True if members of an ensemble should read one after another on a GPU,
      where the gradient of several large convolutions at once takes ten times as long.
    - `own_context`: the entries of the context that nothing else needs, like images.
    """

    frames_at_once: ClassVar[int | None] = None
    sequential_members: ClassVar[bool] = False
    own_context: ClassVar[tuple[str, ...]] = ()

    @property
    def inner(self) -> Any:
        """The part that does the reading, like the encoder of a sensor."""
        return self

    @abc.abstractmethod
    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Any:
        """The measurement of a sensor, or the features of an encoder."""


class AbstractEncoder(AbstractReader):
    """The part of a `NetworkSensor` that makes features of a reading, like an image.

    A function, or any other callable with the arguments of `__call__`, may take its place.
    """


class AbstractSharedEncoder(AbstractEncoder):
    """An encoder without parameters, which processes once what several sequences share."""

    @abc.abstractmethod
    def encode_all(self, data: Any) -> PyTree:
        """The features of a whole data set, the same for all members of an ensemble."""


class Undeclared(AbstractReader):
    """A function that reads."""

    function: Callable[..., Any]

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Any:
        return self.function(reading, inputs, context, key=key)


def reader(sensor: Any) -> AbstractReader:
    """The part of a sensor that reads images: its encoder, also behind a guard, or the sensor."""
    inner = sensor.inner if isinstance(sensor, AbstractReader) else sensor
    return inner if isinstance(inner, AbstractReader) else Undeclared(inner)


def sequences_at_once(sensor: Any, num_steps: int, most: int) -> int:
    """The number of sequences to read at once, so that their images fit into memory.

    It is at most `most`, and smaller if the sensor or its encoder bounds its `frames_at_once`.
    """
    frames = reader(sensor).frames_at_once
    if frames is None:
        return most
    if jax.default_backend() == "cpu":
        frames //= CPU_SHARE
    return min(max(frames // num_steps, 1), most)
