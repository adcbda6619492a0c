"""Processes of a car: equations of motion, a learned alternative, and their noise."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Inputs, State
from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.linalg import product
from filtrax.networks import Features, Perceptron
from filtrax.noise import AbstractNoise, FeatureHead

DEGREE = math.pi / 180


def motion(state: State, inputs: Inputs) -> State:
    """Applies the equations of motion over the time step, which is the only input.

    x⁺ = x + v cos(θ) Δt, y⁺ = y + v sin(θ) Δt, θ⁺ = θ + θ̇ Δt; speed and heading rate are constant.
    """
    x, y, heading, speed, rate = state
    (step,) = inputs
    angle = heading * DEGREE
    moved = (x + speed * jnp.cos(angle) * step, y + speed * jnp.sin(angle) * step)
    return jnp.stack([*moved, heading + rate * step, speed, rate])


class NoiseBeforeMotion(AbstractNoise):
    """Noise that is added to the state before the motion: J Q Jᵀ with J = ∂motion/∂state.

    "aligned" velocities are those of the step itself: they change at its start, v⁺ = v + w, and
    the car moves with the new ones, x⁺ = x + (v + w) cos(θ) Δt. With noise added afterwards, it
    would move with v, and a measurement of v⁺ would not inform the filter about the new position.
    (J is a noise gain as in Bar-Shalom, Li & Kirubarajan 2001, section 6.3.)
    """

    noise: AbstractNoise

    @property
    def size(self) -> int:
        return self.noise.size

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "x _"]:
        return product(jax.jacfwd(motion)(state, inputs), self.noise(state, inputs))


class LearnedMotion(eqx.Module):
    """A learned process: state + network(speed, heading rate, cos θ, sin θ) Δt/0.1037 s.

    The paper's network does not see the time step. Its output is the change over a mean step, which
    is scaled in proportion to the actual step.

    **Attributes:**

    - `network`: maps features of a state to a change of the state.
    - `features`: the inputs of the network.
    - `units`: the units of its outputs.
    """

    network: Perceptron
    features: Features
    units: Features

    def __call__(self, state: State, inputs: Inputs) -> State:
        change = self.units.unscaled(self.network(self.features(state)))
        return state + change * (inputs[0] / MEAN_STEP)


class MotionHead(eqx.Module):
    """The head of process noise: a network of features of a state."""

    head: FeatureHead
    features: Features

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " outputs"]:
        del inputs
        return self.head(self.features(state))
