"""The particle filter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._types import Inputs, Key
from filtrax.beliefs import Gaussian, Particles, weighted_covariance
from filtrax.filters.base import AbstractBayesFilter, Info, all_finite, require_key
from filtrax.filters.kernels import AdaptiveKernel
from filtrax.linalg import product, whiten
from filtrax.noise import AbstractNoise
from filtrax.resampling import AbstractResampler, Soft
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class ParticleFilter(AbstractBayesFilter[Particles, Particles]):
    """Weighted samples, moved by the process and weighted by the likelihood.

        resample;   xᵢ = f(xᵢ, u) + Q(xᵢ, u)^½ εᵢ;   wᵢ ∝ wᵢ p(z | xᵢ)

    (Gordon, Salmond & Smith 1993). Resampling comes first, so that the belief after the update
    keeps its weights and their gradients. The likelihood, Gaussian or learned, belongs to the
    model. Whether the particles are read as one Gaussian (the paper's dPF-G) or as a mixture
    (dPF-M) is up to the loss: `losses.nll` or `losses.mixture_nll`.

    **Attributes:**

    - `num_particles`: the paper trains with 100 and tests with 500.
    - `resampler`: what happens at the start of a step.
    - `kernel`: constant noise, the covariance of a particle in a mixture, or an `AdaptiveKernel`;
      may be trained. None is the identity in natural units.
    - `whiten_noise`: draw process noise whose sample mean is 0 and sample covariance I exactly,
      as the paper does.
    """

    num_particles: int = eqx.field(default=100, static=True)
    resampler: AbstractResampler = Soft()
    kernel: AbstractNoise | AdaptiveKernel | None = None
    whiten_noise: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        check_whole("num_particles", self.num_particles, 1)

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Particles:
        size, dtype = prior.mean.size, prior.mean.dtype
        noise = jr.normal(require_key(key, self), (self.num_particles, size), dtype)
        states = prior.mean[None, :] + product(noise, prior.root.T)
        kernel = jnp.eye(size, dtype=dtype) if self.kernel is None else self.kernel()
        if jnp.shape(kernel)[-2:-1] != (size,):
            raise ValueError(
                f"`kernel` must be noise of the {size} components of the state, got one of "
                f"{jnp.shape(kernel)[-2]}."
            )
        particles = Particles.uniform(jax.vmap(model.state_space.wrap)(states), kernel)
        return self.with_kernel(particles, model.state_space)

    def predict(
        self, model: StateSpaceModel, belief: Particles, inputs: Inputs, *, key: Key | None = None
    ) -> Particles:
        resample_key, noise_key = jr.split(require_key(key, self))
        particles = self.resampler(belief, key=resample_key)
        noise = jr.normal(noise_key, particles.states.shape, particles.states.dtype)
        if self.whiten_noise:
            noise = whiten(noise)

        def move(state, noise):
            moved = model.process(state, inputs)
            scaled = product(model.process_noise(state, inputs), noise)
            return model.state_space.wrap(model.state_space.add(moved, scaled))

        states = jax.vmap(move)(particles.states, noise)
        return eqx.tree_at(lambda p: p.states, particles, states)

    def update(
        self,
        model: StateSpaceModel,
        predicted: Particles,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Particles, Info]:
        del key
        expected = jax.vmap(lambda state: model.observe(state, inputs))(predicted.states)
        score = lambda z: model.likelihood(z, measurement, inputs, model.observation_space)  # noqa: E731
        log_likelihoods = jax.vmap(score)(expected)
        belief, log_evidence = predicted.reweight(log_likelihoods)
        belief = self.with_kernel(belief, model.state_space)
        innovation, innovation_covariance = _innovation(model, predicted, expected, measurement)
        info = Info(
            finite=all_finite(belief),
            log_likelihood=log_evidence,
            innovation=innovation,
            innovation_covariance=innovation_covariance,
            effective_sample_size=belief.effective_sample_size(),
        )
        return belief, info

    def with_kernel(self, particles: Particles, space: AbstractSpace) -> Particles:
        """Particles with the kernel that they should have, where it depends on them."""
        if not isinstance(self.kernel, AdaptiveKernel):
            return particles
        return eqx.tree_at(lambda p: p.kernel, particles, self.kernel.factor(particles, space))


def _innovation(
    model: StateSpaceModel,
    predicted: Particles,
    expected: Float[Array, "n z"],
    measurement: Measurement,
) -> tuple[Float[Array, " z"], Float[Array, "z z"]]:
    """z - ẑ and S = cov(h(xᵢ)) + R, of the components that were observed."""
    space, seen = model.observation_space, measurement.seen()
    weights = jnp.exp(predicted.log_weights)
    mean = space.mean(expected, weights)
    innovation = jnp.where(seen, space.difference(measurement.value, mean), 0.0)
    covariance = weighted_covariance(space, expected, mean, weights) + measurement.covariance
    both = seen[:, None] & seen[None, :]
    return innovation, jnp.where(both, covariance, jnp.eye(seen.size, dtype=covariance.dtype))
