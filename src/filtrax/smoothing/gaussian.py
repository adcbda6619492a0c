"""Rauch-Tung-Striebel smoothing, with the links that steps of a filter leave behind."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._loops import scan_steps
from filtrax._types import Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info
from filtrax.filters.extended import ExtendedKalmanFilter
from filtrax.filters.linearization import AbstractKalmanFilter, Affine
from filtrax.filters.links import (
    Link,
    affine_step,
    in_space,
    linked_step,
    require_kalman,
    require_linearizable,
)
from filtrax.filters.sigma_points import AbstractSigmaPointFilter
from filtrax.linalg import product
from filtrax.smoothing.base import (
    AbstractSmoother,
    Sequence,
    Smoothed,
    smoothed,
    smoother_of,
)
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class Linked(eqx.Module):
    """A filter's pass: beliefs with the links that lead back.

    **Attributes:**

    - `initial`: the belief before the first step.
    - `beliefs`, `info`, `links`: of all steps.
    - `frozen`: which steps used the gains of the step before them, or None.
    """

    initial: Gaussian
    beliefs: Gaussian
    info: Info
    links: Link
    frozen: Array | None = None


class RauchTungStriebel(AbstractSmoother[Gaussian]):
    """The smoother of the extended, unscented and Monte Carlo Kalman filters.

    With the belief N(μ, P) of the filter after step t - 1 and its prediction N(μ̂, P̂) of step t,

        μˢ = μ + E (μˢₜ - μ̂),   Pˢ = P + E (Pˢₜ - P̂) Eᵀ,   E = cov(x_{t-1}, x_t) P̂⁻¹

    (Rauch, Tung & Striebel 1965; Särkkä & Svensson 2023, chapters 12 to 14), computed without the
    inverse and the subtraction. The cross covariance is F P of tangents, or that of sigma points.

    With more than one pass, process and observation are linearized again along the smoothed path:
    about its means for an extended filter, which makes it the iterated extended smoother, a
    Gauss-Newton method for the most likely path (Bell 1994); about its beliefs for filters with
    sigma points, which is iterated posterior linearization (García-Fernández, Svensson & Särkkä
    2017). Info and log likelihood stay those of the first pass.

    **Attributes:**

    - `passes`: how often the sequence is filtered and smoothed.
    """

    passes: int = eqx.field(default=1, static=True)

    def __check_init__(self):
        check_whole("passes", self.passes, 1)

    def forward(
        self,
        filt: Any,
        model: StateSpaceModel,
        prior: Gaussian,
        sequence: Sequence,
        *,
        key: Key | None,
        recompute: bool | None,
    ) -> Linked:
        require_kalman(filt, type(self).__name__)
        first = filt.init(model, prior, key=key)
        require_linearizable(filt, model, first, sequence.first().inputs)

        def step(belief, known):
            belief, info, link = linked_step(
                filt, model, belief, known.measurements, known.inputs, key=known.keys
            )
            return belief, (belief, info, link)

        _, kept = scan_steps(step, first, sequence, recompute=recompute)
        passed = Linked(first, *kept)
        if self.passes == 1:
            return passed

        def again(passed, _):
            return relinearized(filt, model, sequence, passed, recompute=recompute), None

        passed, _ = jax.lax.scan(again, passed, None, length=self.passes - 1)
        return passed

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Gaussian]:
        del filt, sequence, key
        return smooth_links(passed, model.state_space)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt, sequence
        return draw_links(passed, model.state_space, key=key)


smoother_of.register(ExtendedKalmanFilter)(lambda filt: RauchTungStriebel())
smoother_of.register(AbstractSigmaPointFilter)(lambda filt: RauchTungStriebel())


def relinearized(
    filt: AbstractKalmanFilter,
    model: StateSpaceModel,
    sequence: Sequence,
    passed: Linked,
    *,
    recompute: bool | None,
) -> Linked:
    """Filters again, with the model linearized along the smoothed path."""
    path = smooth_links(passed, model.state_space)
    process, observation = linearized_about(filt, model, sequence, path.initial, path.beliefs)

    def step(belief, known):
        measurement, process, observation = known
        belief, _, link = affine_step(model, belief, measurement, process, observation)
        return belief, (belief, link)

    known = (sequence.measurements, process, observation)
    _, (beliefs, links) = scan_steps(step, passed.initial, known, recompute=recompute)
    return Linked(passed.initial, beliefs, passed.info, links)


def linearized_about(
    filt: AbstractKalmanFilter,
    model: StateSpaceModel,
    sequence: Sequence,
    initial: Gaussian,
    beliefs: Gaussian,
) -> tuple[Affine, Affine]:
    """Process and observation of all steps, linearized about the beliefs of a path."""
    before = jax.tree.map(
        lambda one, many: jnp.concatenate([one[None], many[:-1]]), initial, beliefs
    )

    def of_step(before, after, known):
        keys = (None, None) if known.keys is None else jr.split(known.keys)
        process = filt.affine_process(model, before, known.inputs, key=keys[0])
        observation = filt.affine_observation(
            model, after, known.measurements, known.inputs, key=keys[1]
        )
        return process, observation

    return jax.vmap(of_step)(before, beliefs, sequence)


def smooth_links(passed: Linked, space: AbstractSpace) -> Smoothed[Gaussian]:
    """The backward pass."""
    first, later = trace_back(passed.links, last_coordinates(passed.initial))
    return smoothed_of(passed, first, later, space)


def last_coordinates(belief: Gaussian) -> Gaussian:
    """The distribution of the coordinates of a belief after which nothing is known."""
    size, dtype = belief.mean.size, belief.mean.dtype
    return Gaussian.of_factor(jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))


def trace_back(links: Link, last: Gaussian) -> tuple[Gaussian, Gaussian]:
    """The coordinates before the first step, and those after each, from those after the last."""

    def step(later: Gaussian, link: Link) -> tuple[Gaussian, Gaussian]:
        return link.back(later), later

    return jax.lax.scan(step, last, links, reverse=True)


def smoothed_of(
    passed: Linked, first: Gaussian, later: Gaussian, space: AbstractSpace
) -> Smoothed[Gaussian]:
    """The result from the distributions of all coordinates."""
    initial = in_space(passed.initial, first, space)
    beliefs = jax.vmap(lambda belief, white: in_space(belief, white, space))(passed.beliefs, later)
    factors = jnp.concatenate([passed.initial.factor[None], passed.beliefs.factor[:-1]])

    def cross(factor, gain, white, after):
        return product(factor, gain, white.factor, after.factor.T)

    crosses = jax.vmap(cross)(factors, passed.links.gain, later, beliefs)
    return smoothed(beliefs, initial, crosses, passed.info, frozen=passed.frozen)


def draw_links(
    passed: Linked, space: AbstractSpace, *, key: Key
) -> tuple[State, Float[Array, "t x"]]:
    """One trajectory: the last coordinates, and from them all those before."""
    mean = passed.initial.mean
    noise = jr.normal(key, (len(passed.beliefs.mean) + 1, mean.size), mean.dtype)

    def step(later, known):
        link, noise = known
        return link.draw(later, noise), later

    first, later = jax.lax.scan(step, noise[-1], (passed.links, noise[:-1]), reverse=True)

    def state(belief, coordinates):
        return space.inside(space.add(belief.mean, product(belief.factor, coordinates)))

    return state(passed.initial, first), jax.vmap(state)(passed.beliefs, later)
