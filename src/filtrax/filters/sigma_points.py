"""Sigma points, and the filter that the unscented and the Monte Carlo Kalman filter share.

Points are whitened offsets ξᵢ about a mean: xᵢ = μ + L ξᵢ with P = L Lᵀ. Their weights satisfy
Σ wᵢ = 1, Σ wᵢ ξᵢ = 0, Σ wᵢ ξᵢ ξᵢᵀ = I. The centre point has the offset zero: it is the reference
from which deviations are taken, and about which angles are averaged.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax._types import Inputs, Key, Scalar, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractBayesFilter, Info, all_finite
from filtrax.filters.kalman import condition
from filtrax.linalg import (
    downdate,
    gaussian_log_density,
    inverse,
    marginal_root,
    product,
    root_sum,
    square_root,
    squared,
)
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class AbstractOffsets(eqx.Module):
    """Whitened offsets ξᵢ, without that of the centre, which is zero."""

    @abc.abstractmethod
    def images(self, matrix: Float[Array, "y x"]) -> Float[Array, "n y"]:
        """A ξᵢ for all i."""

    @abc.abstractmethod
    def slope(self, values: Float[Array, "n y"]) -> Float[Array, "y x"]:
        """Σ aᵢ ξᵢᵀ."""


class Samples(AbstractOffsets):
    """Any offsets."""

    offsets: Float[Array, "n x"]

    def images(self, matrix: Float[Array, "y x"]) -> Float[Array, "n y"]:
        return product(self.offsets, matrix.T)

    def slope(self, values: Float[Array, "n y"]) -> Float[Array, "y x"]:
        return product(values.T, self.offsets)


class Pairs(AbstractOffsets):
    """Offsets s eᵢ and -s eᵢ along the axes."""

    distance: Scalar

    def images(self, matrix: Float[Array, "y x"]) -> Float[Array, "n y"]:
        far = self.distance * matrix.T
        return jnp.concatenate([far, -far])

    def slope(self, values: Float[Array, "n y"]) -> Float[Array, "y x"]:
        ahead, behind = jnp.split(values, 2)
        return self.distance * (ahead - behind).T


class SigmaPoints(eqx.Module):
    """Whitened offsets and their weights, and how functions are evaluated at them.

    **Attributes:**

    - `offsets`: ξᵢ, without the centre's.
    - `weights`: of the images of these points; the centre has the rest.
    - `spread`: the weight of the deviation of the centre's image from the mean in covariances.
    - `about_centre`: whether covariances are made of deviations from the image of the centre, and
      not from the mean.
    - `infinitesimal`: whether points lie so close to the centre that differences of their images
      are nothing but rounding, so that they are taken from derivatives.
    - `subtracts`: whether `spread` may be negative.
    """

    offsets: AbstractOffsets
    weights: Float[Array, " n"]
    spread: Scalar
    about_centre: Bool[Array, ""]
    infinitesimal: bool = eqx.field(default=False, static=True)
    subtracts: bool = eqx.field(default=False, static=True)

    def images(
        self,
        function: Callable[[State], Any],
        belief: Gaussian,
        space: AbstractSpace,
        difference: Callable[[Any, Any], Any] = jnp.subtract,
    ) -> tuple[Any, Any]:
        """The image f(μ) of the centre, and dᵢ = f(xᵢ) - f(μ) of all other points.

        Infinitesimal points have dᵢ = ∂f/∂x(μ + ½ L ξᵢ) L ξᵢ, the midpoint rule. Its error is
        that of the third power of their distance, and it does not subtract what is nearly equal.
        """
        centre = function(belief.mean)
        steps = self.offsets.images(belief.factor)

        def image(step):
            if self.infinitesimal:
                middle = space.add(belief.mean, 0.5 * step)
                return jax.jvp(function, (middle,), (step,))[1]
            return difference(function(space.add(belief.mean, step)), centre)

        return centre, jax.vmap(image)(steps)

    def mean(self, deviations: Float[Array, "n ..."]) -> Float[Array, "..."]:
        """Σ wᵢ dᵢ: by how much the mean of the images differs from that of the centre."""
        weights = self.weights.reshape(-1, *[1] * (deviations.ndim - 1))
        return (weights * deviations).sum(0)

    def root(
        self,
        deviations: Float[Array, "n y"],
        shift: Float[Array, " y"],
        noise: Float[Array, "y _"],
    ) -> Float[Array, "y y"]:
        """The root of the covariance of the images, whose mean is `shift`, and of noise."""
        total = root_sum(*self.scattered(deviations, shift), noise)
        if not self.subtracts:
            return total
        return downdate(total, _root_above_zero(-self.spread) * shift)

    def scattered(
        self, deviations: Float[Array, "n y"], shift: Float[Array, " y"]
    ) -> tuple[Float[Array, "y _"], ...]:
        """Factors whose squares add up to the covariance of the images, but what is subtracted."""
        about = jnp.where(self.about_centre, 0.0, shift)
        others = jnp.sqrt(self.weights)[:, None] * (deviations - about[None, :])
        return (_root_above_zero(self.spread) * shift)[:, None], others.T

    def covariance(
        self,
        left: tuple[Float[Array, "n x"], Float[Array, " x"]],
        right: tuple[Float[Array, "n y"], Float[Array, " y"]],
    ) -> Float[Array, "x y"]:
        """The covariance of two sets of images, from deviations and means of each."""
        (a, a_mean), (b, b_mean) = left, right
        a, b = (x - jnp.where(self.about_centre, 0.0, m)[None] for x, m in (left, right))
        between = self.spread * a_mean[:, None] * b_mean[None, :]
        return product((self.weights[:, None] * a).T, b) + between

    def slope(self, deviations: Float[Array, "n y"]) -> Float[Array, "y x"]:
        """D = Σ wᵢ dᵢ ξᵢᵀ, the linear function of the offsets that is closest to the images."""
        return self.offsets.slope(self.weights[:, None] * deviations)


class PredictedPoints(eqx.Module):
    """A prediction that keeps its points, for the paper's form of the update."""

    belief: Gaussian
    states: Float[Array, "n x"]
    points: SigmaPoints


