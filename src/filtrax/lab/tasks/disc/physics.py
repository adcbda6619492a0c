"""The motion of discs: the process of Kloss et al. (2021), section 6, and its noise.

A state is (x, y, vx, vy) in pixels and pixels per step, with the origin at the centre of the
image. The true noise is an `AbstractNoise`, so that models can use it instead of a learned one.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Inputs, State
from filtrax.noise import AbstractNoise, constant_noise

NoiseKind = Literal["constant", "heteroscedastic", "correlated"]

SPRING, DRAG = 0.05, 0.0075
"""The coefficients of the pull to the centre, and of the quadratic drag."""

ZONES = ((40.0, 0.1), (20.0, 1.0), (0.0, 3.0))
"""Zones of heteroscedastic noise: a distance, and the velocity's standard deviation beyond it.

The distance is max(|x|, |y|); the first zone that applies counts.
"""

CORRELATED_POSITION_STD, CORRELATED_VELOCITY_STD = 3.0, 2.0

CORRELATIONS = (
    (1.0, -0.4, 0.2, 0.9),
    (-0.4, 1.0, -0.1, 0.0),
    (0.2, -0.1, 1.0, 0.0),
    (0.9, 0.0, 0.0, 1.0),
)
"""Correlations of the state's components in the correlated noise."""


def process(state: State, inputs: Inputs = None) -> State:
    """Moves a disc by one step without noise; `inputs` are ignored.

    p⁺ = p + v and v⁺ = v - 0.05 p - 0.0075 v² sgn(v), for each axis separately.
    """
    del inputs
    position, velocity = state[:2], state[2:]
    drag = DRAG * velocity * jnp.abs(velocity)
    return jnp.concatenate([position + velocity, velocity - SPRING * position - drag])


class ZonedNoise(AbstractNoise):
    """Heteroscedastic noise, whose velocity noise decreases with the distance from the centre."""

    position_std: Float[Array, ""]

    @property
    def size(self) -> int:
        return 4

    def __call__(self, state: State, inputs: Inputs = None) -> Float[Array, "x x"]:
        del inputs
        distance = jnp.abs(state[:2]).max()
        (far, steady), (near, middle), (_, restless) = ZONES
        velocity_std = jnp.where(
            distance > far, steady, jnp.where(distance > near, middle, restless)
        )
        stds = jnp.stack([self.position_std, velocity_std.astype(self.position_std.dtype)])
        return jnp.diag(jnp.repeat(stds, 2))


def true_noise(kind: NoiseKind, position_std: float, velocity_std: float) -> AbstractNoise:
    """Makes the process noise of the data, a function of the state before the step.

    - "constant": independent components with the given standard deviations.
    - "heteroscedastic": the standard deviation of the velocity depends on the position.
    - "correlated": all components have the correlations of the paper.
    """
    if kind == "heteroscedastic":
        return ZonedNoise(jnp.asarray(position_std, float))
    stds = np.repeat([position_std, velocity_std], 2).astype(float)
    if kind == "correlated":
        return _constant_noise(np.outer(stds, stds) * np.asarray(CORRELATIONS))
    return _constant_noise(stds)


_constant_noise = eqx.filter_jit(constant_noise)
"""Compiled as one program, instead of one for each operation."""


@eqx.filter_jit
def covariances(noise: AbstractNoise, states: Float[Any, "n t x"]) -> Float[Array, "n t x x"]:
    """Returns the covariances of the steps that start in these states."""
    return jax.vmap(jax.vmap(lambda state: noise.covariance(state, None)))(states)
