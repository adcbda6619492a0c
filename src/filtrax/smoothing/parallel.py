"""Filtering and smoothing in parallel over time, by associative scans.

A scan combines stretches of steps, so that few combinations depend on each other
(`filtrax._scans`), with more arithmetic in all. The model is linear, or linearized along a path p:
with δ = x - p, and with innovations from the observation of p,

    δ_t = F δ_{t-1} + c + N w,   y = H δ_t + R^½ v

Filtering combines elements (A, b, U, η, Z) of stretches of steps: given the state δ before a
stretch, the state after it is N(A δ + b, U Uᵀ), and what was observed has an information vector η
and an information matrix Z Zᵀ about δ (Särkkä & García-Fernández 2021; with square roots: Yaghoobi,
Corenflos, Hassan & Särkkä 2022). Smoothing combines `Link`s.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._scans import associative_scan
from filtrax._types import Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.linearization import AbstractKalmanFilter, Affine
from filtrax.filters.links import Link, affine_step, require_kalman, require_linearizable
from filtrax.filters.sigma_points import depends
from filtrax.linalg import array_update, canonical, inverse, product, root_sum, with_ones
from filtrax.sensors import Measurement
from filtrax.smoothing.base import AbstractSmoother, Sequence, Smoothed
from filtrax.smoothing.gaussian import Linked, draw_links, linearized_about, smoothed_of
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel

FEWEST_STEPS = 10_000
"""The number of steps from which on the parallel road is the faster one on a GPU, for one sequence:
12.5 ms in turn against 13.9 ms by a scan at 10⁴, 119 ms against 18 ms at 10⁵ (value and gradient of
the likelihood on an H200, 4 states, 2 observations, the scan being dynamax')."""


class Stretch(eqx.Module):
    """Several steps as one element of the scan: see the module."""

    slope: Float[Array, "*t x x"]
    mean: Float[Array, "*t x"]
    root: Float[Array, "*t x x"]
    information: Float[Array, "*t x"]
    information_root: Float[Array, "*t x x"]

    def then(self, later: "Stretch") -> "Stretch":
        """This stretch and the one after it."""
        U, Z, identity = (
            self.root,
            later.information_root,
            jnp.eye(self.mean.size, dtype=self.mean.dtype),
        )
        X, Y, L = array_update(identity, product(U.T, Z), Z)
        inverted = inverse(X)
        kept = identity - product(U, inverted.T, Y.T)
        mean = self.mean + product(U, U.T, later.information)
        information = later.information - product(Z, Z.T, self.mean)
        return Stretch(
            product(later.slope, kept, self.slope),
            product(later.slope, kept, mean) + later.mean,
            root_sum(product(later.slope, U, inverted.T), later.root),
            product(self.slope.T, kept.T, information) + self.information,
            root_sum(product(self.slope.T, L), self.information_root),
        )


class ParallelInTime(AbstractSmoother[Gaussian]):
    """The Rauch-Tung-Striebel smoother as associative scans, for long sequences on a GPU.

    It equals `RauchTungStriebel` on models that are linear in the state, with one pass. Others are
    linearized about the mean of the prior in the first pass, and about the smoothed path in each
    later one, so that the passes lead to where those of `RauchTungStriebel` lead. Info and
    likelihood are those of the last pass.

    `smooth` chooses it on a GPU alone, for long sequences of linear models. On a CPU it gains
    something for one sequence, whose steps it makes many at once, and nothing for many sequences.

    **Attributes:**

    - `passes`: how often the sequence is linearized.
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
        del recompute
        require_kalman(filt, type(self).__name__)
        first = filt.init(model, prior, key=key)
        require_linearizable(filt, model, first, sequence.first().inputs)
        if self.passes == 1 and not is_linear(model, first.mean, sequence):
            raise ValueError(
                "`ParallelInTime()` smooths models that are linear in the state in one pass, and "
                "this one is not: say how often to linearize it, as in `ParallelInTime(passes=5)`, "
                "or use `RauchTungStriebel()`."
            )
        steps = len(sequence.measurements.value)
        repeated = lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape))  # noqa: E731
        path = (first, jax.tree.map(repeated, first))
        passed = _parallel_pass(filt, model, sequence, first, path)
        if self.passes == 1:
            return passed

        def again(passed, _):
            found = smooth_in_parallel(passed, model.state_space)
            path = found.initial, found.beliefs
            return _parallel_pass(filt, model, sequence, first, path), None

        return jax.lax.scan(again, passed, None, length=self.passes - 1)[0]

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Gaussian]:
        del filt, sequence, key
        return smooth_in_parallel(passed, model.state_space)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt, sequence
        return draw_links(passed, model.state_space, key=key)


def is_linear(model: StateSpaceModel, state: State, sequence: Sequence) -> bool:
    """True if process and observation are linear in the state, and no noise depends on it."""
    inputs = jax.tree.map(lambda leaf: leaf[0], sequence.inputs)
    parts = (
        jax.jacfwd(lambda x: model.process(x, inputs)),
        jax.jacfwd(lambda x: model.observe(x, inputs)),
        lambda x: model.process_noise(x, inputs),
    )
    return not any(depends(part, state) for part in parts)


def _parallel_pass(
    filt: AbstractKalmanFilter,
    model: StateSpaceModel,
    sequence: Sequence,
    first: Gaussian,
    path: tuple[Gaussian, Gaussian],
) -> Linked:
    """Filters with the model linearized about a path, and finds all links."""
    space = model.state_space
    process, observation = linearized_about(filt, model, sequence, *path)
    points = path[1].mean

    known = (process, observation, points, sequence.measurements)
    elements = jax.vmap(lambda *own: _element(model, *own))(*known)
    offset = Gaussian.of_factor(space.difference(first.mean, path[0].mean), first.factor)
    begin = _first_element(model, offset, *jax.tree.map(lambda leaf: leaf[0], known))
    elements = jax.tree.map(lambda one, many: many.at[0].set(one), begin, elements)
    combined = associative_scan(Stretch.then, elements, _nothing(first))
    means = jax.vmap(lambda p, offset: space.inside(space.add(p, offset)))(points, combined.mean)
    beliefs = Gaussian.of_factor(means, jax.vmap(canonical)(combined.root))
    befores = jax.tree.map(
        lambda one, many: jnp.concatenate([one[None], many[:-1]]), first, beliefs
    )

    def step(before, *known):
        _, info, link = affine_step(model, before, *known, along_root=True)
        return info, link

    known = (sequence.measurements, process, observation)
    info, links = jax.vmap(step)(befores, *known)
    return Linked(first, beliefs, info, links)


def _offsets(
    model: StateSpaceModel,
    process: Affine,
    observation: Affine,
    point: State,
    measurement: Measurement,
) -> tuple[Array, Array, Array, Array]:
    """c, y, and H and a factor of R with zeros where nothing was seen."""
    space, image_space, seen = model.state_space, model.observation_space, measurement.seen()
    shift = space.difference(process.value, point)
    innovation = image_space.difference(measurement.value, observation.value)
    slope = jnp.where(seen[:, None], observation.slope, 0.0)
    noise = jnp.where(seen[:, None], observation.noise, 0.0)
    return shift, jnp.where(seen, innovation, 0.0), slope, noise


def _element(
    model: StateSpaceModel,
    process: Affine,
    observation: Affine,
    point: State,
    measurement: Measurement,
) -> Stretch:
    """One step, from a state that is not known."""
    c, y, H, R = _offsets(model, process, observation, point, measurement)
    X, Y, L = array_update(R, product(H, process.noise), process.noise)
    inverted = inverse(with_ones(X, measurement.seen()))
    gain = product(Y, inverted)
    slope = product(inverted, H, process.slope)
    white = product(inverted, y - product(H, c))
    return Stretch(
        process.slope - product(gain, H, process.slope),
        c + product(Y, white),
        L,
        product(slope.T, white),
        root_sum(slope.T),
    )


def _nothing(belief: Gaussian) -> Stretch:
    """No step at all."""
    mean, root = jnp.zeros_like(belief.mean), jnp.zeros((belief.mean.size,) * 2, belief.mean.dtype)
    return Stretch(jnp.eye(mean.size, dtype=mean.dtype), mean, root, mean, root)


def _first_element(
    model: StateSpaceModel,
    offset: Gaussian,
    process: Affine,
    observation: Affine,
    point: State,
    measurement: Measurement,
) -> Stretch:
    """The first step, from a distribution of the offset before it."""
    c, y, H, R = _offsets(model, process, observation, point, measurement)
    moved = jnp.concatenate([product(process.slope, offset.factor), process.noise], axis=1)
    X, Y, L = array_update(R, product(H, moved), moved)
    inverted = inverse(with_ones(X, measurement.seen()))
    mean = c + product(process.slope, offset.mean)
    white = product(inverted, y - product(H, mean))
    zeros = jnp.zeros_like(L)
    return Stretch(zeros, mean + product(Y, white), L, jnp.zeros_like(mean), zeros)


def smooth_in_parallel(passed: Linked, space: AbstractSpace) -> Smoothed[Gaussian]:
    """The backward pass, as a scan of links."""

    def joined(later: Link, earlier: Link) -> Link:
        shift = earlier.shift + product(earlier.gain, later.shift)
        factor = root_sum(product(earlier.gain, later.factor), earlier.factor)
        return Link(shift, product(earlier.gain, later.gain), factor)

    zeros = jnp.zeros_like(passed.initial.mean)
    identity = jnp.eye(zeros.size, dtype=zeros.dtype)
    backward = lambda tree: jax.tree.map(lambda leaf: leaf[::-1], tree)  # noqa: E731
    nothing = Link(zeros, identity, jnp.zeros_like(identity))
    all_links = backward(associative_scan(joined, backward(passed.links), nothing))
    roots = jax.vmap(root_sum)(all_links.gain, all_links.factor)
    later = Gaussian.of_factor(
        jnp.concatenate([all_links.shift[1:], jnp.zeros_like(all_links.shift[:1])]),
        jnp.concatenate([roots[1:], identity[None]]),
    )
    first = Gaussian.of_factor(all_links.shift[0], roots[0])
    return smoothed_of(passed, first, later, space)
