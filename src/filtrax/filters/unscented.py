"""The unscented Kalman filter."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._given import given_field
from filtrax._types import Key
from filtrax.filters.sigma_points import AbstractSigmaPointFilter, Pairs, SigmaPoints

CLOSEST = 0.1
"""Points that are closer to the mean, in standard deviations, are infinitesimal where precision is
single: the second difference of their images is rounding there."""


class AbstractScaling(eqx.Module):
    """How far sigma points lie from the mean."""

    @abc.abstractmethod
    def parameters(self, size: int, dtype) -> tuple[Array, Array, Array]:
        """α > 0, n + κ > 0 and β for a state of n components."""

    @abc.abstractmethod
    def distance(self, size: int) -> float | None:
        """√(n + λ), the distance of points from the mean; None where it is not known yet."""

    @abc.abstractmethod
    def subtracts(self, size: int) -> bool:
        """Whether a covariance may be no sum of squares: its centre counts less than nothing."""


class Scaling(AbstractScaling):
    """Fixed scaling. The defaults are the paper's, under which all weights are equal."""

    alpha: float | Array = given_field(default=1.0)
    kappa: float | Array = given_field(default=0.5)
    beta: float | Array = given_field(default=0.0)

    def parameters(self, size: int, dtype) -> tuple[Array, Array, Array]:
        known = [v for v in (self.alpha, self.kappa) if isinstance(v, float | int)]
        if len(known) == 2 and not (self.alpha > 0 and size + self.kappa > 0):
            raise ValueError(
                "Sigma points need alpha > 0 and n + kappa > 0: "
                f"got alpha={self.alpha}, kappa={self.kappa} for a state of n={size} components."
            )
        numbers = (self.alpha, size + self.kappa, self.beta)
        alpha, spread, beta = (jnp.asarray(number, dtype) for number in numbers)
        # Stays fixed in training even where the numbers are arrays, as in a sweep over kappa.
        return jax.lax.stop_gradient((alpha, spread, beta))


    def distance(self, size: int) -> float | None:
        numbers = self.alpha, self.kappa
        if not all(isinstance(number, float | int) for number in numbers):
            return None
        return float(self.alpha) * math.sqrt(size + float(self.kappa))

    def subtracts(self, size: int) -> bool:
        numbers = self.alpha, self.kappa, self.beta
        if not all(isinstance(number, float | int) for number in numbers):
            return True
        alpha, kappa, beta = map(float, numbers)
        centre = 2 - size / (alpha**2 * (size + kappa)) - alpha**2 + beta
        return centre < 0 and beta < alpha**2


class LearnedScaling(AbstractScaling):
    """Scaling to train: ln α, ln(n + κ) and β are parameters, so n + λ > 0 whatever they are."""

    log_alpha: Float[Array, ""]
    log_spread: Float[Array, ""]
    beta: Float[Array, ""]

    def __init__(self, size: int, *, alpha: float = 1.0, kappa: float = 0.5, beta: float = 0.0):
        if not (alpha > 0 and size + kappa > 0):
            raise ValueError(
                f"`alpha` and n + `kappa` must be positive: got {alpha} and {size + kappa}."
            )
        self.log_alpha = jnp.asarray(math.log(alpha))
        self.log_spread = jnp.asarray(math.log(size + kappa))
        self.beta = jnp.asarray(float(beta))

    def parameters(self, size: int, dtype) -> tuple[Array, Array, Array]:
        del size
        values = (jnp.exp(self.log_alpha), jnp.exp(self.log_spread), self.beta)
        alpha, spread, beta = (value.astype(dtype) for value in values)
        return alpha, spread, beta


    def distance(self, size: int) -> None:
        del size

    def subtracts(self, size: int) -> bool:
        del size
        return True


class UnscentedKalmanFilter(AbstractSigmaPointFilter):
    """Deterministic sigma points: the centre and a pair along each column of a square root of Σ.

        λ = α² (n + κ) - n,   ξ = 0 and ± √(n + λ) eᵢ
        w⁰ = λ / (n + λ) for means, w⁰ + 1 - α² + β for covariances, 1 / (2 (n + λ)) elsewhere

    (Julier & Uhlmann 1997; Wan & van der Merwe 2000). The rest is `AbstractSigmaPointFilter`.

    Where the centre's weight is negative and β ≥ α², covariances are computed as

        Σ wᵢ (yᵢ - ȳ)(yᵢ - ȳ)ᵀ = Σ_{i>0} wᵢ (yᵢ - y₀)(yᵢ - y₀)ᵀ + (β - α²) (y₀ - ȳ)(y₀ - ȳ)ᵀ

    which is the same, since ȳ - y₀ = Σ_{i>0} wᵢ (yᵢ - y₀), and a sum of squares.

    **Attributes:**

    - `scaling`: α, κ, β: a `Scaling`, or a `LearnedScaling` to train them.
    - `redraw`: see `AbstractSigmaPointFilter`; False is the paper's form.
    - `drop_negative_centre`: where the centre's covariance weight is negative, take deviations
      from the image of the centre and leave its term out, which keeps covariances positive
      semi-definite (Julier, Uhlmann & Durrant-Whyte 2000, appendix III).
    """

    scaling: AbstractScaling = Scaling()
    redraw: bool = eqx.field(default=True, static=True)
    drop_negative_centre: bool = eqx.field(default=False, static=True)

    def points(self, size: int, dtype, *, key: Key | None = None) -> SigmaPoints:
        del key
        alpha, spread, beta = self.scaling.parameters(size, dtype)
        width = alpha**2 * spread  # n + λ
        centre = 1 - size / width
        in_covariance = centre + 1 - alpha**2 + beta
        rest = beta - alpha**2
        negative = in_covariance < 0
        dropped = self.drop_negative_centre & negative
        squares = negative & (rest >= 0)
        in_squares = jnp.where(squares, rest, in_covariance)
        return SigmaPoints(
            offsets=Pairs(jnp.sqrt(width)),
            weights=jnp.full(2 * size, 0.5 / width),
            spread=jnp.where(dropped, 0.0, in_squares),
            about_centre=dropped | squares,
            infinitesimal=self._infinitesimal(size, dtype),
            subtracts=not self.drop_negative_centre and self.scaling.subtracts(size),
        )

    def _infinitesimal(self, size: int, dtype) -> bool:
        """Whether points are known to be too close for differences in this precision."""
        distance = self.scaling.distance(size)
        return distance is not None and distance < CLOSEST and jnp.finfo(dtype).bits < 64
