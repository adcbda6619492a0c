"""Kernels of particles that are read as a mixture of Gaussians."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Scalar
from filtrax.beliefs import Particles
from filtrax.linalg import precise, root_sum
from filtrax.noise import AbstractNoise
from filtrax.spaces import AbstractSpace


class AdaptiveKernel(eqx.Module):
    """A kernel that is the wider, the farther apart the particles are.

        F Fᵀ = K + b² Σ wᵢ (xᵢ - μ)(xᵢ - μ)ᵀ,   b = width (4 / (n (d + 2)))^(1 / (d + 4))

    of n particles in d dimensions. Silverman's rule (1986, section 4.3.2) is a width of 1 and no K:
    the best there is for equal weights and a normal density. Noise K keeps the kernel from
    vanishing where one particle has all the weight.

    **Attributes:**

    - `noise`: constant noise with covariance K.
    - `log_width`: the logarithm of the width; may be trained, as may be the noise.
    """

    noise: AbstractNoise
    log_width: Scalar

    def __call__(self) -> Float[Array, "x x"]:
        """The factor without any particles."""
        return self.noise()

    @precise
    def factor(self, particles: Particles, space: AbstractSpace) -> Float[Array, "x x"]:
        """The lower triangular F for particles."""
        count, size = particles.states.shape
        bandwidth = jnp.exp(self.log_width) * (4 / (count * (size + 2))) ** (1 / (size + 4))
        return root_sum(self.noise(), bandwidth * particles.moments(space).factor)
