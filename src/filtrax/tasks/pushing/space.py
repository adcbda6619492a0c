"""What the components of states and observations of the pushing task mean.

The orientation is that of an object which looks the same after a turn by its symmetry: 60 degrees
for the hexagon, 90 for the square, 180 or 360 for others. It is known up to such turns only, and
differs from sequence to sequence. A circle looks the same always, and its orientation is always 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from filtrax.arrays import Observation, State
from filtrax.spaces import Space

STATE = ("x", "y", "theta", "l", "alpha", "rx", "ry", "nx", "ny", "s")
OBSERVATION = ("x", "y", "theta", "rx", "ry", "nx", "ny", "s")

UNITS = ("mm", "mm", "°", "cm²", "°", "mm", "mm", "", "", "")
"""Of the components of the state."""

BOUNDS = {"l": (0.1, 5000.0), "alpha": (0.1, 90.0), "s": (0.0, 1.0)}

SYMMETRIC: Mapping[str, Any] = {"angles": {"theta": 360.0}, "from_context": {"theta": "period"}}
"""The orientation has the period of the sequence's object, or 360 degrees where that is unknown."""

STEP_SCALES = {
    **{"x": 10.0, "y": 10.0, "theta": 10.0, "l": 10.0, "alpha": 10.0},
    **{"rx": 10.0, "ry": 10.0, "nx": 1.0, "ny": 1.0, "s": 1.0},
}
"""About what changes in a step, and how uncertain it is: the units of what networks give."""

RANGE_SCALES = STEP_SCALES | {"x": 50.0, "y": 50.0, "rx": 50.0, "ry": 50.0, "theta": 45.0}
"""About what the components range over: the units of what networks are given."""


def state_space(scale: Mapping[str, float] = STEP_SCALES, unseen: Sequence[str] = ()) -> Space:
    """The space of states; networks may see other scales, and not all of it."""
    return Space(STATE, bounds=BOUNDS, scale=scale, unseen=unseen, **SYMMETRIC)


def observation_space(scale: Mapping[str, float] = STEP_SCALES) -> Space:
    """The space of observations: the state without what cannot be seen."""
    seen = {name: scale[name] for name in OBSERVATION}
    return Space(OBSERVATION, bounds={"s": BOUNDS["s"]}, scale=seen, **SYMMETRIC)


def observe(state: State) -> Observation:
    """What can be seen of a state."""
    return jnp.concatenate([state[:3], state[5:]])
