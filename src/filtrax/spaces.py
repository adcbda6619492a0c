"""What the components of a vector mean.

Every difference and every mean of states or observations goes through a `Space`, so angles are
handled here and nowhere else.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.arrays import Context
from filtrax.checks import check_known


class Space(eqx.Module):
    """Names, angles, bounds and network scale of the components of a vector.

    ```python
    pose = Space(("x", "y", "heading"), angles=("heading",))
    car = Space(("x", "heading"), angles={"heading": 360.0}, scale={"x": 10.0})
    anywhere = Space(pose.names, angles=("heading",), unseen=("x", "y"), directions=("heading",))
    ```

    **Arguments:**

    - `names`: one name per component.
    - `angles`: the names of circular components with period 2π, or a mapping from such names
      to their periods. Their values live in [-period/2, period/2).
    - `bounds`: a mapping from names to (lower, upper).
    - `scale`: what networks divide a component by: one number, or a mapping from names.
    - `unseen`: the names of components that are no input of networks, like a position in a world
      that is the same everywhere.
    - `directions`: the names of angles that networks see as cosine and sine.
    - `from_context`: a mapping from names of angles to entries of the context: `bind` takes the
      period in a sequence from there. A period of zero is that of something that looks the same
      however it is turned: such an angle is always zero.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    # An array in the place of a number may differ from sequence to sequence.
    periods: tuple[float | Array | None, ...]
    bounds: tuple[tuple[float, float] | None, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    unseen: tuple[str, ...] = eqx.field(static=True)
    directions: tuple[str, ...] = eqx.field(static=True)
    from_context: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __init__(
        self,
        names: Sequence[str],
        *,
        angles: Sequence[str] | Mapping[str, float] = (),
        bounds: Mapping[str, tuple[float, float]] | None = None,
        scale: float | Mapping[str, float] = 1.0,
        unseen: Sequence[str] = (),
        directions: Sequence[str] = (),
        from_context: Mapping[str, str] = MappingProxyType({}),
    ):
        if isinstance(names, str) or len(names) == 0 or len(set(names)) != len(names):
            raise ValueError(f"`names` must be a sequence of distinct names, got {names!r}.")
        if isinstance(angles, str):
            raise ValueError(f"`angles` must be a sequence of names, got the string {angles!r}.")
        if not isinstance(angles, Mapping):
            angles = dict.fromkeys(angles, 2 * math.pi)
        bounds = {} if bounds is None else bounds
        if not isinstance(scale, Mapping):
            scale = dict.fromkeys(names, scale)
        given = {"angles": angles, "bounds": bounds, "scale": scale, "unseen": unseen}
        for argument, chosen in given.items():
            unknown = [name for name in chosen if name not in names]
            check_known(f"`{argument}` must name components of the space", unknown, names)
        for argument, chosen in (("directions", directions), ("from_context", from_context)):
            straight = [name for name in chosen if name not in angles]
            check_known(f"`{argument}` must name angles of the space", straight, [*angles])
        _check_numbers(angles, bounds, scale)
        self.names = tuple(names)
        self.periods = tuple(angles.get(name) for name in names)
        self.bounds = tuple(bounds.get(name) for name in names)
        self.scale = tuple(float(scale.get(name, 1.0)) for name in names)
        self.unseen, self.directions = tuple(unseen), tuple(directions)
        self.from_context = tuple(from_context.items())

    def bind(self, context: Context) -> "Space":
        """The space for one sequence, with the periods that its context says."""
        places = self.index(*(name for name, _ in self.from_context))
        if not places:
            return self
        periods = [jnp.asarray(context[entry]) for _, entry in self.from_context]
        return eqx.tree_at(lambda space: [space.periods[i] for i in places], self, periods)

    @property
    def size(self) -> int:
        """The number of components."""
        return len(self.names)

    def index(self, *names: str) -> tuple[int, ...]:
        """Where the named components are."""
        unknown = [name for name in names if name not in self.names]
        check_known("Components must be named as in the space", unknown, self.names)
        return tuple(self.names.index(name) for name in names)

    def difference(self, a: Float[Array, " x"], b: Float[Array, " x"]) -> Float[Array, " x"]:
        """The difference a - b, the short way round for angles."""
        return self.wrap_angles(a - b)

    def wrap(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """Brings angles into [-period/2, period/2) and bounded components into their bounds."""
        return self.inside(self.wrap_angles(vector))

    def wrap_angles(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """Brings angles into [-period/2, period/2)."""
        circular, periods = self._circular(vector.dtype)
        if not circular.any():
            return vector
        half = periods / 2
        # As exact as the angle itself, and far fewer operations than a remainder.
        turned = vector - periods * jnp.floor(vector / periods + 0.5)
        # Rounding can leave the turned angle just outside of the interval.
        turned = jnp.where(turned >= half, turned - periods, turned)
        turned = jnp.where(turned < -half, turned + periods, turned)
        outside = (vector < -half) | (vector >= half)
        return self._without_meaningless(jnp.where(circular & outside, turned, vector))

    def inside(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """Brings bounded components into their bounds."""
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
        """A function that is known inside the bounds, at any vector: it is linear beyond them.

            f(c) + ∂f/∂x(c) (x - c),   c the vector inside that is closest to x

        So a spread about a vector inside stays as wide as it is, and a linear function what it is,
        although the function itself is never asked what lies outside.
        """
        if not self._has_bounds:
            return function(vector)
        closest = self.inside(vector)
        value, change = jax.jvp(function, (closest,), (vector - closest,))
        return value + change

    @property
    def _has_bounds(self) -> bool:
        return any(bound is not None for bound in self.bounds)

    def mean(
        self,
        points: Float[Array, "n x"],
        weights: Float[Array, " n"],
        reference: Float[Array, " x"] | None = None,
    ) -> Float[Array, " x"]:
        """The weighted mean: a reference point plus the mean of the wrapped offsets from it.

        Unlike the angle of the mean unit vector this is exact for negative weights, too, as
        long as the points lie within half a period of the reference. Without a reference,
        angles are taken about their circular mean; weights must then be positive.
        """
        if reference is None:
            reference = self._circular_mean(points, weights)
        offsets = jax.vmap(self.difference, (0, None))(points, reference)
        return self.wrap(reference + weights @ offsets)

    def scaled(self, vector: Float[Array, " x"]) -> Float[Array, " x"]:
        """A vector in the units that networks see."""
        return vector / np.asarray(self.scale, vector.dtype)

    @property
    def input_size(self) -> int:
        """How many numbers networks see of a vector."""
        directions = [name for name in self.directions if name not in self.unseen]
        return self.size - len(set(self.unseen)) + len(directions)

    def network_input(self, vector: Float[Array, " x"], *others: Any) -> Float[Array, " inputs"]:
        """What networks see of a vector, followed by all entries of other trees, like a control.

        That is the scaled components in their order, and then the cosines and the sines of all
        directions; what is unseen is left out.
        """
        rest = [jnp.ravel(leaf) for leaf in jax.tree.leaves(others)]
        return jnp.concatenate([*self._seen(vector), *rest])

    def _seen(self, vector: Array) -> list[Array]:
        hidden = {*self.unseen, *self.directions}
        if not hidden:
            return [self.scaled(vector)]
        plain = np.asarray([j for j, name in enumerate(self.names) if name not in hidden], int)
        turned = self.index(*(name for name in self.directions if name not in self.unseen))
        _, periods = self._circular(vector.dtype)
        angles = (vector * (2 * math.pi / periods))[np.asarray(turned, int)]
        return [self.scaled(vector)[plain], jnp.cos(angles), jnp.sin(angles)]

    def unscaled(self, output: Float[Array, " x"]) -> Float[Array, " x"]:
        """The output of a network in natural units."""
        return output * np.asarray(self.scale, output.dtype)

    def _circular(self, dtype) -> tuple[np.ndarray, Array | np.ndarray]:
        """Which components are angles, and all periods, with 1 in the place of none and of zero."""
        circular = np.asarray([period is not None for period in self.periods])
        periods = [1.0 if period is None else period for period in self.periods]
        if any(isinstance(period, jax.Array) for period in periods):
            given = jnp.stack([jnp.asarray(period, dtype) for period in periods])
            return circular, jnp.where(given == 0, 1.0, given)
        return circular, np.asarray(periods, dtype)

    def _without_meaningless(self, vector: Array) -> Array:
        """The vector with zeros where the period of an angle is zero."""
        if not any(isinstance(period, jax.Array) for period in self.periods):
            return vector
        zero = [isinstance(period, jax.Array) & (period == 0) for period in self.periods]
        return jnp.where(jnp.stack([jnp.asarray(each) for each in zero]), 0.0, vector)

    def _circular_mean(self, points: Array, weights: Array) -> Array:
        circular, periods = self._circular(points.dtype)
        if not circular.any():
            return jnp.zeros(self.size, points.dtype)
        phase = points * (2 * math.pi / periods)[None, :]
        angle = jnp.arctan2(weights @ jnp.sin(phase), weights @ jnp.cos(phase))
        # The mean does not depend on its reference, so no gradient needs to pass here, and
        # none can be spoiled by arctan2 where the unit vectors cancel.
        angle = jax.lax.stop_gradient(angle * (periods / (2 * math.pi)))
        return jnp.where(circular, angle, 0.0)


def _check_numbers(
    periods: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]],
    scale: Mapping[str, float],
) -> None:
    for what, given in (("period", periods), ("scale", scale)):
        for name, number in given.items():
            if not number > 0:
                raise ValueError(f"The {what} of {name!r} must be positive, got {number}.")
    for name, (lower, upper) in bounds.items():
        if not lower < upper:
            raise ValueError(f"The bounds of {name!r} must be ordered, got {lower} and {upper}.")
