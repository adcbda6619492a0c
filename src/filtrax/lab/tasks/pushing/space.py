"""The spaces of states and observations of the pushing task.

Orientations are known only up to the symmetry of the object: 60 degrees for the hexagon, 90 for the
square, 180 or 360 for others. The period differs between sequences. The orientation of a circle is
always 0.
"""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp

from filtrax._types import Context, Inputs, Observation, State
from filtrax.networks import Features
from filtrax.spaces import Space

STATE = ("x", "y", "theta", "l", "alpha", "rx", "ry", "nx", "ny", "s")
OBSERVATION = ("x", "y", "theta", "rx", "ry", "nx", "ny", "s")

UNITS = ("mm", "mm", "°", "cm²", "°", "mm", "mm", "", "", "")
"""The units of the state's components."""

BOUNDS = {"l": (0.1, 5000.0), "alpha": (0.1, 90.0), "s": (0.0, 1.0)}

STEP_SCALES = {
    **{"x": 10.0, "y": 10.0, "theta": 10.0, "l": 10.0, "alpha": 10.0},
    **{"rx": 10.0, "ry": 10.0, "nx": 1.0, "ny": 1.0, "s": 1.0},
}
"""Typical changes and uncertainties of components in a step, the units of network outputs."""

RANGE_SCALES = STEP_SCALES | {"x": 50.0, "y": 50.0, "rx": 50.0, "ry": 50.0, "theta": 45.0}
"""Typical ranges of components, the units of network inputs."""


class PushingSpace(Space):
    """A space whose orientation has the period of a sequence's object.

    Before `bind`, the period is 360 degrees.
    """

    def __init__(self, names: Sequence[str], bounds: Mapping[str, tuple[float, float]]):
        super().__init__(names, angles={"theta": 360.0}, bounds=bounds)

    def bind(self, context: Context) -> "PushingSpace":
        """Returns the space for the object of one sequence."""
        (theta,) = self.index("theta")
        period = jnp.asarray(context["period"])
        return eqx.tree_at(lambda space: space.periods[theta], self, period)


def state_space() -> PushingSpace:
    """Returns the space of states."""
    return PushingSpace(STATE, BOUNDS)


def observation_space() -> PushingSpace:
    """Returns the space of observations, the state without friction."""
    return PushingSpace(OBSERVATION, {"s": BOUNDS["s"]})


def state_features(
    scale: Mapping[str, float] = STEP_SCALES, unseen: Sequence[str] = ()
) -> Features:
    """Returns the inputs that networks see of a state, and the units of their outputs."""
    return Features(state_space(), scale=scale, unseen=unseen)


def observation_features() -> Features:
    """Returns the inputs that networks see of an observation, and the units of their outputs."""
    return Features(observation_space(), scale={name: STEP_SCALES[name] for name in OBSERVATION})


def observe(state: State, inputs: Inputs) -> Observation:
    """Returns the observable components of a state."""
    del inputs
    return jnp.concatenate([state[:3], state[5:]])
