"""The unscented Kalman filter."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from filtrax._given import given_field
from filtrax._types import Key, Scalar
from filtrax.filters.sigma_points import AbstractSigmaPointFilter, AbstractSigmaPoints, Regression

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
        """True if a covariance may be no sum of squares: a negative weight of the centre."""


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


class PairedPoints(AbstractSigmaPoints):
    """Offsets s eᵢ and -s eᵢ along the axes.

    Deviations d⁺ and d⁻ of a pair are an odd and an even part, (d⁺ - d⁻) / 2 and (d⁺ + d⁻) / 2. The
    slope is made of the odd parts, and the even ones eᵢ are what it leaves of both images. With
    m = Σ w dᵢ, the mean of the deviations, Λ is one of

        Σ 2w (eᵢ - m)(eᵢ - m)ᵀ + w⁰ m mᵀ   or   Σ 2w eᵢ eᵢᵀ + (β - α²) m mᵀ

    which are the same, if w⁰ is the textbook's weight of the centre in covariances.

    **Attributes:**

    - `distance`, `weight`: s and w, with 2 w s² = 1.
    - `centre`: the factor of m mᵀ, w⁰ or β - α².
    - `about_mean`: whether deviations are taken from the mean, so that the factor is w⁰.
    - `subtracts`: whether the factor may be negative.
    """

    distance: Scalar
    weight: Scalar
    centre: Scalar
    about_mean: Bool[Array, ""]
    infinitesimal: bool = eqx.field(static=True)
    subtracts: bool = eqx.field(static=True)

    def steps(self, factor: Float[Array, "x x"]) -> Float[Array, "n x"]:
        ahead = self.distance * factor.T
        return jnp.concatenate([ahead, -ahead])

    def fit(self, deviations: Float[Array, "n y"]) -> Regression:
        ahead, behind = jnp.split(deviations, 2)
        odd, even = 0.5 * (ahead - behind), 0.5 * (ahead + behind)
        shift = 2 * self.weight * even.sum(0)
        rest = even - jnp.where(self.about_mean, shift, 0.0)[None, :]
        of_mean = _root_above_zero(self.centre) * shift
        spread = jnp.concatenate([jnp.sqrt(2 * self.weight) * rest, of_mean[None, :]])
        subtracted = _root_above_zero(-self.centre) * shift if self.subtracts else None
        return Regression(shift, odd.T / self.distance, spread.T, subtracted)


class UnscentedKalmanFilter(AbstractSigmaPointFilter):
    """Deterministic sigma points: the centre and a pair along each column of a square root of Σ.

        λ = α² (n + κ) - n,   ξ = 0 and ± √(n + λ) eᵢ
        w⁰ = λ / (n + λ) for means, w⁰ + 1 - α² + β for covariances, 1 / (2 (n + λ)) elsewhere

    (Julier & Uhlmann 1997; Wan & van der Merwe 2000). The rest is `AbstractSigmaPointFilter`.
    Covariances are sums of squares wherever the centre's weight is not negative or β ≥ α²
    (`PairedPoints` has the equations).

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

    def points(self, size: int, dtype, *, key: Key | None = None) -> PairedPoints:
        del key
        alpha, spread, beta = self.scaling.parameters(size, dtype)
        width = alpha**2 * spread  # n + λ
        of_covariance = 2 - size / width - alpha**2 + beta
        about_mean = of_covariance >= 0
        about_centre = jnp.where(self.drop_negative_centre, 0.0, beta - alpha**2)
        # A factor below zero stays the textbook's, so that what is subtracted is the least.
        about_mean |= (about_centre < 0) & (not self.drop_negative_centre)
        return PairedPoints(
            distance=jnp.sqrt(width),
            weight=0.5 / width,
            centre=jnp.where(about_mean, of_covariance, about_centre),
            about_mean=about_mean,
            infinitesimal=self._infinitesimal(size, dtype),
            subtracts=not self.drop_negative_centre and self.scaling.subtracts(size),
        )

    def _infinitesimal(self, size: int, dtype) -> bool:
        """True if points are known to be too close for differences in this precision."""
        distance = self.scaling.distance(size)
        return distance is not None and distance < CLOSEST and jnp.finfo(dtype).bits < 64


def _root_above_zero(number: Scalar) -> Scalar:
    """√max(a, 0), whose derivative is zero where a is not positive."""
    positive = number > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, number, 1.0)), 0.0)
