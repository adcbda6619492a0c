"""Comparisons of learned noise models with the truth."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._checks import as_float, check_shape
from filtrax._types import Scalar


@eqx.filter_jit
def bhattacharyya_distance(
    predicted: Float[Array, "*#b x x"], true: Float[Array, "*#b x x"]
) -> Scalar:
    """The mean of ½ ln(|½ (Q̂ + Q)| / √(|Q̂| |Q|)): zero if and only if the covariances agree.

    It is the Bhattacharyya distance of zero-mean Gaussians, the paper's D_Q.
    """
    predicted, true = jnp.broadcast_arrays(as_float(predicted), as_float(true))

    def log_determinant(matrix):
        return jnp.linalg.slogdet(matrix)[1]

    middle = log_determinant(0.5 * (predicted + true))
    ends = 0.5 * (log_determinant(predicted) + log_determinant(true))
    return 0.5 * (middle - ends).mean()


@eqx.filter_jit
def noise_correlation(covariances: Float[Array, "*b z z"], covariate: Any) -> Scalar:
    """Pearson's correlation of the predicted standard deviations with a covariate.

    Computed over all steps for each component of the observation and averaged over them, as the
    paper correlates R with the number of visible pixels.
    """
    stds = jnp.sqrt(jnp.diagonal(as_float(covariances), axis1=-2, axis2=-1))
    covariate = as_float(covariate)
    check_shape("covariate", covariate, stds.shape[:-1])
    stds = stds.reshape(-1, stds.shape[-1])
    stds, covariate = stds - stds.mean(0, keepdims=True), covariate.ravel() - covariate.mean()
    norms = jnp.sqrt((stds**2).sum(0) * (covariate**2).sum())
    return ((covariate @ stds) / norms).mean()
