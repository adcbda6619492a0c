"""Rauch-Tung-Striebel smoothing in the coordinates of square roots.

A filter's belief is x = μ + M ξ with ξ ~ N(0, I). All that a step of the filter says of the state
before it is a relation between coordinates, which orthogonal transformations give (`Link`):

    ξ = s + G ξ' + L ζ,   ζ ~ N(0, I),   G Gᵀ + L Lᵀ ≤ I

So the backward pass maps a mean b and a factor B of ξ' to s + G b and [G B  L], from N(0, I) at the
last step. It inverts no covariance, however close to singular they are, and cannot amplify
rounding, because G and L are contractions.
"""

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
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite
from filtrax.filters.extended import ExtendedKalmanFilter
from filtrax.filters.kalman import condition
from filtrax.filters.linearization import AbstractKalmanFilter, Affine, Transition
from filtrax.filters.sigma_points import AbstractSigmaPointFilter
from filtrax.linalg import array_update, canonical_with, product, root_sum
from filtrax.sensors import Measurement
from filtrax.smoothing.base import (
    AbstractSmoother,
    Sequence,
    Smoothed,
    require_filter,
    smoothed,
    smoother_of,
)
from filtrax.spaces import AbstractSpace, Euclidean
from filtrax.state_space import StateSpaceModel


class Link(eqx.Module):
    """Coordinates of the belief before a step from those of the belief after it.

    ξ = s + G ξ' + L ζ with ζ ~ N(0, I).
    """

    shift: Float[Array, "*b x"]
    gain: Float[Array, "*b x x"]
    factor: Float[Array, "*b x x"]

    def back(self, later: Gaussian) -> Gaussian:
        """The distribution of ξ from that of ξ'."""
        mean = self.shift + product(self.gain, later.mean)
        return Gaussian.of_factor(mean, root_sum(product(self.gain, later.factor), self.factor))

    def draw(self, later: State, noise: State) -> State:
        """The coordinates ξ from ξ' and ζ."""
        return self.shift + product(self.gain, later) + product(self.factor, noise)


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


def linked_step(
    filt: AbstractKalmanFilter,
    model: StateSpaceModel,
    belief: Gaussian,
    measurement: Measurement,
    inputs: Inputs,
    *,
    key: Key | None = None,
) -> tuple[Gaussian, Info, Link]:
    """The filter's step, with the link back to the belief before it."""
    predict_key, update_key = (None, None) if key is None else jr.split(key)
    step = filt.transition(model, belief, inputs, key=predict_key)
    # The update, with coordinates η of the prediction as the state: x' = μ̂ + X η.
    white = Gaussian.of_factor(
        jnp.zeros_like(step.mean), jnp.eye(step.mean.size, dtype=step.mean.dtype)
    )
    X, Y, L = _joined(step, filt.along_root)
    space = model.state_space

    def observe(coordinates, inputs):
        point = space.add(step.mean, product(X, coordinates))
        return space.continued(lambda x: model.observe(x, inputs), point)

    whitened = dataclasses.replace(model, observe=observe, state_space=Euclidean())
    updated, info = filt.update(whitened, white, measurement, inputs, key=update_key)
    return _linked(step, X, Y, L, updated, info, space, along_root=filt.along_root)


def affine_step(
    model: StateSpaceModel,
    belief: Gaussian,
    measurement: Measurement,
    process: Affine,
    observation: Affine,
) -> tuple[Gaussian, Info, Link]:
    """The step of a Kalman filter for a process and an observation that are linear."""
    space, image_space = model.state_space, model.observation_space
    step = process.transition(belief, space)
    X, Y, L = _joined(step, False)
    predicted = Gaussian.of_factor(step.mean, X)
    expected = observation.image(predicted, space, image_space)
    innovation = image_space.difference(measurement.value, expected)
    noisy = dataclasses.replace(measurement, factor=observation.noise)
    white = Gaussian.of_factor(jnp.zeros_like(step.mean), jnp.eye(step.mean.size, dtype=X.dtype))
    image = product(observation.slope, X)
    updated, info = condition(white, innovation, image, noisy, Euclidean())
    return _linked(step, X, Y, L, updated, info, space, along_root=False)


