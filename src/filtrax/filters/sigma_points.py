"""Sigma points, and the filter that the unscented and the Monte Carlo Kalman filter share.

Points are whitened offsets ξᵢ about a mean: xᵢ = μ + M ξᵢ with P = M Mᵀ. All have the same weight
w, with Σ w ξᵢ = 0 and Σ w ξᵢ ξᵢᵀ = I. The centre μ is one more point, whose weight is what is left.
It is the reference from which deviations are taken, and about which angles are averaged.
"""

import abc
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._types import Inputs, Key, Scalar, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info, all_finite, resolved
from filtrax.filters.kalman import condition
from filtrax.filters.linearization import AbstractKalmanFilter, Affine, Transition
from filtrax.linalg import (
    downdate,
    gaussian_log_density,
    inverse,
    marginal_root,
    product,
    pseudo_inverse,
    root_sum,
    square_root,
    squared,
)
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class Regression(eqx.Module):
    """The linear function of the offsets that is closest to the images of sigma points.

    With images f(xᵢ) = f(μ) + dᵢ, their mean is f(μ) + `shift`, and their covariance D Dᵀ + Λ. This
    is statistical linearization (Lefebvre, Bruyninckx & De Schutter 2002): D takes the place of F M
    in an extended Kalman filter, and Λ is what a linear function cannot explain.

    **Attributes:**

    - `shift`: Σ w dᵢ.
    - `slope`: D = Σ w dᵢ ξᵢᵀ.
    - `spread`: a factor of Λ, before anything is subtracted.
    - `subtracted`: a vector v if v vᵀ must be subtracted, because the centre has a negative weight.
    """

    shift: Float[Array, " y"]
    slope: Float[Array, "y x"]
    spread: Float[Array, "y n"]
    subtracted: Float[Array, " y"] | None = None

    def factor(self, *factors: Float[Array, "y _"]) -> Float[Array, "y _"]:
        """A factor of Λ + A Aᵀ + B Bᵀ + ... for some factors A, B, ..."""
        if self.subtracted is None:
            return jnp.concatenate([*factors, self.spread], axis=1)
        return downdate(root_sum(*factors, self.spread), self.subtracted)

    def covariance(self, other: "Regression") -> Float[Array, "y z"]:
        """The covariance of these images and of others of the same points."""
        whole = (jnp.concatenate([fit.slope, fit.spread], axis=1) for fit in (self, other))
        left, right = whole
        total = product(left, right.T)
        if self.subtracted is None or other.subtracted is None:
            return total
        return total - self.subtracted[:, None] * other.subtracted[None, :]


class AbstractSigmaPoints(eqx.Module):
    """Whitened offsets ξᵢ, and what is made of a function's images at the points."""

    weight: eqx.AbstractVar[Scalar]
    """w of each point but the centre."""

    infinitesimal: eqx.AbstractVar[bool]
    """True if points lie so close to the centre that differences of images are only rounding."""

    @abc.abstractmethod
    def steps(self, factor: Float[Array, "x x"]) -> Float[Array, "n x"]:
        """M ξᵢ."""

    @abc.abstractmethod
    def fit(self, deviations: Float[Array, "n y"]) -> Regression:
        """The regression of deviations dᵢ on the offsets."""

    def images(
        self,
        function: Callable[[State], Any],
        belief: Gaussian,
        space: AbstractSpace,
        difference: Callable[[Any, Any], Any] = jnp.subtract,
    ) -> tuple[Any, Any]:
        """The image f(μ) of the centre, and dᵢ = f(xᵢ) - f(μ) of all other points.

        Infinitesimal points have dᵢ = ∂f/∂x(μ + ½ M ξᵢ) M ξᵢ, the midpoint rule. Its error is of
        third order in their distance, and it subtracts no images that are nearly equal.
        """
        centre = function(belief.mean)

        def deviation(step):
            if self.infinitesimal:
                middle = space.add(belief.mean, 0.5 * step)
                return jax.jvp(function, (middle,), (step,))[1]
            return difference(function(space.add(belief.mean, step)), centre)

        return centre, jax.vmap(deviation)(self.steps(belief.root))

    def mean(self, deviations: Float[Array, "n ..."]) -> Float[Array, "..."]:
        """Σ w dᵢ: by how much the mean of the images differs from that of the centre."""
        return self.weight * deviations.sum(0)


