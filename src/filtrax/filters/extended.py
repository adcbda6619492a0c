"""The extended Kalman filter."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._types import Inputs, Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.base import Info
from filtrax.filters.kalman import condition, linearize
from filtrax.filters.linearization import AbstractKalmanFilter, Affine, Transition
from filtrax.linalg import product
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel


class ExtendedKalmanFilter(AbstractKalmanFilter[Gaussian]):
    """Linearizes process and observation about the mean.

        μ̂ = f(μ, u),   P̂ = F P Fᵀ + Q(μ, u),   F = ∂f/∂x (μ, u)
        μ = μ̂ + K (z - h(μ̂, u)),   H = ∂h/∂x (μ̂, u),   K and P as in `condition`

    Covariances are carried as factors: with P = M Mᵀ and Q = G Gᵀ, the columns of F M and G
    together are a factor of P̂.

    With more than one iteration, h is linearized again about each new mean μᵢ (Bell & Cathey
    1993), while the prior N(μ̂, P̂) is used once:

        μᵢ₊₁ = μ̂ + Kᵢ (z - h(μᵢ) - Hᵢ (μ̂ - μᵢ))

    **Attributes:**

    - `iterations`: how often the observation is linearized; 1 is the plain filter.
    - `cut_jacobian_gradients`: treat F and H as constants in back-propagation, as the paper does.
    """

    along_root: ClassVar[bool] = False
    iterations: int = eqx.field(default=1, static=True)
    cut_jacobian_gradients: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        check_whole("iterations", self.iterations, 1)

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None) -> Gaussian:
        del key
        return Gaussian.of_factor(model.state_space.wrap(prior.mean), prior.compact().factor)

    def predict(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Gaussian:
        return self.transition(model, belief, inputs, key=key).predicted()

    def transition(
        self, model: StateSpaceModel, belief: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Transition:
        process = self.affine_process(model, belief, inputs, key=key)
        mean = model.state_space.wrap(process.value)
        return Transition(mean, product(process.slope, belief.factor), process.noise)

    def affine_process(
        self, model: StateSpaceModel, about: Gaussian, inputs: Inputs, *, key: Key | None = None
    ) -> Affine:
        del key
        space, point = model.state_space, about.mean
        value, F = self._linearize(lambda x: model.process(x, inputs), point, space, space)
        return Affine(point, value, F, model.process_noise(point, inputs))

    def affine_observation(
        self,
        model: StateSpaceModel,
        about: Gaussian,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> Affine:
        del key
        spaces = model.state_space, model.observation_space
        value, H = self._linearize(lambda x: model.observe(x, inputs), about.mean, *spaces)
        return Affine(about.mean, value, H, measurement.factor)

    def update(
        self,
        model: StateSpaceModel,
        predicted: Gaussian,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[Gaussian, Info]:
        del key
        space, image_space = model.state_space, model.observation_space
        belief, info = predicted, None
        for _ in range(self.iterations):
            point = belief.mean
            expected, H = self._linearize(
                lambda x: model.observe(x, inputs), point, space, image_space
            )
            innovation = image_space.difference(measurement.value, expected)
            if info is not None:  # the point is another one than the prior's mean
                innovation -= product(H, space.difference(predicted.mean, point))
            image = product(H, predicted.factor)
            belief, latest = condition(predicted, innovation, image, measurement, space)
            # Innovation and likelihood stay those of the first linearization.
            first = latest if info is None else info
            info = dataclasses.replace(
                first, finite=latest.finite, gain=latest.gain, resolved=latest.resolved
            )
        assert info is not None
        return belief, info

    def _linearize(
        self,
        function: Callable[[State], Float[Array, " y"]],
        point: State,
        space: AbstractSpace,
        image_space: AbstractSpace,
    ) -> tuple[Float[Array, " y"], Float[Array, "y x"]]:
        value, jacobian = linearize(function, point, space, image_space)
        return value, jax.lax.stop_gradient(jacobian) if self.cut_jacobian_gradients else jacobian