def _joined(step: Transition, along_root: bool) -> tuple[Array, Array, Array]:
    """X, Y and L with x' = μ̂ + X η and ξ = Y η + L ζ."""
    identity = jnp.eye(step.slope.shape[1], dtype=step.slope.dtype)
    X, Y, L = array_update(step.noise, step.slope, identity)
    if along_root:
        X, Y = canonical_with(X, Y)
    return X, Y, L


def _linked(
    step: Transition,
    X: Array,
    Y: Array,
    L: Array,
    updated: Gaussian,
    info: Info,
    space: AbstractSpace,
    *,
    along_root: bool,
) -> tuple[Gaussian, Info, Link]:
    """Belief and link from the updated coordinates η = e + C ξ': x' = μ̂ + X e + X C ξ'."""
    factor, gain = product(X, updated.factor), product(Y, updated.factor)
    if along_root:
        factor, gain = canonical_with(factor, gain)
    mean = space.inside(space.add(step.mean, product(X, updated.mean)))
    belief = Gaussian.of_factor(mean, factor)
    info = dataclasses.replace(info, finite=all_finite(belief))
    if info.gain is not None:
        info = dataclasses.replace(info, gain=product(X, info.gain))
    return belief, info, Link(product(Y, updated.mean), gain, L)


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
        check_kalman(filt, self)
        first = filt.init(model, prior, key=key)

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


def check_kalman(filt: Any, smoother: Any) -> None:
    """Raises unless a filter has the joint distribution of states one step apart."""
    require_filter(filt, AbstractKalmanFilter, smoother)
    if not getattr(filt, "redraw", True):
        raise ValueError(
            f"Smoothing needs `redraw=True` of {type(filt).__name__}: the paper's form computes "
            "gains from points without process noise, and so has no joint distribution of "
            "states and measurements."
        )


def relinearized(
    filt: AbstractKalmanFilter,
    model: StateSpaceModel,
    sequence: Sequence,
    passed: Linked,
    *,
    recompute: bool | None,
) -> Linked:
    """Filters again, with the model linearized along the smoothed path."""
    process, observation = linearized(filt, model, sequence, passed)

    def step(belief, known):
        measurement, process, observation = known
        belief, _, link = affine_step(model, belief, measurement, process, observation)
        return belief, (belief, link)

    known = (sequence.measurements, process, observation)
    _, (beliefs, links) = scan_steps(step, passed.initial, known, recompute=recompute)
    return Linked(passed.initial, beliefs, passed.info, links)


def linearized(
    filt: AbstractKalmanFilter, model: StateSpaceModel, sequence: Sequence, passed: Linked
) -> tuple[Affine, Affine]:
    """Process and observation of all steps, linearized about the smoothed beliefs."""
    path = smooth_links(passed, model.state_space)
    both = jax.tree.map(
        lambda first, others: jnp.concatenate([first[None], others]),
        path.initial,
        path.beliefs,
    )
    before = jax.tree.map(lambda leaf: leaf[:-1], both)

    def of_step(before, after, known):
        keys = (None, None) if known.keys is None else jr.split(known.keys)
        process = filt.affine_process(model, before, known.inputs, key=keys[0])
        observation = filt.affine_observation(
            model, after, known.measurements, known.inputs, key=keys[1]
        )
        return process, observation

    return jax.vmap(of_step)(before, path.beliefs, sequence)


def smooth_links(passed: Linked, space: AbstractSpace) -> Smoothed[Gaussian]:
    """The backward pass."""
    mean = jnp.zeros_like(passed.initial.mean)
    last = Gaussian.of_factor(mean, jnp.eye(mean.size, dtype=mean.dtype))

    def step(later, link):
        return link.back(later), later

    first, later = jax.lax.scan(step, last, passed.links, reverse=True)
    return smoothed_of(passed, first, later, space)


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


def in_space(belief: Gaussian, white: Gaussian, space: AbstractSpace) -> Gaussian:
    """The distribution of μ + M ξ."""
    mean = space.inside(space.add(belief.mean, product(belief.factor, white.mean)))
    return Gaussian.of_factor(mean, root_sum(product(belief.factor, white.factor)))


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
