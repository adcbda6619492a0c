"""Links from the state after a step of a Kalman filter to the state before it, for smoothers.

A filter's belief is x = μ + M ξ with ξ ~ N(0, I). All that a step says of the state before it is a
relation between coordinates, which orthogonal transformations give (`Link`):

    ξ = s + G ξ' + L ζ,   ζ ~ N(0, I),   G Gᵀ + L Lᵀ ≤ I

So a backward pass maps a mean b and a factor B of ξ' to s + G b and [G B  L], from N(0, I) at the
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
from filtrax._types import Inputs, Key, State
from filtrax.beliefs import AbstractBelief, Gaussian
from filtrax.filters.base import AbstractFilter, Info, all_finite
from filtrax.filters.kalman import condition
from filtrax.filters.linearization import AbstractKalmanFilter, Affine, Transition
from filtrax.linalg import array_update, canonical_with, product, root_sum
from filtrax.sensors import Measurement
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
    X, Y, L = coordinates(step, filt.along_root)
    space = model.state_space

    def observe(coordinates, inputs):
        point = space.add(step.mean, product(X, coordinates))
        return space.continued(lambda x: model.observe(x, inputs), point)

    whitened = dataclasses.replace(model, observe=observe, state_space=Euclidean())
    updated, info = filt.update(whitened, white, measurement, inputs, key=update_key)
    return linked(step, X, Y, L, updated, info, space, along_root=filt.along_root)


def affine_step(
    model: StateSpaceModel,
    belief: Gaussian,
    measurement: Measurement,
    process: Affine,
    observation: Affine,
    *,
    along_root: bool = False,
) -> tuple[Gaussian, Info, Link]:
    """The step of a Kalman filter for a process and an observation that are linear."""
    space, image_space = model.state_space, model.observation_space
    step = process.transition(belief, space)
    X, Y, L = coordinates(step, False)
    predicted = Gaussian.of_factor(step.mean, X)
    expected = observation.image(predicted, space, image_space)
    innovation = image_space.difference(measurement.value, expected)
    noisy = dataclasses.replace(measurement, factor=observation.noise)
    white = Gaussian.of_factor(jnp.zeros_like(step.mean), jnp.eye(step.mean.size, dtype=X.dtype))
    image = product(observation.slope, X)
    updated, info = condition(white, innovation, image, noisy, Euclidean())
    return linked(step, X, Y, L, updated, info, space, along_root=along_root)


def coordinates(step: Transition, along_root: bool) -> tuple[Array, Array, Array]:
    """X, Y and L with x' = μ̂ + X η and ξ = Y η + L ζ."""
    identity = jnp.eye(step.slope.shape[1], dtype=step.slope.dtype)
    X, Y, L = array_update(step.noise, step.slope, identity)
    if along_root:
        X, Y = canonical_with(X, Y)
    return X, Y, L


def linked(
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


def in_space(belief: Gaussian, white: Gaussian, space: AbstractSpace) -> Gaussian:
    """The distribution of μ + M ξ."""
    mean = space.inside(space.add(belief.mean, product(belief.factor, white.mean)))
    return Gaussian.of_factor(mean, root_sum(product(belief.factor, white.factor)))


def require_kalman(filt: Any, purpose: str) -> None:
    """Raises unless a filter has the joint distribution of states one step apart."""
    if not isinstance(filt, AbstractKalmanFilter):
        raise TypeError(
            f"{purpose} needs a Kalman filter (extended, unscented or Monte Carlo unscented), "
            f"got {type(filt).__name__}."
        )
    if not getattr(filt, "redraw", True):
        raise ValueError(
            f"{purpose} needs `redraw=True` of {type(filt).__name__}: the paper's form computes "
            "gains from points without process noise, and so has no joint distribution of "
            "states and measurements."
        )


def require_linearizable(
    filt: AbstractKalmanFilter, model: StateSpaceModel, belief: Gaussian, inputs: Inputs
) -> None:
    """Raises unless a filter that needs the derivative of the process can compute it."""
    if filt.along_root:
        return  # it needs images of points alone
    try:
        jax.eval_shape(lambda: filt.transition(model, belief, inputs))
    except Exception as error:
        raise TypeError(
            f"{type(filt).__name__} smooths with the derivative of `process`, and JAX cannot "
            f"compute it: {str(error).splitlines()[0]} Use `UnscentedKalmanFilter()`, which needs "
            "none, or a process that JAX differentiates."
        ) from error


class Lagged(AbstractBelief):
    """A belief with what leads back to the states before it.

    **Attributes:**

    - `now`: the belief about the present state.
    - `before`, `links`: beliefs of the last steps before it, and the links from each to the next.
    """

    now: Gaussian
    before: Gaussian
    links: Link

    @classmethod
    def first(cls, belief: Gaussian, lag: int) -> "Lagged":
        """The start of a sequence, as if nothing had happened in all steps before."""
        size, dtype = belief.mean.size, belief.mean.dtype
        zeros, nothing = jnp.zeros(size, dtype), jnp.zeros((size, size), dtype)
        link = Link(zeros, jnp.eye(size, dtype=dtype), nothing)
        repeat = lambda leaf: jnp.broadcast_to(leaf, (lag, *leaf.shape))  # noqa: E731
        return cls(belief, *jax.tree.map(repeat, (belief, link)))

    def moments(self, space: AbstractSpace) -> Gaussian:
        del space
        return self.now

    def moved(self, after: Gaussian, link: Link) -> "Lagged":
        """The same one step later."""
        shift = lambda many, one: jnp.concatenate([many[1:], one[None]])  # noqa: E731
        before, links = jax.tree.map(shift, (self.before, self.links), (self.now, link))
        return Lagged(after, before, links)

    def earlier(self, space: AbstractSpace) -> Gaussian:
        """The belief about the first of the states that it leads back to, given all readings."""
        size, dtype = self.now.mean.size, self.now.mean.dtype
        last = Gaussian.of_factor(jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
        back = lambda later, link: (link.back(later), None)  # noqa: E731
        white, _ = jax.lax.scan(back, last, self.links, reverse=True)
        return in_space(jax.tree.map(lambda leaf: leaf[0], self.before), white, space)


class LaggedFilter(AbstractFilter[Lagged]):
    """A Kalman filter whose beliefs lead back to the states of the last steps.

    **Attributes:**

    - `inner`: the filter.
    - `lag`: the number of steps.
    """

    inner: AbstractFilter
    lag: int = eqx.field(static=True)

    def __check_init__(self):
        check_whole("lag", self.lag, 1)
        require_kalman(self.inner, "`lag`")

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Lagged:
        return Lagged.first(self.inner.init(model, prior, key=key), self.lag)

    def step(
        self,
        model: StateSpaceModel,
        belief: Lagged,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Lagged, Info]:
        inner: Any = self.inner
        after, info, link = linked_step(inner, model, belief.now, measurement, inputs, key=key)
        return belief.moved(after, link), info
