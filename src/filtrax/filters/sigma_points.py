"""Sigma points, and the filter that the unscented and the Monte Carlo Kalman filter share.

Points are written as whitened offsets ξᵢ about a mean: xᵢ = μ + L ξᵢ with Σ = L Lᵀ. Their
weights satisfy Σ wᵢ = 1, Σ wᵢ ξᵢ = 0, Σ wᵢ ξᵢ ξᵢᵀ = I. The first offset is always zero: the
centre point is the reference about which angles are averaged.
"""

import abc
import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval as pe
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Control, Key, Scalar
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractBayesFilter, Info
from filtrax.filters.kalman_update import Conditioned, condition, joseph, updated
from filtrax.fusion import for_gpu, fused
from filtrax.linalg import (
    cholesky,
    cholesky_solve,
    congruent,
    gaussian_log_density,
    marginal,
    precise,
    product,
    square_root,
    sum_of_products,
    sum_of_squares,
    symmetrize,
)
from filtrax.model import StateSpaceModel
from filtrax.sensors import Measurement
from filtrax.spaces import Space

Parts = tuple[Float[Array, "_ _"], ...]
"""A row for each point, in parts: the centre's, then those of points with the same weight. A kernel
can neither cut nor join arrays, so what filters do with points they do with each part."""

Weights = tuple[Scalar, ...]
"""That of each point, for each part."""


class AbstractOffsets(eqx.Module):
    """Whitened offsets ξᵢ; the centre's is zero."""

    @abc.abstractmethod
    def scatter(self, slope: Float[Array, "x y"]) -> Parts:
        """The images ξᵢᵀ D of the offsets under a linear function, without the centre's."""

    @abc.abstractmethod
    def spread(self, factor: Float[Array, "x x"]) -> Parts:
        """L ξᵢ, without the centre's."""

    @abc.abstractmethod
    def slope(self, weights: Weights, deviations: Parts) -> Float[Array, "x y"]:
        """D = Σ wᵢ ξᵢ aᵢᵀ, the linear function that is closest to deviations."""


class Scattered(AbstractOffsets):
    """Any offsets; the centre's is not among them."""

    offsets: Float[Array, "n x"]

    def scatter(self, slope: Float[Array, "x y"]) -> Parts:
        return (product(self.offsets, slope),)

    def spread(self, factor: Float[Array, "x x"]) -> Parts:
        return self.scatter(factor.T)

    def slope(self, weights: Weights, deviations: Parts) -> Float[Array, "x y"]:
        return weights[1] * product(self.offsets.T, deviations[1])


class Paired(AbstractOffsets):
    """Pairs ± s eᵢ: products with them are sums and differences of rows."""

    distance: Float[Array, ""]

    def scatter(self, slope: Float[Array, "x y"]) -> Parts:
        far = self.distance * slope
        return far, -far

    def spread(self, factor: Float[Array, "x x"]) -> Parts:
        if for_gpu():
            return self.scatter(factor.T)
        # What comes back from both is one sum then, which a CPU stores. A difference it would
        # compute again in a product that reads it, for each of its terms.
        signs = jnp.asarray([1.0, -1.0], factor.dtype)
        return tuple(signs[:, None, None] * (self.distance * factor.T)[None])

    def slope(self, weights: Weights, deviations: Parts) -> Float[Array, "x y"]:
        _, plus, minus = deviations
        return self.distance * (weights[1] * plus - weights[2] * minus)


