"""The geometry of states and observations.

Every sum, difference and mean of states or observations goes through a space, so angles are
handled here and nowhere else.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_known
from filtrax._given import given_field


class AbstractSpace(eqx.Module):
    """A set of points with a geometry. The difference of two points is a tangent."""

    @property
    @abc.abstractmethod
    def size(self) -> int | None:
        """The number of components; None for any number."""

    @property
    @abc.abstractmethod
    def tangent_size(self) -> int | None:
        """The number of components of a difference."""

    @abc.abstractmethod
    def names_of(self, size: int) -> tuple[str, ...]:
        """The names of the components of a vector of this size."""

    @abc.abstractmethod
    def difference(self, a: Float[Array, " x"], b: Float[Array, " x"]) -> Float[Array, " x"]:
        """The difference a - b, the short way round for angles."""

    @abc.abstractmethod
    def add(self, point: Float[Array, " x"], tangent: Float[Array, " x"]) -> Float[Array, " x"]:
        """The point that differs from another one by a tangent; it may lie beyond bounds."""

    @abc.abstractmethod
    def wrap(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """The point of the space that a vector stands for, within its bounds."""

    @abc.abstractmethod
    def inside(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """The closest vector within the bounds."""

    @abc.abstractmethod
    def continued(
        self,
        function: Callable[[Float[Array, " x"]], Float[Array, " y"]],
        vector: Float[Array, " x"],
    ) -> Float[Array, " y"]:
        """Continues a function linearly beyond the bounds, and evaluates it at any vector.

            f(c) + ∂f/∂x(c) (x - c),   c the vector inside that is closest to x

        So the spread of points about a vector inside keeps its width and a linear function stays
        linear, although the function itself is never evaluated outside.
        """

    @abc.abstractmethod
    def mean(
        self,
        points: Float[Array, "n x"],
        weights: Float[Array, " n"],
        reference: Float[Array, " x"] | None = None,
    ) -> Float[Array, " x"]:
        """The weighted mean: a reference point plus the mean of the differences from it.

        Unlike the angle of the mean unit vector this is exact for negative weights, too, as
        long as the points lie within half a period of the reference. Without a reference,
        angles are taken about their circular mean; weights must then be positive.
        """


class Euclidean(AbstractSpace):
    """Vectors of any size, without angles and bounds: the default space."""

    @property
    def size(self) -> None:
        return None

    @property
    def tangent_size(self) -> None:
        return None

    def names_of(self, size: int) -> tuple[str, ...]:
        return tuple(str(number) for number in range(size))

    def difference(self, a: Float[Array, " x"], b: Float[Array, " x"]) -> Float[Array, " x"]:
        return a - b

    def add(self, point: Float[Array, " x"], tangent: Float[Array, " x"]) -> Float[Array, " x"]:
        return point + tangent

    def wrap(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        return vector

    def inside(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        return vector

    def continued(
        self,
        function: Callable[[Float[Array, " x"]], Float[Array, " y"]],
        vector: Float[Array, " x"],
    ) -> Float[Array, " y"]:
        return function(vector)

    def mean(
        self,
        points: Float[Array, "n x"],
        weights: Float[Array, " n"],
        reference: Float[Array, " x"] | None = None,
    ) -> Float[Array, " x"]:
        origin = jnp.zeros_like(points[0]) if reference is None else reference
        return origin + weights @ (points - origin[None, :])


class Space(AbstractSpace):
    """Names, angles and bounds of the components of a vector.

    ```python
    pose = Space(("x", "y", "heading"), angles=("heading",))
    car = Space(("speed", "heading"), angles={"heading": 360.0}, bounds={"speed": (0.0, 60.0)})
    ```

    **Arguments:**

    - `names`: one name per component.
    - `angles`: the names of circular components with period 2π, or a mapping from such names
      to their periods. Their values live in [-period/2, period/2). A period may be an array. With
      a period of zero, which is that of a circle, the angle is always zero.
    - `bounds`: a mapping from names to (lower, upper).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    periods: tuple[float | Array | None, ...] = given_field()
    bounds: tuple[tuple[float, float] | None, ...] = eqx.field(static=True)

    def __init__(
        self,
        names: Sequence[str],
        *,
        angles: Sequence[str] | Mapping[str, float | Array] = (),
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ):
        listed = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
        if isinstance(names, str) or not listed or not names or len({*names}) != len(names):
            raise ValueError(f"`names` must be a sequence of distinct names, got {names!r}.")
        if isinstance(angles, str):
            raise ValueError(f"`angles` must be a sequence of names, got the string {angles!r}.")
        if not isinstance(angles, Mapping):
            angles = dict.fromkeys(angles, 2 * math.pi)
        bounds = {} if bounds is None else bounds
        for argument, named in {"angles": angles, "bounds": bounds}.items():
            unknown = [name for name in named if name not in names]
            check_known(f"`{argument}` must name components of the space", unknown, names)
        _check_numbers(angles, bounds)
        self.names = tuple(names)
        self.periods = tuple(angles.get(name) for name in names)
        self.bounds = tuple(bounds.get(name) for name in names)

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def tangent_size(self) -> int:
        return len(self.names)

    def names_of(self, size: int) -> tuple[str, ...]:
        if size != self.size:
            raise ValueError(
                f"A vector of the space {self.names} must have {self.size} components, got {size}."
            )
        return self.names

    def index(self, *names: str) -> tuple[int, ...]:
        """The positions of the named components."""
        unknown = [name for name in names if name not in self.names]
        check_known("Components must be named as in the space", unknown, self.names)
        return tuple(self.names.index(name) for name in names)

    def difference(self, a: Float[Array, " x"], b: Float[Array, " x"]) -> Float[Array, " x"]:
        return self.wrap_angles(a - b)

    def add(self, point: Float[Array, " x"], tangent: Float[Array, " x"]) -> Float[Array, " x"]:
        return self.wrap_angles(point + tangent)

    def wrap(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        return self.inside(self.wrap_angles(vector))

    def wrap_angles(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """Brings angles into [-period/2, period/2)."""
        circular, periods = self.circular(vector.dtype)
        if not circular.any():
            return vector
        half = periods / 2
        # As exact as the angle itself, and far fewer operations than a remainder.
        turned = vector - periods * jnp.floor(vector / periods + 0.5)
        # Rounding can leave the turned angle just outside of the interval.
        turned = jnp.where(turned >= half, turned - periods, turned)
        turned = jnp.where(turned < -half, turned + periods, turned)
        outside = (vector < -half) | (vector >= half)
        return self._without_undefined(jnp.where(circular & outside, turned, vector))

    def inside(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        if not self._has_bounds:
            return vector
        ends = [(-np.inf, np.inf) if bound is None else bound for bound in self.bounds]
        lower, upper = np.asarray(ends, vector.dtype).T
        return jnp.clip(vector, lower, upper)

    def continued(
        self,
        function: Callable[[Float[Array, " x"]], Float[Array, " y"]],
        vector: Float[Array, " x"],
    ) -> Float[Array, " y"]:
        if not self._has_bounds:
            return function(vector)
        closest = self.inside(vector)
        value, change = jax.jvp(function, (closest,), (vector - closest,))
        return value + change

    def mean(
        self,
        points: Float[Array, "n x"],
        weights: Float[Array, " n"],
        reference: Float[Array, " x"] | None = None,
    ) -> Float[Array, " x"]:
        if reference is None:
            reference = self._circular_mean(points, weights)
        offsets = jax.vmap(self.difference, (0, None))(points, reference)
        return self.wrap(reference + weights @ offsets)

    def circular(self, dtype) -> tuple[np.ndarray, Array | np.ndarray]:
        """A mask of the angles, and all periods, with 1 in the place of none and of zero."""
        circular = np.asarray([period is not None for period in self.periods])
        periods = [1.0 if period is None else period for period in self.periods]
        if any(isinstance(period, jax.Array) for period in periods):
            numbers = jnp.stack([jnp.asarray(period, dtype) for period in periods])
            return circular, jnp.where(numbers == 0, 1.0, numbers)
        return circular, np.asarray(periods, dtype)

    @property
    def _has_bounds(self) -> bool:
        return any(bound is not None for bound in self.bounds)

    def _without_undefined(self, vector: Array) -> Array:
        """The vector with zeros where the period of an angle is zero."""
        if not any(isinstance(period, jax.Array) for period in self.periods):
            return vector
        zero = [isinstance(period, jax.Array) & (period == 0) for period in self.periods]
        return jnp.where(jnp.stack([jnp.asarray(flag) for flag in zero]), 0.0, vector)

    def _circular_mean(self, points: Array, weights: Array) -> Array:
        circular, periods = self.circular(points.dtype)
        if not circular.any():
            return jnp.zeros(self.size, points.dtype)
        phase = points * (2 * math.pi / periods)[None, :]
        angle = jnp.arctan2(weights @ jnp.sin(phase), weights @ jnp.cos(phase))
        # The mean does not depend on its reference, so no gradient needs to pass here, and
        # none can be spoiled by arctan2 where the unit vectors cancel.
        angle = jax.lax.stop_gradient(angle * (periods / (2 * math.pi)))
        return jnp.where(circular, angle, 0.0)


def _check_numbers(
    periods: Mapping[str, float | Array], bounds: Mapping[str, tuple[float, float]]
) -> None:
    for name, period in periods.items():
        if not isinstance(period, jax.Array) and not period > 0:
            raise ValueError(f"The period of {name!r} must be positive, got {period}.")
    for name, (lower, upper) in bounds.items():
        if not lower < upper:
            raise ValueError(f"The bounds of {name!r} must be ordered, got {lower} and {upper}.")
