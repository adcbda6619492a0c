"""Array aliases.

Axes have fixed letters everywhere: `x` state, `z` observation, `n` points or particles,
`t` time, `b` batch. Functions are written for one step of one sequence; whoever has more
of them maps over the extra axes.
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
"""What was observed: all of a measurement or nothing (a scalar), or each component."""

Key: TypeAlias = PRNGKeyArray

Keys: TypeAlias = TypedKey[Array, " n"]
"""Several keys, made by `jax.random.key`."""

Control: TypeAlias = Any
"""Whatever acts on the system during a step: any pytree of arrays, or None."""

Reading: TypeAlias = Any
"""Raw sensor data of one step: any pytree of arrays."""

Context: TypeAlias = Any
"""What is constant over a sequence: any pytree of arrays, or None."""