class SigmaPoints(eqx.Module):
    """Whitened offsets with their weights for means and for covariances.

    Deviations are taken from the mean or, where `about_centre` is true, from the image of the
    centre point; that of the centre itself is always from the mean. `counts` says how many points
    the parts have, with the centre in front.
    """

    offsets: AbstractOffsets
    counts: tuple[int, ...] = eqx.field(static=True)
    mean_weights: Weights
    covariance_weights: Weights
    about_centre: Bool[Array, ""]

    def spread(
        self, space: Space, belief: Gaussian
    ) -> tuple[Float[Array, "n x"], Float[Array, "x x"]]:
        """The points μ + L ξᵢ of a belief, and L. They may lie beyond the bounds of the space."""
        factor = square_root(belief.covariance)
        centre = belief.mean[None, :]
        around = (centre + part for part in self.offsets.spread(factor))
        parts = (jax.vmap(space.wrap_angles)(part) for part in (centre, *around))
        return jnp.concatenate([*parts]), factor

    def split(self, images: Float[Array, "n ..."]) -> tuple[Float[Array, "..."], ...]:
        """Rows in parts."""
        ends = itertools.accumulate(self.counts[:-1])
        return tuple(jnp.split(images, [*ends]))

    def mean(self, space: Space, images: Parts) -> Float[Array, " y"]:
        """Σ wᵢ yᵢ, which is `Space.mean` about the image of the centre."""
        centre = images[0][0]
        others = _differences(space, images[1:], centre)
        pairs = zip(self.mean_weights[1:], others, strict=True)
        return space.wrap(sum((weight * part.sum(0) for weight, part in pairs), centre))

    def mean_of(self, values: Float[Array, "n x x"]) -> Float[Array, "x x"]:
        """Σ wᵢ Aᵢ of matrices."""
        if for_gpu():  # where a sum for each part is a launch for each part
            pairs = zip(self.mean_weights, self.counts, strict=True)
            weights = jnp.concatenate([jnp.full(count, weight) for weight, count in pairs])
            return jnp.tensordot(weights, values, 1)
        # A matrix that all points share is not added up: a compiler knows the sum of equal numbers.
        pairs = zip(self.mean_weights, self.split(values), strict=True)
        return functools.reduce(jnp.add, (weight * part.sum(0) for weight, part in pairs))

    def deviations(self, space: Space, images: Parts, mean: Float[Array, " y"]) -> Parts:
        """yᵢ - ȳ, or yᵢ - y₀ of all points but the centre."""
        reference = jnp.where(self.about_centre, images[0][0], mean)
        (centre,) = _differences(space, images[:1], mean)
        return (centre, *_differences(space, images[1:], reference))

    def residuals(self, deviations: Parts, slope: Float[Array, "x y"]) -> Parts:
        """What a linear function leaves of deviations: aᵢ - D ξᵢ."""
        centre, *others = deviations
        pairs = zip(others, self.offsets.scatter(slope), strict=True)
        return (centre, *(part - linear for part, linear in pairs))

    def covariance(self, a: Parts, b: Parts) -> Float[Array, "_ _"]:
        """Σ wᵢ aᵢ bᵢᵀ."""
        return sum_of_products(self.covariance_weights, a, b)

    def square(self, a: Parts) -> Float[Array, "_ _"]:
        """Σ wᵢ aᵢ aᵢᵀ."""
        return sum_of_squares(self.covariance_weights, a)


def _differences(space: Space, images: Parts, reference: Float[Array, " y"]) -> Parts:
    difference = jax.vmap(space.difference, (0, None))
    return tuple(difference(part, reference) for part in images)


class PredictedPoints(eqx.Module):
    """A prediction that keeps its points, for the paper's form of the update."""

    belief: Gaussian
    states: Float[Array, "n x"]
    points: SigmaPoints


class AbstractSigmaPointFilter(AbstractBayesFilter[Gaussian, Gaussian | PredictedPoints]):
    """Propagates sigma points through process and observation.

    Prediction, with points xᵢ of N(μ, Σ) and yᵢ = f(xᵢ, u):

        μ̂ = Σ wᵢ yᵢ,   Σ̂ = Σ wᵢ (yᵢ - μ̂)(yᵢ - μ̂)ᵀ + Σ wᵢ Q(xᵢ, u)

    Update, with new points μ̂ + L ξᵢ of N(μ̂, Σ̂) and zᵢ = h(μ̂ + L ξᵢ): statistical linearization
    (Lefebvre, Bruyninckx & De Schutter 2002) in whitened coordinates, where the prior is N(0, I):

        ẑ = Σ wᵢ zᵢ,   D = Σ wᵢ (zᵢ - ẑ) ξᵢᵀ,   Λ = Σ wᵢ rᵢ rᵢᵀ,   rᵢ = zᵢ - ẑ - D ξᵢ
        observation D ξ with noise R + Λ: gain K and covariance Σ_ξ as in `condition`
        μ = μ̂ + L K (z - ẑ),   Σ = L Σ_ξ Lᵀ

    which is the textbook update S = Σ wᵢ (zᵢ - ẑ)(zᵢ - ẑ)ᵀ + R, Σ = Σ̂ - K S Kᵀ written as a sum
    of squares, so that it stays positive definite in float32.

    Means stay inside the bounds of the space, points need not: f and h are continued linearly
    (`Space.continued`), and Q is that of the closest state inside. Points that were moved to the
    bounds would be less spread than the belief, and on one side only: estimates would drift away
    from a bound, and know more than they were told.
    """

    redraw: eqx.AbstractVar[bool]
    """Whether the update draws new points that contain Q. The paper's form keeps the predicted
    ones, so that its gain does not know of the current process noise."""

    @abc.abstractmethod
    def points(self, size: int, dtype, *, key: Key) -> SigmaPoints:
        """Points for a state of `size` components."""

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key) -> Gaussian:
        del key
        return Gaussian(model.state_space.wrap(prior.mean), prior.covariance)

    @precise
    def predict(
        self, model: StateSpaceModel, belief: Gaussian, control: Control, *, key: Key
    ) -> Gaussian | PredictedPoints:
        space = model.state_space
        points = self.points(space.size, belief.mean.dtype, key=key)
        before, _ = fused(lambda belief: points.spread(space, belief))(belief)
        process = lambda x: model.process(x, control)  # noqa: E731
        after = jax.vmap(lambda x: space.wrap_angles(space.continued(process, x)))(before)
        noise_at = lambda x: model.process_noise.covariance(space.inside(x), control)  # noqa: E731
        varies = _depends(noise_at, belief.mean)
        # Weights of means sum to one: what is the same for all points is its own mean.
        noise = points.mean_of(jax.vmap(noise_at)(before)) if varies else noise_at(belief.mean)

        @fused
        def moments(after, noise):
            images = points.split(after)
            mean = points.mean(space, images)
            deviations = points.deviations(space, images, mean)
            return mean, symmetrize(points.square(deviations) + noise)

        predicted = Gaussian(*moments(after, noise))
        return predicted if self.redraw else PredictedPoints(predicted, after, points)

    @precise
    def update(
        self,
        model: StateSpaceModel,
        predicted: Gaussian | PredictedPoints,
        measurement: Measurement,
        *,
        key: Key,
    ) -> tuple[Gaussian, Info]:
        if isinstance(predicted, PredictedPoints):
            return _update_with_predicted_points(model, predicted, measurement)
        points = self.points(model.state_space.size, predicted.mean.dtype, key=key)
        spread = fused(lambda belief: points.spread(model.state_space, belief))
        states, factor = spread(predicted)
        observed = _observed(model, states)

        @fused
        def conditioned(observed, factor):
            space, seen = model.observation_space, measurement.seen()
            images = points.split(observed)
            expected = points.mean(space, images)
            deviations = points.deviations(space, images, expected)
            slope = points.offsets.slope(points.covariance_weights, deviations)
            residuals = points.residuals(deviations, slope)
            noise = measurement.covariance + points.square(residuals)
            innovation = jnp.where(seen, space.difference(measurement.value, expected), 0.0)
            found = condition(innovation, slope.T, None, noise, seen)
            covariance = symmetrize(congruent(factor, found.covariance))
            shift, gain = product(factor, found.shift), product(factor, found.gain)
            mean = model.state_space.wrap(predicted.mean + shift)
            return mean, innovation, found._replace(covariance=covariance, gain=gain)

        mean, innovation, found = conditioned(observed, factor)
        return updated(mean, innovation, found, found)


