"""Smoothing of particles."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._loops import scan_steps
from filtrax._types import Inputs, Key, State
from filtrax.beliefs import Gaussian, Particles
from filtrax.filters.base import Info, require_key
from filtrax.filters.particle import ParticleFilter
from filtrax.linalg import gaussian_log_density, log_sum
from filtrax.smoothing.base import (
    AbstractSmoother,
    Sequence,
    Smoothed,
    require_filter,
    smoothed,
    smoother_of,
)
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class FilteredParticles(eqx.Module):
    """A particle filter's pass over a sequence, with what was known at each step."""

    initial: Particles
    beliefs: Particles
    info: Info

    def before(self) -> Particles:
        """The belief before each step."""
        return jax.tree.map(
            lambda one, many: jnp.concatenate([one[None], many[:-1]]), self.initial, self.beliefs
        )


class AbstractParticleSmoother(AbstractSmoother[Particles]):
    """A smoother that weighs particles before a step by how likely they lead to those after it.

    That is the density N(x'; f(x, u), Q(x, u)) of the model, which must have a covariance that is
    not singular.
    """

    def forward(
        self,
        filt: Any,
        model: StateSpaceModel,
        prior: Gaussian,
        sequence: Sequence,
        *,
        key: Key | None,
        recompute: bool | None,
    ) -> FilteredParticles:
        require_filter(filt, ParticleFilter, self)
        first = filt.init(model, prior, key=key)

        def step(belief, known):
            belief, info = filt.step(
                model, belief, known.measurements, known.inputs, key=known.keys
            )
            return belief, (belief, info)

        _, kept = scan_steps(step, first, sequence, recompute=recompute)
        return FilteredParticles(first, *kept)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt
        return draw_back(model, sequence, passed, key)


class BackwardSimulation(AbstractParticleSmoother):
    """Draws trajectories backward through the particles of the filter.

        x_T ~ Σ wᵢ δ(xᵢ),   then x_{t-1} = xᵢ with a probability ∝ wᵢ N(x_t; f(xᵢ), Q(xᵢ))

    (Godsill, Doucet & West 2004). The belief of a step is the drawn states of that step with equal
    weights. The error falls with the root of the number of particles and of paths; the choice
    between particles has no gradient.

    **Attributes:**

    - `num_paths`: how many trajectories are drawn.
    """

    num_paths: int = eqx.field(default=100, static=True)

    def __check_init__(self):
        check_whole("num_paths", self.num_paths, 1)

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Particles]:
        keys = jr.split(require_key(key, self), self.num_paths)
        first, states = jax.vmap(lambda key: draw_back(model, sequence, passed, key))(keys)
        space = model.state_space

        def belief(states, kernel):
            return filt.with_kernel(Particles.uniform(states, kernel), space)

        states = jnp.swapaxes(states, 0, 1)
        initial = belief(first, passed.initial.kernel)
        beliefs = jax.vmap(belief)(states, passed.beliefs.kernel)
        both = jnp.concatenate([first[None], states])
        pairs = jax.nn.one_hot(jnp.arange(self.num_paths), self.num_paths, dtype=states.dtype)
        pairs = pairs / self.num_paths
        cross = jax.vmap(lambda a, b: _cross(a, b, pairs, space))(both[:-1], both[1:])
        return smoothed(beliefs, initial, cross, passed.info)


class MarginalSmoother(AbstractParticleSmoother):
    """Weighs the filter's particles anew, with all pairs of particles of two steps.

        wˢᵢ = wᵢ Σⱼ wˢⱼ pᵢⱼ / Σₖ wₖ pₖⱼ,   pᵢⱼ = N(x'ⱼ; f(xᵢ), Q(xᵢ))

    (Doucet, Godsill & Andrieu 2000; Klaas et al. 2006). It draws nothing and has a gradient with
    respect to weights and densities. The cost of a step grows with the square of the number of
    particles.
    """

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Particles]:
        del key
        space = model.state_space

        def step(later, known):
            belief, after, inputs = known
            log_joint = _log_pairs(model, belief, after.states, later, inputs)
            earlier = jax.vmap(log_sum)(log_joint)
            cross = _cross(belief.states, after.states, jnp.exp(log_joint), space)
            return earlier, (later, cross)

        last = passed.beliefs.log_weights[-1]
        known = (passed.before(), passed.beliefs, sequence.inputs)
        first, (log_weights, cross) = jax.lax.scan(step, last, known, reverse=True)

        def weighted(belief, log_weights):
            belief = dataclasses.replace(belief, log_weights=log_weights)
            return filt.with_kernel(belief, space)

        beliefs = jax.vmap(weighted)(passed.beliefs, log_weights)
        initial = weighted(passed.initial, first)
        return smoothed(beliefs, initial, cross, passed.info)


smoother_of.register(ParticleFilter)(lambda filt: MarginalSmoother())


def draw_back(
    model: StateSpaceModel, sequence: Sequence, passed: FilteredParticles, key: Key
) -> tuple[State, Float[Array, "t x"]]:
    """One trajectory through the particles."""
    keys = jr.split(key, len(passed.beliefs.states) + 1)
    choice = jr.categorical(keys[-1], passed.beliefs.log_weights[-1])

    def step(state, known):
        belief, inputs, key = known
        log_densities = log_transition(model, belief.states, state, inputs)
        choice = jr.categorical(key, belief.log_weights + log_densities)
        return belief.states[choice], state

    known = (passed.before(), sequence.inputs, keys[:-1])
    return jax.lax.scan(step, passed.beliefs.states[-1][choice], known, reverse=True)


def log_transition(
    model: StateSpaceModel, befores: Float[Array, "n x"], after: State, inputs: Inputs
) -> Float[Array, " n"]:
    """ln N(x'; f(xᵢ, u), Q(xᵢ, u)) of each state before a step."""

    def one(before):
        difference = model.state_space.difference(after, model.process(before, inputs))
        return gaussian_log_density(difference, model.process_noise(before, inputs))

    return jax.vmap(one)(befores)


def _log_pairs(
    model: StateSpaceModel,
    belief: Particles,
    afters: Float[Array, "n x"],
    later: Float[Array, " n"],
    inputs: Inputs,
) -> Float[Array, "n n"]:
    """ln wˢᵢⱼ of all pairs, with a row for each particle before the step."""
    space = model.state_space

    def row(before):
        moved, factor = model.process(before, inputs), model.process_noise(before, inputs)
        density = lambda after: gaussian_log_density(space.difference(after, moved), factor)  # noqa: E731
        return jax.vmap(density)(afters)

    log_joint = belief.log_weights[:, None] + jax.vmap(row)(belief.states)
    return log_joint - jax.vmap(log_sum)(log_joint.T)[None, :] + later[None, :]


def _cross(
    befores: Float[Array, "n x"],
    afters: Float[Array, "n x"],
    weights: Float[Array, "n n"],
    space: AbstractSpace,
) -> Float[Array, "x x"]:
    """Σ wᵢⱼ (xᵢ - μ)(x'ⱼ - μ')ᵀ of weighted pairs."""
    offsets = []
    for states, marginal in ((befores, weights.sum(1)), (afters, weights.sum(0))):
        mean = space.mean(states, marginal)
        offsets.append(jax.vmap(space.difference, (0, None))(states, mean))
    return offsets[0].T @ weights @ offsets[1]
