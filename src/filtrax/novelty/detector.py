"""Detectors of features unlike those of the training data, and a measure of their quality."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from filtrax._given import given_field
from filtrax._types import Scalar
from filtrax.linalg import precise

SHRINKAGE = 1e-2
"""The part of a covariance that is replaced by a multiple of the identity."""


class Mahalanobis(eqx.Module):
    """The squared distance of a vector from a mean, in units of a covariance.

        d²(x) = (x - μ)ᵀ Σ⁻¹ (x - μ)

    **Attributes:**

    - `mean`: μ.
    - `whitening`: the inverse of the Cholesky factor of Σ.
    """

    mean: Float[Array, " n"] = given_field()
    whitening: Float[Array, "n n"] = given_field()

    @classmethod
    def fit(
        cls, vectors: Float[Array | np.ndarray, "m n"], shrinkage: float = SHRINKAGE
    ) -> "Mahalanobis":
        """Mean and covariance of many vectors, one for each row.

        The covariance S of the vectors is shrunken to (1 - s) S + s tr(S)/n I (Ledoit & Wolf
        2004), which has an inverse even where a component never changes.
        """
        rows = np.asarray(vectors, np.float64)
        size = rows.shape[1]
        mean = rows.mean(0)
        covariance = (rows - mean).T @ (rows - mean) / len(rows)
        scale = np.trace(covariance) / size
        if not scale > 0:
            raise ValueError(
                f"The {size} features must vary over the {len(rows)} training readings, but all of "
                "them are constant."
            )
        shrunken = (1 - shrinkage) * covariance + shrinkage * scale * np.eye(size)
        whitening = np.linalg.inv(np.linalg.cholesky(shrunken))
        dtype = jnp.result_type(float)
        return cls(jnp.asarray(mean, dtype), jnp.asarray(whitening, dtype))

    @precise
    def __call__(self, vector: Float[Array, " n"]) -> Scalar:
        # They are given, not learned: no gradient goes to them, whoever trains the model.
        mean, whitening = jax.lax.stop_gradient((self.mean, self.whitening))
        white = whitening.astype(vector.dtype) @ (vector - mean.astype(vector.dtype))
        return white @ white


class Novelty(eqx.Module):
    """Tells how unlike the training data the features of a reading are.

        score = maxᵢ dᵢ² / limitᵢ

    over the parts of the features, of which each has a Mahalanobis distance dᵢ of its own. So a
    part of few numbers is not drowned by the scatter of one of many. A score above 1 is an alarm.

    **Attributes:**

    - `parts`: the distances.
    - `limits`: the squared distances that are just no alarm.
    """

    parts: tuple[Mahalanobis, ...]
    limits: Float[Array, " parts"] = given_field()

    @classmethod
    def fit(
        cls,
        features: PyTree,
        validation_features: PyTree,
        alarms: float = 0.01,
        *,
        shrinkage: float = SHRINKAGE,
    ) -> "Novelty":
        """A detector for features like these.

        **Arguments:**

        - `features`: of the readings that a model was trained on: an array with a row for each,
          or any tree of such arrays, which are the parts.
        - `validation_features`: those of readings that it was not trained on, in the same form.
          They set the limits.
        - `alarms`: the share of the validation readings that are to be alarms.
        - `shrinkage`: as in `Mahalanobis.fit`.
        """
        train = _checked_rows("features", features)
        validation = _checked_rows("validation_features", validation_features)
        _check_alike(train, validation)
        if not 0 < alarms < 1 or len(validation[0]) * alarms < 1 - 1e-9:
            raise ValueError(
                "`alarms` must be between 0 and 1 and leave at least one alarm on validation, got "
                f"{alarms} for {len(validation[0])} readings: give more of them, or allow more."
            )
        if not 0 < shrinkage <= 1:
            raise ValueError(f"`shrinkage` must be above 0 and at most 1, got {shrinkage}.")
        parts = [Mahalanobis.fit(rows, shrinkage) for rows in train]
        distances = np.stack(
            [_distances(part, rows) for part, rows in zip(parts, validation, strict=True)], -1
        )
        # Each part alone would give as many alarms; all of them together give more, so that all
        # limits are raised by the same factor.
        limits = _quantiles(distances, alarms)
        limits = limits * _quantiles((distances / limits).max(-1, keepdims=True), alarms)
        return cls(tuple(parts), jnp.asarray(limits, jnp.result_type(float)))

    @classmethod
    def blank(cls, *sizes: int) -> "Novelty":
        """A detector without content, whose parts have these sizes, to be loaded."""
        parts = tuple(Mahalanobis(jnp.zeros(size), jnp.eye(size)) for size in sizes)
        return cls(parts, jnp.ones(len(sizes)))

    def score(self, features: PyTree) -> Scalar:
        """How unlike the training data one reading is; its features are the parts, as in `fit`."""
        vectors = [jnp.ravel(leaf) for leaf in jax.tree.leaves(features)]
        sizes, expected = [v.size for v in vectors], [part.mean.size for part in self.parts]
        if sizes != expected:
            raise ValueError(
                f"The features must be {len(expected)} parts of {expected} numbers, as those that "
                f"the detector was fitted to, got {sizes}."
            )
        limits = jax.lax.stop_gradient(self.limits).astype(vectors[0].dtype)
        pairs = zip(self.parts, vectors, strict=True)
        return (jnp.stack([distance(vector) for distance, vector in pairs]) / limits).max()

    def alarm(self, features: PyTree) -> Array:
        """True if one reading is unlike the training data."""
        return self.score(features) > 1.0


def auroc(
    ordinary: Float[Array | np.ndarray, "..."], novel: Float[Array | np.ndarray, "..."]
) -> float:
    """The area under the receiver operating characteristic of scores.

    It is the probability that a novel reading has a higher score than an ordinary one, where a tie
    counts one half: the statistic of Mann & Whitney (1947). 0.5 is chance, 1 perfect.
    """
    low, high = (np.sort(np.asarray(scores, np.float64).ravel()) for scores in (ordinary, novel))
    if not low.size or not high.size or np.isnan(low).any() or np.isnan(high).any():
        raise ValueError(
            "`auroc` needs at least one ordinary and one novel score, and none that is NaN: got "
            f"{low.size} and {high.size} scores."
        )
    below, upto = (np.searchsorted(low, high, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * low.size))


def _distances(part: Mahalanobis, rows: np.ndarray) -> np.ndarray:
    """Squared distances of many vectors, in double precision."""
    white = (rows - np.asarray(part.mean)) @ np.asarray(part.whitening).T
    return (white**2).sum(-1)


def _quantiles(scores: Float[np.ndarray, "m n"], alarms: float) -> Float[np.ndarray, " n"]:
    """The numbers that at most this share of each column is above."""
    count = math.floor(len(scores) * alarms + 1e-9)
    # A little more, so that no rounding makes an alarm of the reading that has just this score.
    return np.sort(scores, axis=0)[len(scores) - count - 1] * (1 + 1e-5)


def _checked_rows(name: str, features: PyTree) -> list[np.ndarray]:
    """Each part as a matrix with a row for each reading, or an error that says what is wrong."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(features)]
    counts = {leaf.shape[0] if leaf.ndim > 1 else 0 for leaf in leaves}
    if len(counts) != 1 or not min(counts) > 1:
        raise ValueError(
            f"`{name}` must be one or more arrays with a row for each of at least two readings, "
            f"got shapes {[leaf.shape for leaf in leaves]}."
        )
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise ValueError(f"`{name}` must be finite, but some of them are not.")
    return [leaf.reshape(len(leaf), -1) for leaf in leaves]


def _check_alike(train: Sequence[np.ndarray], validation: Sequence[np.ndarray]) -> None:
    sizes, others = ([rows.shape[1] for rows in side] for side in (train, validation))
    if sizes != others:
        raise ValueError(
            "`features` and `validation_features` must have equally many parts of equal sizes, "
            f"got {sizes} and {others}."
        )
