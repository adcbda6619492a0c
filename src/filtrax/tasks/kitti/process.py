"""How a car moves: the equations of motion, a network in their place, and the noise of both."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax.arrays import Control, State
from filtrax.linalg import precise
from filtrax.networks import Perceptron
from filtrax.noise import AbstractNoise, FeatureHead
from filtrax.spaces import Space
from filtrax.tasks.kitti.recordings.drives import MEAN_STEP

DEGREE = math.pi / 180


def motion(state: State, control: Control) -> State:
    """The equations of motion over the time step, which is the control.

    x⁺ = x + v cos(θ) Δt, y⁺ = y + v sin(θ) Δt, θ⁺ = θ + θ̇ Δt; speed and heading rate are kept.
    """
    x, y, heading, speed, rate = state
    (step,) = control
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

    @precise
    def __call__(self, state: State, control: Control) -> Float[Array, "x x"]:
        return jax.jacfwd(motion)(state, control) @ self.noise(state, control)

    @precise
    def covariance(self, state: State, control: Control) -> Float[Array, "x x"]:
        factor = self(state, control)
        return factor @ factor.T


class LearnedMotion(eqx.Module):
    """A learned process: state + network(speed, heading rate, cos θ, sin θ) Δt/0.1037 s.

    The network, which is the paper's, is not told the time step. What it gives is the change over
    a mean step, and other steps change the state in proportion.
    """

    network: Perceptron
    inputs: Space
    space: Space

    def __call__(self, state: State, control: Control) -> State:
        change = self.space.unscaled(self.network(self.inputs.network_input(state)))
        return state + change * (control[0] / MEAN_STEP)


class MotionHead(eqx.Module):
    """The head of process noise: a network of what it may see of a state."""

    head: FeatureHead
    inputs: Space

    def __call__(self, state: State, control: Control) -> Float[Array, " outputs"]:
        del control
        return self.head(self.inputs.network_input(state))