class AbstractSigmaPointFilter(AbstractBayesFilter[Gaussian, Gaussian | PredictedPoints]):
    """Propagates sigma points through process and observation.

    Prediction, with points xᵢ of N(μ, P) and yᵢ = f(xᵢ, u):

        μ̂ = Σ wᵢ yᵢ,   P̂ = Σ wᵢ (yᵢ - μ̂)(yᵢ - μ̂)ᵀ + Σ wᵢ Q(xᵢ, u)

    Update, with new points μ̂ + L ξᵢ of N(μ̂, P̂) and zᵢ = h(μ̂ + L ξᵢ, u): statistical linearization
    (Lefebvre, Bruyninckx & De Schutter 2002). The linear function of the offsets that is closest to
    the images takes the place of H L, and what it leaves of them adds to the noise:

        ẑ = Σ wᵢ zᵢ,   D = Σ wᵢ (zᵢ - ẑ) ξᵢᵀ,   Λ = Σ wᵢ rᵢ rᵢᵀ,   rᵢ = zᵢ - ẑ - D ξᵢ
        K and P as in `condition`, with the image D and the noise R + Λ

    which is the textbook update S = Σ wᵢ (zᵢ - ẑ)(zᵢ - ẑ)ᵀ + R, P = P̂ - K S Kᵀ without the
    subtraction.

    Means stay inside the bounds of the space, points need not: f and h are continued linearly
    (`Space.continued`), and Q is that of the closest state inside. Points that were moved to the
    bounds would be less spread than the belief, and on one side only: estimates would drift away
    from a bound, and know more than they were told.
    """

    redraw: eqx.AbstractVar[bool]
    """Whether the update draws new points that contain Q. The paper's form keeps the predicted
    ones, so that its gain does not know of the current process noise."""

    @abc.abstractmethod
    def points(self, size: int, dtype, *, key: Key | None = None) -> SigmaPoints:
        """Points for a state of `size` components."""

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Gaussian:
        del key
        return Gaussian.of_root(model.state_space.wrap(prior.mean), prior.root)

    def predict(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Gaussian | PredictedPoints:
        space = model.state_space
        points = self.points(belief.mean.size, belief.mean.dtype, key=key)
        process = lambda x: space.continued(lambda y: model.process(y, inputs), x)  # noqa: E731
        centre, deviations = points.images(process, belief, space, space.difference)
        shift = points.mean(deviations)
        noise = _mean_noise(points, model, belief, inputs)
        mean = space.inside(space.add(centre, shift))
        predicted = Gaussian.of_root(mean, points.root(deviations, shift, noise))
        if self.redraw:
            return predicted
        states = jax.vmap(space.add, (None, 0))(centre, deviations)
        return PredictedPoints(predicted, jnp.concatenate([centre[None], states]), points)

    def update(
        self,
        model: StateSpaceModel,
        predicted: Gaussian | PredictedPoints,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Gaussian, Info]:
        if isinstance(predicted, PredictedPoints):
            return _update_with_predicted_points(model, predicted, measurement, inputs)
        space, image_space = model.state_space, model.observation_space
        # The root's tangent must be that of the root along which the points lie.
        predicted = Gaussian.of_root(predicted.mean, predicted.factor)
        points = self.points(predicted.mean.size, predicted.mean.dtype, key=key)
        observe = lambda x: space.continued(lambda y: model.observe(y, inputs), x)  # noqa: E731
        centre, deviations = points.images(observe, predicted, space, image_space.difference)
        shift, slope = points.mean(deviations), points.slope(deviations)
        residuals = deviations - points.offsets.images(slope)
        expected = image_space.inside(image_space.add(centre, shift))
        innovation = image_space.difference(measurement.value, expected)
        if not points.subtracts:
            spread = points.scattered(residuals, shift)
            return condition(predicted, innovation, slope, measurement, space, spread=spread)
        noise = points.root(residuals, shift, measurement.factor)
        measurement = dataclasses.replace(measurement, factor=noise)
        return condition(predicted, innovation, slope, measurement, space)


def _mean_noise(
    points: SigmaPoints, model: StateSpaceModel, belief: Gaussian, inputs: Inputs
) -> Float[Array, "x _"]:
    """A factor of Σ wᵢ Q(xᵢ, u), which is that of Q itself where it does not depend on the state."""
    space, noise = model.state_space, model.process_noise
    if not depends(lambda x: noise(x, inputs), belief.mean):
        return noise(belief.mean, inputs)
    covariance = lambda x: noise.covariance(space.inside(x), inputs)  # noqa: E731
    centre, deviations = points.images(covariance, belief, space)
    return square_root(centre + points.mean(deviations))


def depends(function: Callable[[Array], Array], argument: Array) -> bool:
    """Whether the program of a function uses its argument for its result."""
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    used = {*jaxpr.invars}
    for equation in jaxpr.eqns:
        if any(variable in used for variable in equation.invars if not hasattr(variable, "val")):
            used |= {*equation.outvars}
    return any(variable in used for variable in jaxpr.outvars if not hasattr(variable, "val"))


def _update_with_predicted_points(
    model: StateSpaceModel, predicted: PredictedPoints, measurement: Measurement, inputs: Inputs
) -> tuple[Gaussian, Info]:
    """The paper's form: S and the cross covariance from the points as they were propagated.

        S = Σ wᵢ (zᵢ - ẑ)(zᵢ - ẑ)ᵀ + R,   K = Σ wᵢ (yᵢ - μ̂)(zᵢ - ẑ)ᵀ S⁻¹
        P = (I - K H) P̂ (I - K H)ᵀ + K R Kᵀ,   H = ∂h/∂x (μ̂)

    P̂ contains the current Q, while S and K do not.
    """
    points, prior, seen = predicted.points, predicted.belief, measurement.seen()
    space, image_space = model.state_space, model.observation_space
    observe = lambda x: space.continued(lambda y: model.observe(y, inputs), x)  # noqa: E731
    images = jax.vmap(observe)(predicted.states)
    deviations = jax.vmap(image_space.difference, (0, None))(images[1:], images[0])
    shift = points.mean(deviations)
    innovation = image_space.difference(measurement.value, image_space.add(images[0], shift))
    d, noise = jnp.where(seen, innovation, 0.0), measurement.factor
    X = marginal_root(points.root(deviations, shift, noise), seen)
    inverted = inverse(X)
    states = jax.vmap(space.difference, (0, None))(predicted.states[1:], predicted.states[0])
    cross = points.covariance((states, points.mean(states)), (deviations, shift))
    gain = product(jnp.where(seen[None, :], cross, 0.0), inverted.T, inverted)
    H = jnp.where(seen[:, None], jax.jacfwd(observe)(prior.mean), 0.0)
    kept = prior.root - product(gain, H, prior.root)
    mean = space.inside(space.add(prior.mean, product(gain, d)))
    belief = Gaussian.of_root(mean, root_sum(kept, product(gain, noise)))
    log_likelihood = gaussian_log_density(d, X, seen)
    return belief, Info(all_finite(belief), log_likelihood, None, d, squared(X), gain)


def _root_above_zero(number: Scalar) -> Scalar:
    """√max(a, 0), whose derivative is zero where a is not positive."""
    positive = number > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, number, 1.0)), 0.0)
