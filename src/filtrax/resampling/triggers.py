"""Resamplers that decide whether to resample."""

import jax
from jaxtyping import Array, Bool

from filtrax._types import Key
from filtrax.beliefs import Particles
from filtrax.resampling.base import AbstractResampler, older


class EverySteps(AbstractResampler):
    """Resamples on every k-th step: on steps k, 2k, 3k and so on."""

    steps: int | Array
    resampler: AbstractResampler

    def __check_init__(self):
        if isinstance(self.steps, int) and self.steps < 1:
            raise ValueError(f"`steps` must be at least 1, got {self.steps}.")

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        return _resample_if(particles.age + 1 >= self.steps, self.resampler, particles, key)


class EffectiveSampleSize(AbstractResampler):
    """Resamples when the effective sample size is under a fraction of the particles."""

    threshold: float
    resampler: AbstractResampler

    def __check_init__(self):
        if isinstance(self.threshold, float | int) and not 0 <= self.threshold <= 1:
            raise ValueError(
                f"`threshold` must be a fraction between 0 and 1, got {self.threshold}."
            )

    def __call__(self, particles: Particles, *, key: Key) -> Particles:
        needed = self.threshold * particles.log_weights.size
        poor = particles.effective_sample_size() < needed
        return _resample_if(poor, self.resampler, particles, key)


def _resample_if(
    due: Bool[Array, ""], resampler: AbstractResampler, particles: Particles, key: Key
) -> Particles:
    return jax.lax.cond(due, lambda p: resampler(p, key=key), older, particles)
