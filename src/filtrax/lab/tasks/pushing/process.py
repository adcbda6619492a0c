"""How the state of the pushing task goes on: what a network learns of it, and its modes."""

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
"""About the length of a push in a step, in mm: what networks divide it by."""

CERTAINTY = 8.0
"""Of contact that the state is sure of, in logits: chances are then 2 and 98 percent."""


SHORTEST_NORMAL = 0.1
"""Of a normal that has a direction. An estimate of a shorter one is mostly noise: the derivative of
its direction, which is the inverse of its length, would blow up covariances in single precision."""


def equations_of_pushing(state: State, inputs: Inputs) -> State:
    """The equations of quasi-static pushing (`physics.process`) for states that are estimates.

    A push whose normal is not known sticks.
    """
    normal = state[7:9]
    known = (normal**2).sum() > SHORTEST_NORMAL**2
    is_normal = np.asarray([name in ("nx", "ny") for name in STATE])
    moved = physics.process(jnp.where(is_normal & ~known, 0.0, state), inputs)
    return jnp.where(is_normal & ~known, state, moved)


class LearnedPush(eqx.Module):
    """A learned process: state + network(state, push) (Kloss et al. 2021, pushing appendix).

    **Attributes:**

    - `network`: of what it sees of a state, and the push.
    - `features`: what it sees, in units of what states range over.
    - `units`: the features in whose units it answers, those of what changes in a step.
    """

    network: Perceptron
    features: Features
    units: Features

    def __call__(self, state: State, inputs: Inputs) -> State:
        seen = self.features(state, inputs / PUSH_SCALE)
        return state + self.units.unscaled(self.network(seen))


class PushHead(eqx.Module):
    """The head of process noise: a network of what it may see of the state, and of the push."""

    head: FeatureHead
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " outputs"]:
        return self.head(self.features(state, inputs / PUSH_SCALE))


class ModeHead(eqx.Module):
    """How the chances of contact in a step depend on state and push, for each pair of modes.

    At first they follow what the state says of contact alone: a step from a state with s = 1 is one
    of contact, whatever the mode was. A network adds to that.
    """

    network: Perceptron
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " 4"]:
        output = self.network(self.features(state, inputs / PUSH_SCALE))
        contact = CERTAINTY * (state[STATE.index("s")] - 0.5)
        return output + contact * np.asarray([0.0, 1.0, 0.0, 1.0], output.dtype)


def free_motion(state: State, inputs: Inputs) -> State:
    """The pusher moves without touching the object, which stays; there is no normal."""
    none = jnp.zeros(3, state.dtype)
    return jnp.concatenate([state[:5], state[5:7] + inputs, none])


class InContact(eqx.Module):
    """A process that is told that the push touches the object, whatever the state says of it."""

    process: Callable[[State, Inputs], State]

    def __call__(self, state: State, inputs: Inputs) -> State:
        is_contact = np.arange(state.size) == STATE.index("s")
        return self.process(jnp.where(is_contact, 1.0, state), inputs)
