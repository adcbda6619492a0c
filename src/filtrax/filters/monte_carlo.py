"""The Monte Carlo unscented Kalman filter."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._types import Key, Scalar
from filtrax.filters.base import require_key
from filtrax.filters.sigma_points import AbstractSigmaPointFilter, AbstractSigmaPoints, Regression
from filtrax.linalg import product, whiten


class SamplePoints(AbstractSigmaPoints):
    """Any offsets of equal weight."""

    offsets: Float[Array, "n x"]
    weight: Scalar
    infinitesimal: bool = eqx.field(default=False, static=True)

    def steps(self, factor: Float[Array, "x x"]) -> Float[Array, "n x"]:
        return product(self.offsets, factor.T)

    def fit(self, deviations: Float[Array, "n y"]) -> Regression:
        shift = self.mean(deviations)
        slope = self.weight * product(deviations.T, self.offsets)
        rest = deviations - product(self.offsets, slope.T) - shift[None, :]
        return Regression(shift, slope, jnp.sqrt(self.weight) * rest.T)


class MonteCarloUnscentedKalmanFilter(AbstractSigmaPointFilter):
    """Random sigma points: N whitened normal samples of equal weight (Wüthrich et al. 2016).

    Whitening makes their mean 0 and their covariance I exactly, so that the filter equals the
    Kalman filter on linear models. The centre point has no weight; angles are averaged about it.
    The rest is `AbstractSigmaPointFilter`.

    **Attributes:**

    - `num_samples`: N; more than the state has components. The paper trains with 100 and tests
      with 500.
    - `redraw`: see `AbstractSigmaPointFilter`; False is the paper's form.
    """

    num_samples: int = eqx.field(default=100, static=True)
    redraw: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        if self.num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, got {self.num_samples}.")

    def points(self, size: int, dtype, *, key: Key | None = None) -> SamplePoints:
        if self.num_samples <= size:
            raise ValueError(
                f"`num_samples` must exceed the {size} components of the state, because fewer "
                f"samples cannot be whitened: got {self.num_samples}."
            )
        key = require_key(key, self)
        offsets = whiten(jr.normal(key, (self.num_samples, size), dtype))
        weight = jnp.asarray(1 / self.num_samples, dtype)
        return SamplePoints(offsets=offsets, weight=weight)
