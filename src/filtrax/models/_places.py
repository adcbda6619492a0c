"""Places of landmarks: a surveyed map, or columns of a reading."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._given import given_field

Fields = Mapping[str, Any]
"""The columns of a reading that a sensor uses besides the reading itself."""


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
        if np.abs(numbers).max(initial=0) >= 2**24:
            raise ValueError(
                f"`ids` must be below {2**24:,}, which single precision tells apart, got "
                f"{numbers.tolist()}: number the landmarks, here and in the log."
            )
        if not np.isfinite(places).all():
            raise ValueError(f"`positions` must be finite, got {places.tolist()}.")
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
