"""Smoothing of systems that switch between modes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._loops import scan_steps
from filtrax._stacking import map_trees
from filtrax._types import Inputs, Key, State
from filtrax.beliefs import Gaussian, GaussianMixture
from filtrax.filters.base import Info
from filtrax.filters.interacting import IMMFilter, log_transitions, mix, modes_of
from filtrax.filters.linearization import AbstractKalmanFilter
from filtrax.filters.links import require_kalman
from filtrax.linalg import array_update, gaussian_log_density, product, pseudo_inverse, root_sum
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
from filtrax.switching import switching


class Pairs(eqx.Module):
    """Steps from each mode i to each mode j, with axes (j, i).

    x' = μ̂ + X η of mode j and x = μ + M (Y η + L ζ) of mode i.

    **Attributes:**

    - `mean`, `root`: μ̂ and X.
    - `gain`: E = M Y X⁻¹, so that x - μ = E (x' - μ̂) + M L ζ.
    - `factor`: M L.
    - `log_weights`: ln P(i | j) before the step, given the readings before it.
    """

    mean: Float[Array, "*t m m x"]
    root: Float[Array, "*t m m x x"]
    gain: Float[Array, "*t m m x x"]
    factor: Float[Array, "*t m m x x"]
    log_weights: Float[Array, "*t m m"]


class Mixed(eqx.Module):
    """A filter's pass over a sequence, with all pairs of modes of its steps."""

    initial: GaussianMixture
    beliefs: GaussianMixture
    info: Info
    pairs: Pairs


class Kim(AbstractSmoother[GaussianMixture]):
    """The smoother of an IMM filter, with a Rauch-Tung-Striebel step for each pair of modes.

    With the Gaussian N(μᵢ, Pᵢ) of mode i before a step, its prediction N(μ̂ᵢⱼ, P̂ᵢⱼ) by the process
    of mode j, and the smoothed N(μˢⱼ, Pˢⱼ) and weight wˢⱼ after the step:

        wˢᵢⱼ = wˢⱼ wᵢ|ⱼ,   wᵢ|ⱼ = wᵢ Pᵢⱼ / Σₖ wₖ Pₖⱼ,   wˢᵢ = Σⱼ wˢᵢⱼ
        μˢᵢⱼ = μᵢ + Eᵢⱼ (μˢⱼ - μ̂ᵢⱼ),   Pˢᵢⱼ = Pᵢ + Eᵢⱼ (Pˢⱼ - P̂ᵢⱼ) Eᵢⱼᵀ
        N(μˢᵢ, Pˢᵢ): the moments of the mixture of all j with weights wˢᵢⱼ / wˢᵢ

    (Kim 1994; Kim & Nelson 1999, section 5.3). As the filter does, it keeps one Gaussian for each
    mode. It neglects what the state after a step says of the mode before it, once the mode after
    the step is known. With one mode it is the Rauch-Tung-Striebel smoother.
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
    ) -> Mixed:
        require_filter(filt, IMMFilter, self)
        require_kalman(filt.inner, type(self).__name__)
        first = filt.init(model, prior, key=key)

        def step(belief, known):
            pairs = _pairs(filt, model, belief, known.inputs, known.keys)
            after, info = filt.step(model, belief, known.measurements, known.inputs, key=known.keys)
            return after, (after, info, pairs)

        _, kept = scan_steps(step, first, sequence, recompute=recompute)
        return Mixed(first, *kept)

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[GaussianMixture]:
        del filt, sequence, key
        space = model.state_space
        last = jax.tree.map(lambda leaf: leaf[-1], passed.beliefs)

        def step(later, known):
            before, pairs = known
            earlier, cross = _back(before, pairs, later, space)
            return earlier, (later, cross)

        befores = jax.tree.map(
            lambda one, many: jnp.concatenate([one[None], many[:-1]]),
            passed.initial,
            passed.beliefs,
        )
        first, (beliefs, cross) = jax.lax.scan(step, last, (befores, passed.pairs), reverse=True)
        return smoothed(beliefs, first, cross, passed.info)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt, sequence
        space = model.state_space
        keys = jr.split(key, len(passed.beliefs.log_weights) + 1)
        last = jax.tree.map(lambda leaf: leaf[-1], passed.beliefs)
        mode_key, state_key = jr.split(keys[-1])
        mode = jr.categorical(mode_key, last.log_weights)
        component = jax.tree.map(lambda leaf: leaf[mode], last.components)
        state = space.wrap(component.sample(key=state_key))
        means = passed.initial.components.mean[None], passed.beliefs.components.mean[:-1]

        def step(later, known):
            mean, pairs, key = known
            return _draw_back(mean, pairs, later[0], later[1], space, key), later

        known = (jnp.concatenate(means), passed.pairs, keys[:-1])
        (_, first), (_, states) = jax.lax.scan(step, (mode, state), known, reverse=True)
        return first, states


smoother_of.register(IMMFilter)(lambda filt: Kim())


def _pairs(
    filt: IMMFilter,
    model: StateSpaceModel,
    belief: GaussianMixture,
    inputs: Inputs,
    key: Key | None,
) -> Pairs:
    """The steps from all modes to all modes."""
    process, inner = switching(model), filt.inner
    assert isinstance(inner, AbstractKalmanFilter)  # `forward` sees to it
    key = None if key is None else jr.split(key)[0]
    _, log_mixing = mix(
        belief.log_weights, log_transitions(process, belief.components.mean, inputs)
    )

    def into(mode):
        def one(before):
            step = inner.transition(mode[0], before, inputs, key=key)
            identity = jnp.eye(before.mean.size, dtype=before.mean.dtype)
            root, Y, L = array_update(step.noise, step.slope, identity)
            gain = product(before.factor, Y, pseudo_inverse(root))
            return step.mean, root, gain, product(before.factor, L)

        components = belief.components
        rooted = (
            Gaussian.of_factor(components.mean, components.root) if inner.along_root else components
        )
        return jax.vmap(one)(rooted)

    mean, root, gain, factor = map_trees(into, modes_of(model, process))
    return Pairs(mean, root, gain, factor, log_mixing.T)


def _back(
    before: GaussianMixture, pairs: Pairs, later: GaussianMixture, space: AbstractSpace
) -> tuple[GaussianMixture, Float[Array, "x x"]]:
    """The mixture before a step from that after it, and the cross covariance of both."""

    def pair(mean, predicted, gain, factor, after):
        change = product(gain, space.difference(after.mean, predicted))
        spread = root_sum(product(gain, after.factor), factor)
        return Gaussian.of_factor(space.add(mean, change), spread)

    one = jax.vmap(pair, (0, 0, 0, 0, None))
    each = jax.vmap(one, (None, 0, 0, 0, 0))(
        before.components.mean, pairs.mean, pairs.gain, pairs.factor, later.components
    )
    log_joint = pairs.log_weights + later.log_weights[:, None]
    weights, shares = mix(later.log_weights, pairs.log_weights)

    def merged(own, log_shares):
        moments = GaussianMixture(own, log_shares).moments(space)
        return Gaussian.of_factor(space.inside(moments.mean), moments.factor)

    columns = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), each)
    earlier = GaussianMixture(jax.vmap(merged)(columns, shares.T), weights)
    cross = _cross(each, pairs.gain, later, jnp.exp(log_joint), earlier, space)
    return earlier, cross


def _cross(
    each: Gaussian,
    gains: Float[Array, "m m x x"],
    later: GaussianMixture,
    weights: Float[Array, "m m"],
    earlier: GaussianMixture,
    space: AbstractSpace,
) -> Float[Array, "x x"]:
    """Cov(x, x') of the mixture of all pairs: Σ wᵢⱼ (Eᵢⱼ Pˢⱼ + (μˢᵢⱼ - μ)(μˢⱼ - μ')ᵀ)."""
    centres = earlier.moments(space).mean, later.moments(space).mean
    after = jax.vmap(space.difference, (0, None))(later.components.mean, centres[1])
    both = jax.vmap(jax.vmap(space.difference, (0, None)), (0, None))
    offsets = both(each.mean, centres[0])
    within = jnp.einsum("ji,jiab,jbc->ac", weights, gains, later.components.covariance)
    return within + jnp.einsum("ji,jia,jb->ab", weights, offsets, after)


def _draw_back(
    means: Float[Array, "m x"],
    pairs: Pairs,
    mode: Array,
    state: State,
    space: AbstractSpace,
    key: Key,
) -> tuple[Array, State]:
    """Mode and state before a step, from those after it."""
    own = jax.tree.map(lambda leaf: leaf[mode], pairs)
    offsets = jax.vmap(space.difference, (None, 0))(state, own.mean)
    log_weights = own.log_weights + jax.vmap(gaussian_log_density)(offsets, own.root)
    mode_key, state_key = jr.split(key)
    before = jr.categorical(mode_key, log_weights)
    noise = jr.normal(state_key, state.shape, state.dtype)
    change = product(own.gain[before], offsets[before]) + product(own.factor[before], noise)
    return before, space.wrap(space.add(means[before], change))
