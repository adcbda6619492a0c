"""Soft resampling: weights that keep a gradient."""

import jax.numpy as jnp
from jaxtyping import Array

from filtrax._given import given_field
from filtrax._types import Key
from filtrax.beliefs import Particles, uniform_log_weights
from filtrax.linalg import log_sum
from filtrax.resampling.base import AbstractAncestorResampler, AbstractResampler
from filtrax.resampling.schemes import Systematic


class Soft(AbstractResampler):
    """Draws from a mixture of the weights and the uniform distribution (Karkus et al. 2018).

        q = (1 - α) w + α / n,   ancestors a ~ q,   new weights ∝ w_a / q_a

    The new weights correct for drawing from q and carry the gradient of w. With α = 0 this is
    the scheme itself, with α = 1 plain importance weights on evenly drawn particles.
    """

    alpha: float | Array = given_field(default=0.05)
    scheme: AbstractAncestorResampler = Systematic()

    def __check_init__(self):
        if isinstance(self.alpha, float | int) and not 0 <= self.alpha <= 1:
            raise ValueError(f"`alpha` must be between 0 and 1, got {self.alpha}.")

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        log_weights = particles.log_weights
        alpha = jnp.asarray(self.alpha, log_weights.dtype)
        # In logarithms, so that a weight that underflows keeps a finite gradient.
        uniform = jnp.log(alpha) + uniform_log_weights(log_weights.size, log_weights.dtype)
        log_mixed = jnp.logaddexp(jnp.log1p(-alpha) + log_weights, uniform)
        ancestors = self.scheme.ancestors(log_mixed, key=key)
        log_ratios = log_weights - log_mixed
        # States and weights in one array: a backward pass then scatters once, not twice.
        drawn = jnp.concatenate([particles.states, log_ratios[:, None]], 1)[ancestors]
        states, log_ratios = drawn[:, :-1], drawn[:, -1]
        age = jnp.zeros_like(particles.age)
        return Particles(states, log_ratios - log_sum(log_ratios), age, particles.kernel)
