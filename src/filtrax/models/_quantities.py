"""Quantities that sensors measure, as geometry: functions of a body."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.models._motions import Body, direction
from filtrax.models._places import Fields, Places

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
