"""Array aliases.

Axes have fixed letters everywhere: `x` state, `z` observation, `n` points or particles,
`t` time, `b` batch. Functions are written for one step of one sequence; further axes are
mapped over.
"""

from typing import Any, TypeAlias

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
