"""Sigma points, and the filter that the unscented and the Monte Carlo Kalman filter share.

Points are written as whitened offsets ξᵢ about a mean: xᵢ = μ + L ξᵢ with Σ = L Lᵀ. Their
weights satisfy Σ wᵢ = 1, Σ wᵢ ξᵢ = 0, Σ wᵢ ξᵢ ξᵢᵀ = I. The first offset is always zero: the
centre point is the reference about which angles are averaged.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax.arrays import Control, Key
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractBayesFilter, Info
from filtrax.filters.kalman_update import Conditioned, condition, joseph, updated
from filtrax.fusion import fused
from filtrax.linalg import (
    cholesky,
    cholesky_solve,
    gaussian_log_density,
    marginal,
    precise,
    product,
    square_root,
    symmetrize,
)
from filtrax.model import StateSpaceModel
from filtrax.sensors import Measurement
from filtrax.spaces import Space


class AbstractOffsets(eqx.Module):
    """Whitened offsets ξᵢ."""

    @abc.abstractmethod
    def scatter(self, slope: Float[Array, "x y"]) -> Float[Array, "n y"]:
        """The images ξᵢᵀ D of the offsets under a linear function."""

    @abc.abstractmethod
    def slope(
        self, weights: Float[Array, " n"], deviations: Float[Array, "n y"]
    ) -> Float[Array, "x y"]:
        """D = Σ wᵢ ξᵢ aᵢᵀ, the linear function that is closest to deviations."""


class Scattered(AbstractOffsets):
    """Any offsets."""

    offsets: Float[Array, "n x"]

    def scatter(self, slope: Float[Array, "x y"]) -> Float[Array, "n y"]:
        return product(self.offsets, slope)

    def slope(
        self, weights: Float[Array, " n"], deviations: Float[Array, "n y"]
    ) -> Float[Array, "x y"]:
        return product((weights[:, None] * self.offsets).T, deviations)


class Paired(AbstractOffsets):
    """Zero and pairs ± s eᵢ: products with them are sums and differences of rows."""

    distance: Float[Array, ""]

    def scatter(self, slope: Float[Array, "x y"]) -> Float[Array, "n y"]:
        far = self.distance * slope
        return jnp.concatenate([jnp.zeros_like(far[:1]), far, -far])

    def slope(
        self, weights: Float[Array, " n"], deviations: Float[Array, "n y"]
    ) -> Float[Array, "x y"]:
        pairs = len(weights) // 2
        weighted = weights[1:, None] * deviations[1:]
        return self.distance * (weighted[:pairs] - weighted[pairs:])


class SigmaPoints(eqx.Module):
    """Whitened offsets with their weights for means and for covariances.

    Deviations are taken from the mean or, where `about_centre` is true, from the image of the
    centre point.
    """

    offsets: AbstractOffsets
    mean_weights: Float[Array, " n"]
    covariance_weights: Float[Array, " n"]
    about_centre: Bool[Array, ""]

    def spread(
        self, space: Space, belief: Gaussian
    ) -> tuple[Float[Array, "n x"], Float[Array, "x x"]]:
        """The points μ + L ξᵢ of a belief, and L."""
        factor = square_root(belief.covariance)
        return jax.vmap(space.wrap)(belief.mean[None, :] + self.offsets.scatter(factor.T)), factor

    def mean(self, space: Space, images: Float[Array, "n y"]) -> Float[Array, " y"]:
        """Σ wᵢ yᵢ."""
        return space.mean(images, self.mean_weights, reference=images[0])

    def deviations(
        self, space: Space, images: Float[Array, "n y"], mean: Float[Array, " y"]
    ) -> Float[Array, "n y"]:
        """yᵢ - ȳ."""
        centre = jnp.where(self.about_centre, images[0], mean)
        return jax.vmap(space.difference, (0, None))(images, centre)

    def covariance(self, a: Float[Array, "n y"], b: Float[Array, "n z"]) -> Float[Array, "y z"]:
        """Σ wᵢ aᵢ bᵢᵀ."""
        return product((self.covariance_weights[:, None] * a).T, b)


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
        after = jax.vmap(lambda x: space.wrap(model.process(x, control)))(before)
        noises = jax.vmap(lambda x: model.process_noise.covariance(x, control))(before)
        noise = jnp.tensordot(points.mean_weights, noises, 1)

        @fused
        def moments(after, noise):
            mean = points.mean(space, after)
            deviations = points.deviations(space, after, mean)
            return mean, symmetrize(points.covariance(deviations, deviations) + noise)

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
        images = jax.vmap(model.observe)(states)

        @fused
        def conditioned(images, factor):
            space, seen = model.observation_space, measurement.seen()
            expected = points.mean(space, images)
            deviations = points.deviations(space, images, expected)
            slope = points.offsets.slope(points.covariance_weights, deviations)
            residuals = deviations - points.offsets.scatter(slope)
            noise = measurement.covariance + points.covariance(residuals, residuals)
            innovation = jnp.where(seen, space.difference(measurement.value, expected), 0.0)
            found = condition(innovation, slope.T, None, noise, seen)
            covariance = symmetrize(product(factor, found.covariance, factor.T))
            shift, gain = product(factor, found.shift), product(factor, found.gain)
            mean = model.state_space.wrap(predicted.mean + shift)
            return mean, innovation, found._replace(covariance=covariance, gain=gain)

        mean, innovation, found = conditioned(images, factor)
        return updated(mean, innovation, found, found)


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
    images = jax.vmap(model.observe)(predicted.states)
    jacobian = jax.jacfwd(model.observe)(prior.mean)

    @fused
    def conditioned(images, transposed):
        space, seen = model.observation_space, measurement.seen()
        expected = points.mean(space, images)
        deviations = jnp.where(seen, points.deviations(space, images, expected), 0.0)
        noise = marginal(measurement.covariance, seen)
        innovation_covariance = symmetrize(points.covariance(deviations, deviations) + noise)
        state_deviations = points.deviations(model.state_space, predicted.states, prior.mean)
        cross = points.covariance(state_deviations, deviations)
        gain = cholesky_solve(cholesky(innovation_covariance), cross.T).T
        covariance = joseph(gain, jnp.where(seen, transposed, 0.0).T, prior.covariance, noise)
        innovation = jnp.where(seen, space.difference(measurement.value, expected), 0.0)
        log_likelihood = gaussian_log_density(innovation, innovation_covariance, seen)
        shift = product(gain, innovation)
        found = shift, covariance, innovation_covariance, gain, log_likelihood
        mean = model.state_space.wrap(prior.mean + shift)
        return mean, innovation, Conditioned(*found)

    mean, innovation, found = conditioned(images, jacobian.T)
    return updated(mean, innovation, found, found)
