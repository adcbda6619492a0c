"""Summary statistics."""

import numpy as np
from jaxtyping import Float, Int


def finite_only(
    values: Float[np.ndarray, "rows columns"],
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Returns mean, minimum and maximum of the finite numbers of each row; NaN if none are."""
    finite = np.isfinite(values)
    count = finite.sum(1)
    some = count > 0
    total = np.where(finite, values, 0.0).sum(1)
    mean = np.where(some, total / np.maximum(count, 1), np.nan)
    low = np.where(some, np.where(finite, values, np.inf).min(1, initial=np.inf), np.nan)
    high = np.where(some, np.where(finite, values, -np.inf).max(1, initial=-np.inf), np.nan)
    return mean, low, high


def mean_and_error(values: Float[np.ndarray, " n"]) -> tuple[float | None, float | None]:
    """Returns mean and standard error s/√n of the finite numbers; None where undefined."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None, None
    error = float(finite.std(ddof=1) / len(finite) ** 0.5) if len(finite) > 1 else None
    return float(finite.mean()), error


def binned_quantiles(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], num_bins: int = 10
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, "3 bins"]]:
    """Computes mean x, and the 10 %, 50 % and 90 % quantiles of y, in bins of equal width.

    x must not be negative. x = 0, a hidden target, has a bin of its own. Empty bins are omitted.
    """
    edges = np.linspace(0, x.max(initial=0.0), num_bins + 1)
    bins = np.where(x <= 0, 0, np.clip(np.searchsorted(edges, x), 1, num_bins))
    used = np.unique(bins)
    places = np.asarray([np.mean(x[bins == number]) for number in used])
    quantiles = [np.quantile(y[bins == number], (0.1, 0.5, 0.9)) for number in used]
    return places, np.asarray(quantiles).reshape(-1, 3).T


def thinned(count: int, limit: int) -> Int[np.ndarray, " kept"]:
    """Draws at most `limit` of the indices below `count`, deterministically and in order."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def representatives(
    log_weights: Float[np.ndarray, " p"], limit: int
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]:
    """Returns indices and weights of at most `limit` particles that represent all of them.

    More than `limit` particles are thinned by systematic resampling (Kitagawa 1996); weights are
    proportional to the number of draws. Without any finite weight, the result is empty.
    """
    finite = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    weights = np.exp(finite - max(finite.max(), -1e300))
    if not weights.any():
        return np.zeros(0, int), np.zeros(0)
    weights = weights / weights.sum()
    if len(weights) <= limit:
        return np.arange(len(weights)), weights
    positions = (np.arange(limit) + 0.5) / limit
    drawn = np.searchsorted(np.cumsum(weights), positions).clip(max=len(weights) - 1)
    kept, times = np.unique(drawn, return_counts=True)
    return kept, times / limit
