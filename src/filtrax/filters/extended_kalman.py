"""The extended Kalman filter."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax.arrays import Control, Key
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractBayesFilter, Info
from filtrax.filters.kalman_update import condition, updated
from filtrax.fusion import fused
from filtrax.linalg import congruent, precise, product, symmetrize
from filtrax.model import StateSpaceModel
from filtrax.sensors import Measurement


class ExtendedKalmanFilter(AbstractBayesFilter[Gaussian, Gaussian]):
    """Linearizes process and observation about the mean.

        μ̂ = f(μ, u),   Σ̂ = F Σ Fᵀ + Q(μ, u),   F = ∂f/∂x (μ, u)
        μ = μ̂ + K (z - h(μ̂)),   H = ∂h/∂x (μ̂),   K and Σ as in `condition`

    With more than one iteration, h is linearized again about each new mean μᵢ (Bell & Cathey
    1993), while the prior N(μ̂, Σ̂) is used once:

        μᵢ₊₁ = μ̂ + Kᵢ (z - h(μᵢ) - Hᵢ (μ̂ - μᵢ))

    **Attributes:**

    - `iterations`: how often the observation is linearized; 1 is the plain filter.
    - `cut_jacobian_gradients`: treat F and H as constants in back-propagation, as the paper does.
    """

    iterations: int = eqx.field(default=1, static=True)
    cut_jacobian_gradients: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        if self.iterations < 1:
            raise ValueError(f"`iterations` must be at least 1, got {self.iterations}.")

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key) -> Gaussian:
        del key
        return Gaussian(model.state_space.wrap(prior.mean), prior.covariance)

    @precise
    def predict(
        self, model: StateSpaceModel, belief: Gaussian, control: Control, *, key: Key
    ) -> Gaussian:
        del key
        mean, jacobian = self._linearize(lambda x: model.process(x, control), belief.mean)
        noise = model.process_noise.covariance(belief.mean, control)
        covariance = fused(_propagated)(jacobian.T, belief.covariance, noise)
        return Gaussian(model.state_space.wrap(mean), covariance)

    @precise
    def update(
        self, model: StateSpaceModel, predicted: Gaussian, measurement: Measurement, *, key: Key
    ) -> tuple[Gaussian, Info]:
        del key

        def linearized_at(point):
            """Residual of the observation that is linearized at a point, with its Jacobian."""
            expected, jacobian = self._linearize(model.observe, point)
            return model.observation_space.difference(measurement.value, expected), jacobian

        @fused
        def condition_on(innovation, transposed):
            covariances = predicted.covariance, measurement.covariance
            found = condition(innovation, transposed.T, *covariances, measurement.seen())
            return model.state_space.wrap(predicted.mean + found.shift), found

        residual, jacobian = linearized_at(predicted.mean)
        innovation = jnp.where(measurement.seen(), residual, 0.0)
        mean, first = condition_on(innovation, jacobian.T)
        last = first
        for _ in range(self.iterations - 1):
            residual, jacobian = linearized_at(mean)
            offset = product(jacobian, model.state_space.difference(predicted.mean, mean))
            mean, last = condition_on(residual - offset, jacobian.T)
        return updated(mean, innovation, first, last)

    def _linearize(
        self, function: Callable, point: Float[Array, " x"]
    ) -> tuple[Float[Array, " y"], Float[Array, "y x"]]:
        """Value and Jacobian of a function, evaluated once."""

        def twice(x):
            value = function(x)
            return value, value

        jacobian, value = jax.jacfwd(twice, has_aux=True)(point)
        if self.cut_jacobian_gradients:
            jacobian = jax.lax.stop_gradient(jacobian)
        return value, jacobian


def _propagated(
    transposed: Float[Array, "x x"], covariance: Float[Array, "x x"], noise: Float[Array, "x x"]
) -> Float[Array, "x x"]:
    """F Σ Fᵀ + Q.

    Jacobians are computed column by column, so that they lie transposed in memory. A kernel takes
    them as they lie.
    """
    jacobian = transposed.T
    return symmetrize(congruent(jacobian, covariance) + noise)
