"""Processes of the pushing task: equations, a learned network, and modes."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Inputs, State
from filtrax.lab.tasks.pushing import physics
from filtrax.lab.tasks.pushing.space import STATE
from filtrax.networks import Features, Perceptron
from filtrax.noise import FeatureHead

PUSH_SCALE = 10.0
"""The unit of pushes in network inputs, about the length of a push in a step, in mm."""

CERTAINTY = 8.0
"""The difference of the logits of contact between s = 0 and s = 1 (2 and 98 percent)."""


SHORTEST_NORMAL = 0.1
"""The shortest normal with a defined direction. Shorter estimates are mostly noise, and the
derivative of their direction, the inverse length, would blow up covariances in float32."""


def equations_of_pushing(state: State, inputs: Inputs) -> State:
    """Applies the equations of quasi-static pushing (`physics.process`) to estimated states.

    A push with a normal shorter than `SHORTEST_NORMAL` sticks, and keeps this normal.
    """
    normal = state[7:9]
    known = (normal**2).sum() > SHORTEST_NORMAL**2
    is_normal = np.asarray([name in ("nx", "ny") for name in STATE])
    moved = physics.process(jnp.where(is_normal & ~known, 0.0, state), inputs)
    return jnp.where(is_normal & ~known, state, moved)


class LearnedPush(eqx.Module):
    """A learned process: state + network(state, push) (Kloss et al. 2021, pushing appendix).

    **Attributes:**

    - `network`: maps features of a state and the push to a change of the state.
    - `features`: the inputs of the network, in units of the range of states.
    - `units`: the units of its outputs, typical changes in a step.
    """

    network: Perceptron
    features: Features
    units: Features

    def __call__(self, state: State, inputs: Inputs) -> State:
        seen = self.features(state, inputs / PUSH_SCALE)
        return state + self.units.unscaled(self.network(seen))


class PushHead(eqx.Module):
    """The head of process noise, a network of features of the state, and of the push."""

    head: FeatureHead
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " outputs"]:
        return self.head(self.features(state, inputs / PUSH_SCALE))


class ModeHead(eqx.Module):
    """The logits of transitions between modes, a function of state and push.

    Initially they depend only on s: a step from a state with s = 1 is one of contact, whatever the
    previous mode. A network is added to this.
    """

    network: Perceptron
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " 4"]:
        output = self.network(self.features(state, inputs / PUSH_SCALE))
        contact = CERTAINTY * (state[STATE.index("s")] - 0.5)
        return output + contact * np.asarray([0.0, 1.0, 0.0, 1.0], output.dtype)


def free_motion(state: State, inputs: Inputs) -> State:
    """Moves the pusher without contact: the object rests, and normal and contact become zero."""
    none = jnp.zeros(3, state.dtype)
    return jnp.concatenate([state[:5], state[5:7] + inputs, none])


class InContact(eqx.Module):
    """A process with s replaced by 1, so that the push touches the object."""

    process: Callable[[State, Inputs], State]

    def __call__(self, state: State, inputs: Inputs) -> State:
        is_contact = np.arange(state.size) == STATE.index("s")
        return self.process(jnp.where(is_contact, 1.0, state), inputs)
