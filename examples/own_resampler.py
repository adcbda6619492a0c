"""Write your own resampler, in two ways, and use it in a particle filter.

`GoldenRatio` only chooses where the distribution of the weights is inverted, so it fits into
`Soft`, too. `Shrinkage` goes around any resampler and makes its copies differ again.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import filtrax
from filtrax.resampling import AbstractPositionResampler, AbstractResampler, Soft, Systematic


class GoldenRatio(AbstractPositionResampler):
    """Positions u + i φ modulo 1: almost evenly spread, by one random number."""

    def positions(self, count, dtype, *, key):
        return (jr.uniform(key, (), dtype) + 0.6180339887 * jnp.arange(count, dtype=dtype)) % 1


class Shrinkage(AbstractResampler):
    """Shrinks the particles and adds noise, so that mean and covariance stay (Liu & West 2001)."""

    space: filtrax.Space
    resampler: AbstractResampler
    bandwidth: float = 0.1

    def __call__(self, particles, *, key):
        resampled = self.resampler(particles, key=key)
        moments = particles.moments(self.space)
        kept, added = (1 - self.bandwidth**2) ** 0.5, self.bandwidth**2 * moments.covariance

        def move(state, key):
            centre = moments.mean + kept * self.space.difference(state, moments.mean)
            return self.space.wrap(filtrax.Gaussian(centre, added).sample(key=key))

        keys = jr.split(jr.fold_in(key, 1), len(resampled.states))
        return eqx.tree_at(lambda p: p.states, resampled, jax.vmap(move)(resampled.states, keys))


# A constant to be estimated: nothing but the resampler can keep the particles apart.
line = filtrax.Space(("constant",))
model = filtrax.StateSpaceModel(
    process=lambda x, inputs: x, process_noise=filtrax.constant_noise([0.0]),
    observe=lambda x, inputs: x, sensor=filtrax.DirectSensor(filtrax.constant_noise([1.0])),
)  # fmt: skip
prior = filtrax.Gaussian([0.0], [[25.0]])
readings = filtrax.simulate(model, prior, num_steps=100, key=jr.key(0)).readings
print(f"exact: {readings.sum() / 100.04:.3f} ± {100.04**-0.5:.3f}")
for resampler in (Systematic(), Soft(0.1, GoldenRatio()), Shrinkage(line, GoldenRatio())):
    filt = filtrax.ParticleFilter(num_particles=500, resampler=resampler)
    particles = filtrax.run(filt, model, prior, readings, key=jr.key(1)).beliefs
    last = jax.tree.map(lambda leaf: leaf[-1], particles)
    mean, variance = last.moments(line).mean[0], last.moments(line).covariance[0, 0]
    name, distinct = type(resampler).__name__, len(np.unique(last.states))
    print(f"{name}: {mean:.3f} ± {variance**0.5:.3f}, {distinct} distinct particles")
