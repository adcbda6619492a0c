"""Smoothing of long series whose gains become constant."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax._loops import scan_steps
from filtrax._types import Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite
from filtrax.filters.kalman import linearize
from filtrax.filters.links import Link, coordinates, require_kalman
from filtrax.filters.sigma_points import depends
from filtrax.linalg import array_update, inverse, log_determinant, product, with_ones
from filtrax.smoothing.base import AbstractSmoother, Sequence, Smoothed
from filtrax.smoothing.gaussian import Linked, draw_links, smoothed_of
from filtrax.smoothing.parallel import is_linear
from filtrax.state_space import StateSpaceModel

ROUNDINGS = 4
"""A root has settled once a step changes no row of it by more than so many roundings. What further
steps would change is then of the size of their own rounding."""


class Gains(eqx.Module):
    """All of a step that does not depend on means and readings.

    **Attributes:**

    - `state`, `link`: from an innovation to the changes of the mean, and of the coordinates before.
    - `whiten`, `log_density`: S^-½, and the log density of no innovation.
    - `root`: of the updated covariance.
    - `back`, `factor`: gain and factor of the link.
    """

    state: Float[Array, "x z"]
    link: Float[Array, "x z"]
    whiten: Float[Array, "z z"]
    log_density: Float[Array, ""]
    root: Float[Array, "x x"]
    back: Float[Array, "x x"]
    factor: Float[Array, "x x"]


class _Carry(eqx.Module):
    """The belief, and the gains that led to it."""

    belief: Gaussian
    gains: Gains
    settled: Bool[Array, ""]
    noise: Array
    seen: Bool[Array, " z"]


class SteadyState(AbstractSmoother[Gaussian]):
    """The Rauch-Tung-Striebel smoother that stops computing gains once they no longer change.

    The covariances of a linear model that is the same at all steps converge, and with them all
    gains. Once a step changes them by rounding alone, the next one uses them again, as long as the
    same components are observed with the same noise; `frozen` of the result says in which steps.
    Each sequence decides for itself, so mapped over sequences this saves nothing.
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
    ) -> Linked:
        require_kalman(filt, type(self).__name__)
        first = filt.init(model, prior, key=key)
        if not (
            is_linear(model, first.mean, sequence) and _is_the_same(model, first.mean, sequence)
        ):
            raise ValueError(
                "`SteadyState` smooths models whose gains can become constant: process and "
                "observation linear in the state, their slopes and the process noise independent "
                "of `inputs`. Use `RauchTungStriebel()` for others."
            )
        one = jax.tree.map(lambda leaf: leaf[0], sequence)
        gains = _gains(filt, model, first, one)
        start = _Carry(
            first,
            jax.tree.map(jnp.zeros_like, gains),
            jnp.asarray(False),
            jnp.zeros_like(one.measurements.factor),
            one.measurements.seen(),
        )

        def step(carry, known):
            after, *kept = _step(filt, model, carry, known)
            return after, tuple(kept)

        _, (beliefs, info, links, frozen) = scan_steps(step, start, sequence, recompute=recompute)
        return Linked(first, beliefs, info, links, frozen)

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Gaussian]:
        del filt, sequence, key
        mean = jnp.zeros_like(passed.initial.mean)
        last = Gaussian.of_factor(mean, jnp.eye(mean.size, dtype=mean.dtype))
        # A link is the one after it, in time, where that one is frozen.
        same = jnp.append(passed.frozen[1:], False)

        def step(carry, known):
            later, settled = carry
            link, same = known
            mean = link.shift + product(link.gain, later.mean)
            reused = settled & same
            factor = jax.lax.cond(reused, lambda: later.factor, lambda: link.back(later).factor)
            return (
                (Gaussian.of_factor(mean, factor), _settled(factor, later.factor)),
                later,
            )

        start = (last, jnp.asarray(False))
        (first, _), later = jax.lax.scan(step, start, (passed.links, same), reverse=True)
        return smoothed_of(passed, first, later, model.state_space)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt, sequence
        return draw_links(passed, model.state_space, key=key)


def _is_the_same(model: StateSpaceModel, state: State, sequence: Sequence) -> bool:
    """True if slopes and process noise do not depend on what is known at a step."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: leaf[0], sequence.inputs))
    for number, leaf in enumerate(leaves):

        def with_input(value, function, number=number):
            return function(structure.unflatten([*leaves[:number], value, *leaves[number + 1 :]]))

        parts = (
            lambda u: jax.jacfwd(lambda x: model.process(x, u))(state),
            lambda u: jax.jacfwd(lambda x: model.observe(x, u))(state),
            lambda u: model.process_noise(state, u),
        )
        if any(depends(lambda v, p=part: with_input(v, p), leaf) for part in parts):
            return False
    return True


def _gains(filt: Any, model: StateSpaceModel, belief: Gaussian, known: Sequence) -> Gains:
    """The gains of a step from a belief."""
    spaces, seen = (model.state_space, model.observation_space), known.measurements.seen()
    step = filt.transition(model, belief, known.inputs, key=known.keys)
    X, Y, L = coordinates(step, False)
    _, H = linearize(lambda x: model.observe(x, known.inputs), step.mean, *spaces)
    image = jnp.where(seen[:, None], product(H, X), 0.0)
    noise = jnp.where(seen[:, None], known.measurements.factor, 0.0)
    S, across, left = array_update(noise, image, jnp.eye(len(X), dtype=X.dtype))
    S = with_ones(S, seen)
    inverted = inverse(S)
    gain = product(across, inverted)
    count = seen.sum().astype(X.dtype)
    log_density = -0.5 * (log_determinant(S, inverted) + count * math.log(2 * math.pi))
    roots = product(X, left), product(Y, left)
    return Gains(product(X, gain), product(Y, gain), inverted, log_density, *roots, L)


def _step(
    filt: Any, model: StateSpaceModel, carry: _Carry, known: Sequence
) -> tuple[_Carry, Gaussian, Info, Link, Bool[Array, ""]]:
    measurement, space = known.measurements, model.state_space
    seen, image_space = measurement.seen(), model.observation_space
    alike = (seen == carry.seen).all() & (measurement.factor == carry.noise).all()
    frozen = carry.settled & alike
    gains = jax.lax.cond(
        frozen, lambda: carry.gains, lambda: _gains(filt, model, carry.belief, known)
    )
    predicted = space.wrap(model.process(carry.belief.mean, known.inputs))
    expected = model.observe(predicted, known.inputs)
    innovation = jnp.where(seen, image_space.difference(measurement.value, expected), 0.0)
    mean = space.inside(space.add(predicted, product(gains.state, innovation)))
    belief = Gaussian.of_factor(mean, gains.root)
    log_likelihood = gains.log_density - 0.5 * (product(gains.whiten, innovation) ** 2).sum()
    link = Link(product(gains.link, innovation), gains.back, gains.factor)
    settled = _settled(gains.root, carry.belief.factor)
    after = _Carry(belief, gains, settled, measurement.factor, seen)
    return after, belief, Info(all_finite(belief), log_likelihood), link, frozen


def _settled(root: Float[Array, "x x"], before: Float[Array, "x x"]) -> Bool[Array, ""]:
    """True if no row of a root has changed by more than rounding."""
    size = jnp.sqrt((root**2).sum(1, keepdims=True))
    return (jnp.abs(root - before) <= ROUNDINGS * jnp.finfo(root.dtype).eps * size).all()