class PredictedPoints(eqx.Module):
    """A prediction that keeps its points, for the paper's form of the update."""

    belief: Gaussian
    states: Float[Array, "n x"]
    points: AbstractSigmaPoints


class AbstractSigmaPointFilter(AbstractKalmanFilter[Gaussian | PredictedPoints]):
    """Propagates sigma points through process and observation.

    Prediction, with points xᵢ of N(μ, P) and their images f(xᵢ, u):

        μ̂ = Σ wᵢ f(xᵢ, u),   P̂ = cov f(xᵢ, u) + Σ wᵢ Q(xᵢ, u) = D Dᵀ + Λ + Q̄

    Update, with new points of N(μ̂, P̂) and their images h(xᵢ, u), of which D and Λ are now those:

        ẑ = Σ wᵢ h(xᵢ, u),   K and P as in `condition`, with the image D and the noise R + Λ

    which is the textbook update S = cov h(xᵢ, u) + R, P = P̂ - K S Kᵀ without the subtraction. D and
    Λ are explained in `Regression`.

    Means stay inside the bounds of the space, points need not: f and h are continued linearly
    (`Space.continued`), and Q is that of the closest state inside. Points that were moved to the
    bounds would be less spread than the belief, and on one side only: estimates would drift away
    from a bound, and know more than they were told.
    """

    along_root: ClassVar[bool] = True
    redraw: eqx.AbstractVar[bool]
    """True if the update draws new points, which contain Q. The paper's form keeps the predicted
    ones, so that its gain does not know of the current process noise."""

    @abc.abstractmethod
    def points(self, size: int, dtype, *, key: Key | None = None) -> AbstractSigmaPoints:
        """Points for a state of `size` components."""

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Gaussian:
        del key
        return Gaussian.of_factor(model.state_space.wrap(prior.mean), prior.compact().factor)

    def predict(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Gaussian | PredictedPoints:
        space = model.state_space
        points = self._points(model, belief, key)
        centre, deviations = _moved(points, model, belief, inputs)
        fit = points.fit(deviations)
        mean = space.inside(space.add(centre, fit.shift))
        noise = _mean_noise(points, model, belief, inputs)
        predicted = Gaussian.of_factor(mean, fit.factor(fit.slope, noise))
        if self.redraw:
            return predicted
        states = jax.vmap(space.add, (None, 0))(centre, deviations)
        return PredictedPoints(predicted, jnp.concatenate([centre[None], states]), points)

    def transition(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Transition:
        space = model.state_space
        points = self._points(model, belief, key)
        centre, deviations = _moved(points, model, belief, inputs)
        fit = points.fit(deviations)
        noise = fit.factor(_mean_noise(points, model, belief, inputs))
        return Transition(space.inside(space.add(centre, fit.shift)), fit.slope, noise)

    def affine_process(
        self, model: StateSpaceModel, about: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Affine:
        space = model.state_space
        points = self._points(model, about, key)
        centre, deviations = _moved(points, model, about, inputs)
        fit = points.fit(deviations)
        noise = fit.factor(_mean_noise(points, model, about, inputs))
        slope = product(fit.slope, pseudo_inverse(about.root))
        return Affine(about.mean, space.add(centre, fit.shift), slope, noise)

    def affine_observation(
        self,
        model: StateSpaceModel,
        about: Gaussian,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> Affine:
        space, image_space = model.state_space, model.observation_space
        points = self.points(about.mean.size, about.mean.dtype, key=key)
        observe = lambda x: space.continued(lambda y: model.observe(y, inputs), x)  # noqa: E731
        centre, deviations = points.images(observe, about, space, image_space.difference)
        fit = points.fit(deviations)
        slope = product(fit.slope, pseudo_inverse(about.root))
        value = image_space.add(centre, fit.shift)
        return Affine(about.mean, value, slope, fit.factor(measurement.factor))

    def _points(
        self, model: StateSpaceModel, belief: Gaussian, key: Key | None
    ) -> AbstractSigmaPoints:
        """Points for the process."""
        points = self.points(belief.mean.size, belief.mean.dtype, key=key)
        if points.infinitesimal:
            _warn_of_kinks(model)
        return points

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
        # The tangent of the root must be that of the root along which the points lie.
        predicted = Gaussian.of_factor(predicted.mean, predicted.root)
        points = self.points(predicted.mean.size, predicted.mean.dtype, key=key)
        observe = lambda x: space.continued(lambda y: model.observe(y, inputs), x)  # noqa: E731
        centre, deviations = points.images(observe, predicted, space, image_space.difference)
        fit = points.fit(deviations)
        expected = image_space.inside(image_space.add(centre, fit.shift))
        innovation = image_space.difference(measurement.value, expected)
        with_spread = dataclasses.replace(measurement, factor=fit.factor(measurement.factor))
        return condition(predicted, innovation, fit.slope, with_spread, space)


def _moved(
    points: AbstractSigmaPoints, model: StateSpaceModel, belief: Gaussian, inputs: Inputs
) -> tuple[State, Float[Array, "n x"]]:
    """The images of the points of a belief under the process."""
    space = model.state_space
    process = lambda x: space.continued(lambda y: model.process(y, inputs), x)  # noqa: E731
    return points.images(process, belief, space, space.difference)


def _warn_of_kinks(model: StateSpaceModel) -> None:
    """Warns where points that nearly touch are those of a network, which may have kinks."""
    is_layer = lambda leaf: isinstance(leaf, eqx.nn.Linear)  # noqa: E731
    for name in ("process", "observe"):
        if any(map(is_layer, jax.tree.leaves(getattr(model, name), is_leaf=is_layer))):
            warnings.warn(
                f"`{name}` is a network, and sigma points lie so close to the mean that a kink "
                "between them, like that of a ReLU, moves means and covariances by one over their "
                "distance. Use an `alpha` of 1, or a network without kinks.",
                stacklevel=3,
            )


def _mean_noise(
    points: AbstractSigmaPoints, model: StateSpaceModel, belief: Gaussian, inputs: Inputs
) -> Float[Array, "x _"]:
    """A factor of Σ wᵢ Q(xᵢ, u), which is that of Q where Q does not depend on the state."""
    space, noise = model.state_space, model.process_noise
    if not depends(lambda x: noise(x, inputs), belief.mean):
        return noise(belief.mean, inputs)
    covariance = lambda x: noise.covariance(space.inside(x), inputs)  # noqa: E731
    centre, deviations = points.images(covariance, belief, space)
    return square_root(centre + points.mean(deviations))


def depends(function: Callable[[Array], Array], argument: Array) -> bool:
    """True if the program of a function uses its argument for its result."""
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

        S = cov h(yᵢ) + R,   K = cov(yᵢ, h(yᵢ)) S⁻¹
        P = (I - K H) P̂ (I - K H)ᵀ + K R Kᵀ,   H = ∂h/∂x (μ̂)

    P̂ contains the current Q, while S and K do not.
    """
    points, prior, seen = predicted.points, predicted.belief, measurement.seen()
    space, image_space = model.state_space, model.observation_space
    observe = lambda x: space.continued(lambda y: model.observe(y, inputs), x)  # noqa: E731
    images, noise = jax.vmap(observe)(predicted.states), measurement.factor
    observed = points.fit(jax.vmap(image_space.difference, (0, None))(images[1:], images[0]))
    states = jax.vmap(space.difference, (0, None))(predicted.states[1:], predicted.states[0])
    expected = image_space.add(images[0], observed.shift)
    d = jnp.where(seen, image_space.difference(measurement.value, expected), 0.0)
    X = marginal_root(observed.factor(observed.slope, noise), seen)
    inverted = inverse(X)
    cross = points.fit(states).covariance(observed)
    gain = product(jnp.where(seen[None, :], cross, 0.0), inverted.T, inverted)
    H = jnp.where(seen[:, None], jax.jacfwd(observe)(prior.mean), 0.0)
    kept = prior.factor - product(gain, H, prior.factor)
    mean = space.inside(space.add(prior.mean, product(gain, d)))
    belief = Gaussian.of_factor(mean, root_sum(kept, product(gain, noise)))
    log_likelihood = gaussian_log_density(d, X, seen)
    fine = resolved(mean, belief.factor, prior.factor)
    info = Info(all_finite(belief), log_likelihood, None, d, squared(X), gain, resolved=fine)
    return belief, info