def _depends(function: Callable, argument: Any) -> bool:
    """Whether what a function gives depends on its argument."""
    return any(pe.dce_jaxpr(jax.make_jaxpr(function)(argument).jaxpr, True)[1])


def _observed(model: StateSpaceModel, states: Float[Array, "n x"]) -> Float[Array, "n z"]:
    return jax.vmap(lambda x: model.state_space.continued(model.observe, x))(states)


@precise
def _update_with_predicted_points(
    model: StateSpaceModel, predicted: PredictedPoints, measurement: Measurement
) -> tuple[Gaussian, Info]:
    """The paper's form: S and the cross covariance from the points as they were propagated.

        S = Σ wᵢ (zᵢ - ẑ)(zᵢ - ẑ)ᵀ + R,   K = Σ wᵢ (yᵢ - μ̂)(zᵢ - ẑ)ᵀ S⁻¹
        Σ = (I - K H) Σ̂ (I - K H)ᵀ + K R Kᵀ,   H = ∂h/∂x (μ̂)

    Σ̂ contains the current Q, while S and K do not.
    """
    points, prior = predicted.points, predicted.belief
    observed = _observed(model, predicted.states)
    jacobian = jax.jacfwd(model.observe)(prior.mean)

    @fused
    def conditioned(observed, states, transposed):
        space, seen = model.observation_space, measurement.seen()
        images = points.split(observed)
        expected = points.mean(space, images)
        deviations = points.deviations(space, images, expected)
        deviations = tuple(jnp.where(seen, part, 0.0) for part in deviations)
        noise = marginal(measurement.covariance, seen)
        innovation_covariance = symmetrize(points.square(deviations) + noise)
        state_deviations = points.deviations(model.state_space, points.split(states), prior.mean)
        cross = points.covariance(state_deviations, deviations)
        gain = cholesky_solve(cholesky(innovation_covariance), cross.T).T
        covariance = joseph(gain, jnp.where(seen, transposed, 0.0).T, prior.covariance, noise)
        innovation = jnp.where(seen, space.difference(measurement.value, expected), 0.0)
        log_likelihood = gaussian_log_density(innovation, innovation_covariance, seen)
        shift = product(gain, innovation)
        found = shift, covariance, innovation_covariance, gain, log_likelihood
        mean = model.state_space.wrap(prior.mean + shift)
        return mean, innovation, Conditioned(*found)

    mean, innovation, found = conditioned(observed, predicted.states, jacobian.T)
    return updated(mean, innovation, found, found)
