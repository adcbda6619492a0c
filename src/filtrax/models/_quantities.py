"""Quantities that sensors measure, as geometry: functions of a body."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._given import given_field
from filtrax._types import Scalar
from filtrax.models._motions import Body, direction

Fields = Mapping[str, Any]
"""The columns of a reading that a sensor uses besides the reading itself."""

FRAMES = ("world", "body")


class AbstractQuantity(eqx.Module):
    """A function of the body that a sensor sits on."""

    @property
    @abc.abstractmethod
    def needs(self) -> tuple[str, ...]:
        """The attributes of a `Body` that must be known."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Columns of a reading that it uses."""
        return ()

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        """The values that some of these columns may have."""
        return {}

    @abc.abstractmethod
    def angles(self, size: int) -> tuple[bool, ...]:
        """Which components are angles."""

    @abc.abstractmethod
    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        """The value without noise, bias and scale."""


class Position(AbstractQuantity):
    """The position in the world."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("position",)

    def angles(self, size: int) -> tuple[bool, ...]:
        return (False,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        del fields
        return body.position


class Velocity(AbstractQuantity):
    """The velocity along the axes of the world, or of the body in the plane."""

    frame: str = eqx.field(default="world", static=True)

    def __check_init__(self):
        _check_frame(self.frame)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("velocity",) if self.frame == "world" else ("velocity", "heading")

    def angles(self, size: int) -> tuple[bool, ...]:
        return (False,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        del fields
        if self.frame == "world":
            return body.velocity
        return turned(body.velocity, -body.heading)


class Speed(AbstractQuantity):
    """The speed ahead, negative backwards; without a heading the length of the velocity."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("velocity",)

    def angles(self, size: int) -> tuple[bool, ...]:
        return (False,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        del fields
        if body.heading is None:
            return length(body.velocity)[None]
        return (body.velocity @ direction(body.heading))[None]


class YawRate(AbstractQuantity):
    """The turn rate, positive from the x axis to the y axis."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("yaw_rate",)

    def angles(self, size: int) -> tuple[bool, ...]:
        return (False,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        del fields
        return body.yaw_rate[None]


class Heading(AbstractQuantity):
    """The direction of the body's x axis, from that of the world towards the y axis."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("heading",)

    def angles(self, size: int) -> tuple[bool, ...]:
        return (True,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        del fields
        return body.heading[None]


class Landmarks(eqx.Module):
    """A map of surveyed landmarks; it is given, and never trained.

    **Arguments:**

    - `ids`: the number of each landmark, as the log has it.
    - `positions`: a row for each of them.
    - `which`: the column of a reading that holds the number.
    """

    ids: tuple[int, ...] = eqx.field(static=True)
    positions: Float[Array, "n d"] = given_field()
    which: str = eqx.field(static=True)

    def __init__(self, ids: Any, positions: Any, which: str):
        numbers, places = np.asarray(ids), np.asarray(positions, float)
        if numbers.ndim != 1 or places.shape[:1] != numbers.shape or places.ndim != 2:
            raise ValueError(
                "`positions` must have a row for each of `ids`, got shapes "
                f"{places.shape} and {numbers.shape}."
            )
        if len({*numbers.tolist()}) != len(numbers) or not (numbers == np.rint(numbers)).all():
            raise ValueError(f"`ids` must be distinct whole numbers, got {numbers.tolist()}.")
        if not np.isfinite(places).all():
            raise ValueError("`positions` must be finite.")
        self.ids = tuple(int(number) for number in numbers)
        self.positions = jnp.asarray(places, jnp.result_type(float))
        self.which = which

    @property
    def fields(self) -> tuple[str, ...]:
        """The column that holds the number."""
        return (self.which,)

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        """The numbers that there are."""
        return {self.which: tuple(float(number) for number in self.ids)}

    def index(self, fields: Fields) -> Array:
        """The place of a reading's landmark in the map."""
        number = jnp.asarray(fields[self.which])
        return jnp.argmin(jnp.abs(np.asarray(self.ids, number.dtype) - number))

    def __call__(self, fields: Fields) -> Float[Array, " d"]:
        """The position of the landmark that a reading belongs to."""
        return self.positions[self.index(fields)]


class PlaceColumns(eqx.Module):
    """The position of a landmark in columns of the reading itself."""

    columns: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *columns: str):
        self.columns = columns

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that hold the position."""
        return self.columns

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        """Nothing: any position will do."""
        return {}

    def __call__(self, fields: Fields) -> Float[Array, " d"]:
        """The position of the landmark that a reading belongs to."""
        return jnp.stack([fields[name] for name in self.columns])


Places = Landmarks | PlaceColumns


class Range(AbstractQuantity):
    """The distance to a landmark; at the landmark itself its gradient is zero."""

    landmarks: Places

    @property
    def needs(self) -> tuple[str, ...]:
        return ("position",)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.landmarks.fields

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        return self.landmarks.allowed

    def angles(self, size: int) -> tuple[bool, ...]:
        return (False,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        return length(self.landmarks(fields) - body.position)[None]


class Bearing(AbstractQuantity):
    """The direction to a landmark, from the body's x axis or from the world's."""

    landmarks: Places
    frame: str = eqx.field(default="body", static=True)

    def __check_init__(self):
        _check_frame(self.frame)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("position", "heading") if self.frame == "body" else ("position",)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.landmarks.fields

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        return self.landmarks.allowed

    def angles(self, size: int) -> tuple[bool, ...]:
        return (True,) * size

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        angle = angle_of(self.landmarks(fields) - body.position)
        return (angle - body.heading if self.frame == "body" else angle)[None]


class RangeBearing(AbstractQuantity):
    """The distance and the direction to a landmark."""

    landmarks: Places
    frame: str = eqx.field(default="body", static=True)

    def __check_init__(self):
        _check_frame(self.frame)

    @property
    def needs(self) -> tuple[str, ...]:
        return Bearing(self.landmarks, self.frame).needs

    @property
    def fields(self) -> tuple[str, ...]:
        return self.landmarks.fields

    @property
    def allowed(self) -> dict[str, tuple[float, ...]]:
        return self.landmarks.allowed

    def angles(self, size: int) -> tuple[bool, ...]:
        del size
        return (False, True)

    def __call__(self, body: Body, fields: Fields) -> Float[Array, " z"]:
        bearing = Bearing(self.landmarks, self.frame)(body, fields)
        return jnp.concatenate([Range(self.landmarks)(body, fields), bearing])


def turned(vector: Float[Array, " 2"], angle: Scalar) -> Float[Array, " 2"]:
    """A vector of the plane, turned by an angle."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1]])


def length(vector: Float[Array, " d"]) -> Scalar:
    """The length of a vector, with a gradient of zero where it is zero."""
    square = (vector**2).sum()
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def angle_of(vector: Float[Array, " 2"]) -> Scalar:
    """The direction of a vector, zero with a gradient of zero where the vector is zero."""
    somewhere = (vector != 0).any()
    ahead = jnp.asarray([1.0, 0.0], vector.dtype)
    safe = jnp.where(somewhere, vector, ahead)
    return jnp.arctan2(safe[1], safe[0])


def _check_frame(frame: str) -> None:
    if frame not in FRAMES:
        raise ValueError(f"`frame` must be one of {FRAMES}, got {frame!r}.")


def columns_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)
