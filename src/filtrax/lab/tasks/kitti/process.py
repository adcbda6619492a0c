"""How a car moves: the equations of motion, a network in their place, and the noise of both."""

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
    """The equations of motion over the time step, which is the only input.

    x⁺ = x + v cos(θ) Δt, y⁺ = y + v sin(θ) Δt, θ⁺ = θ + θ̇ Δt; speed and heading rate are kept.
    """
    x, y, heading, speed, rate = state
    (step,) = inputs
    angle = heading * DEGREE
    moved = (x + speed * jnp.cos(angle) * step, y + speed * jnp.sin(angle) * step)
    return jnp.stack([*moved, heading + rate * step, speed, rate])


class NoiseBeforeMotion(AbstractNoise):
    """Noise that is added to the state before it moves: J Q Jᵀ, J = ∂motion/∂state.

    Velocities that are those of a step ("aligned") change at its beginning, v⁺ = v + w, and the
    car goes with what they are then: x⁺ = x + (v + w) cos(θ) Δt. With noise that is added
    afterwards it goes with v, and a measurement of v⁺ does not tell the filter where it has gone.
    (J in front of white noise is a noise gain as in Bar-Shalom, Li & Kirubarajan 2001,
    section 6.3.)
    """

    noise: AbstractNoise

    @property
    def size(self) -> int:
        return self.noise.size

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "x _"]:
        return product(jax.jacfwd(motion)(state, inputs), self.noise(state, inputs))


class LearnedMotion(eqx.Module):
    """A learned process: state + network(speed, heading rate, cos θ, sin θ) Δt/0.1037 s.

    The network, which is the paper's, is not told the time step. What it gives is the change over
    a mean step, and other steps change the state in proportion.

    **Attributes:**

    - `network`: from features of a state to a change of the state.
    - `features`: the part of a state that the network sees.
    - `units`: the features in whose units the network answers.
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
