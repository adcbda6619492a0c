"""Array aliases.

Axes have fixed letters everywhere: `x` state, `z` observation, `n` points or particles,
`t` time, `b` batch. Functions are written for one step of one sequence; further axes are
mapped over.
"""

from typing import Any, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Array, Bool, Float, PRNGKeyArray
from jaxtyping import Key as TypedKey

State: TypeAlias = Float[Array, " x"]
"""A state, or the difference of two states."""

Observation: TypeAlias = Float[Array, " z"]
"""An observation, or the difference of two observations."""

Scalar: TypeAlias = Float[Array, ""]

Seen: TypeAlias = Bool[Array, ""] | Bool[Array, " z"]
"""A mask of a measurement: one entry for the whole of it, or one for each component."""

Key: TypeAlias = PRNGKeyArray

Keys: TypeAlias = TypedKey[Array, " n"]
"""Several keys, made by `jax.random.key`."""

Inputs: TypeAlias = Any
"""All that is known at a step, like a command or a time step: any pytree of arrays, or None."""

Reading: TypeAlias = Any
"""Raw sensor data of one step: any pytree of arrays."""

Context: TypeAlias = Any
"""All that is constant over a sequence: any pytree of arrays, or None."""


@runtime_checkable
class Bindable(Protocol):
    """A part of a model that depends on what is constant in a sequence."""

    def bind(self, context: Context) -> Any:
        """The part for one sequence."""


def bound(part: Any, context: Context) -> Any:
    """A part for one sequence: bound to its context if it is `Bindable`."""
    return part.bind(context) if isinstance(part, Bindable) else part
