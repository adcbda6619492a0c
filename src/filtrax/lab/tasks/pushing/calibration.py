"""Fits friction and registration to real pushes, to predict the ends of objects."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from filtrax._types import Key
from filtrax.lab.tasks.pushing.contact import (
    STEP,
    Disturbance,
    Friction,
    push_along,
    straight_path,
)
from filtrax.lab.tasks.pushing.physics import Correction
from filtrax.lab.tasks.pushing.recordings.endpoints import Pushes, wrapped_difference
from filtrax.lab.tasks.pushing.shapes import Shape, from_data_set, to_data_set

COEFFICIENT = 0.25
"""μ of pusher and object in the data set's description."""

LENGTH, PUSHER, REGISTRATION, CENTRE = (0,), (1,), (2, 3, 4), (5, 6)
"""Components of a calibration as a vector: ln c, ln μ, registration, centre of friction."""

_PRIOR_STDS = np.asarray([math.inf, math.inf, 2.0, 2.0, 2.0, 5.0, 5.0])
"""Standard deviations of priors around zero, for components that pushes do not determine, such as
the orientation of a circle."""


class Calibration(eqx.Module):
    """The parameters that are fitted to the pushes of an object.

    **Attributes:**

    - `friction`: c, μ and the centre of friction.
    - `registration`: offsets of measured tips (mm, mm, in the world) and measured orientations of
      the object (degrees), such that tips touch outlines when objects move.
    """

    friction: Friction
    registration: Float[Array, "*b 3"]

    def as_vector(self) -> Float[Array, " 7"]:
        """Returns ln c, ln μ, registration and centre of friction as a vector."""
        logarithms = jnp.log(jnp.stack([self.friction.length, self.friction.coefficient]))
        return jnp.concatenate([logarithms, self.registration, self.friction.centre])


def from_vector(vector: Float[Array, " 7"]) -> Calibration:
    """Inverts `Calibration.as_vector`."""
    positive = jnp.exp(vector[:2])
    return Calibration(Friction(positive[0], positive[1], vector[5:]), vector[2:5])


def even_pressure(shape: Shape) -> Calibration:
    """Returns the calibration for even pressure, without any registration."""
    coefficient = jnp.asarray(COEFFICIENT, shape.even_pressure_length.dtype)
    friction = Friction(shape.even_pressure_length, coefficient, jnp.zeros_like(shape.centroid))
    return Calibration(friction, jnp.zeros(3, shape.centroid.dtype))


def predicted_end(
    shape: Shape,
    start: Float[Array, " 3"],
    tips: Float[Array, "2 2"],
    calibration: Calibration,
    num_steps: int,
    correct: Correction | None = None,
    disturb: Disturbance | None = None,
    key: Key | None = None,
) -> Float[Array, " 3"]:
    """Predicts the final pose of an object after a straight push, in the data set's frame."""
    offset, turn = calibration.registration[:2], calibration.registration[2]
    pose = from_data_set(shape, jnp.append(start[:2], start[2] + turn))
    path = straight_path(tips[0] + offset, tips[1] + offset, num_steps)
    contacts = push_along(
        shape, pose, path, calibration.friction, correct=correct, disturb=disturb, key=key
    )
    end = to_data_set(shape, contacts.pose[-1])
    return jnp.append(end[:2], end[2] - turn)


@dataclasses.dataclass(frozen=True)
class Groups:
    """Pushes by object, padded to the same number for each object; padding has weight 0."""

    names: tuple[str, ...]
    shapes: Shape
    indices: Int[np.ndarray, "shapes places"]
    """The indices of the pushes in their table."""
    weights: Float[np.ndarray, "shapes places"]
    starts: Float[Array, "shapes places 3"]
    ends: Float[Array, "shapes places 3"]
    tips: Float[Array, "shapes places 2 2"]
    num_steps: int


def grouped(pushes: Pushes, shapes: Mapping[str, Shape], chosen: np.ndarray) -> Groups:
    """Groups the pushes that the mask `chosen` selects by object."""
    names = tuple(name for name in shapes if (pushes.shapes == name).any())
    members = [np.flatnonzero(chosen & (pushes.shapes == name)) for name in names]
    places = max(map(len, members))
    indices = np.stack([np.resize(member, places) for member in members])
    weights = np.stack([np.arange(places) < len(member) for member in members])
    tips = np.stack([pushes.tip_starts, pushes.tip_ends], 1)
    travel = np.hypot(*(pushes.tip_ends - pushes.tip_starts).T).max()
    return Groups(
        names=names,
        shapes=jax.tree.map(lambda *arrays: jnp.stack(arrays), *(shapes[name] for name in names)),
        indices=indices,
        weights=weights.astype(float),
        starts=jnp.asarray(pushes.starts[indices], float),
        ends=jnp.asarray(pushes.ends[indices], float),
        tips=jnp.asarray(tips[indices], float),
        num_steps=max(round(travel / STEP), 1),
    )


def predict(
    groups: Groups, calibration: Calibration, corrections: Correction | None = None
) -> Float[np.ndarray, "shapes places 3"]:
    """Predicts the ends of all pushes; `corrections` have a leading axis of objects."""
    ends = _predict(
        groups.shapes, groups.starts, groups.tips, calibration, groups.num_steps, corrections
    )
    return np.asarray(ends)


@eqx.filter_jit
def _predict(shapes, starts, tips, calibration, num_steps, corrections):
    def of_object(shape, starts, tips, calibration, correct):
        one = jax.vmap(predicted_end, (None, 0, 0, None, None, None))
        return one(shape, starts, tips, calibration, num_steps, correct)

    return eqx.filter_vmap(of_object)(shapes, starts, tips, calibration, corrections)


SCALES = (4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""The scale s of the robust loss, in mm and degrees, for each iteration of a fit."""


def fit(
    groups: Groups,
    calibration: Calibration,
    free: Sequence[int],
    scales: Sequence[float] = SCALES,
) -> Calibration:
    """Fits components of a calibration to the pushes of each object.

    It minimizes Σ ln(1 + |Δp|²/s²) + ln(1 + Δθ²/s²), which is robust to pushes that slipped off,
    by Levenberg-Marquardt with weights 1/(1 + e²/s²). The scale s decreases over iterations, for
    convergence from bad starts.
    """
    # Steps of twice the length are accurate enough for a fit.
    steps = max(groups.num_steps // 2, 1)
    vectors = np.asarray(jax.vmap(Calibration.as_vector)(calibration), np.float64)
    damping = np.full(len(vectors), 1e-3)
    errors, slopes = _errors_and_slopes(groups, vectors, free, steps)
    for scale in scales:
        proposal = _proposed(groups, vectors, free, errors, slopes, damping, scale)
        new_errors, new_slopes = _errors_and_slopes(groups, proposal, free, steps)
        better = _losses(groups, new_errors, proposal, scale) < _losses(
            groups, errors, vectors, scale
        )
        vectors = np.where(better[:, None], proposal, vectors)
        errors = np.where(better[:, None, None], new_errors, errors)
        slopes = np.where(better[:, None, None, None], new_slopes, slopes)
        damping = np.where(better, damping / 3, damping * 10)
    return jax.vmap(from_vector)(jnp.asarray(vectors, float))


def _errors_and_slopes(
    groups: Groups, vectors: np.ndarray, free: Sequence[int], num_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    ends, slopes = _ends_and_slopes(
        groups.shapes,
        groups.starts,
        groups.tips,
        jnp.asarray(vectors, float),
        jnp.asarray(list(free)),
        num_steps,
    )
    errors = wrapped_difference(np.asarray(ends, np.float64), np.asarray(groups.ends))
    # Clip derivatives, which are huge for pushes that just slip off a corner.
    return errors, np.clip(np.asarray(slopes, np.float64), -300.0, 300.0)


@eqx.filter_jit
def _ends_and_slopes(shapes, starts, tips, vectors, free, num_steps):
    def of_push(shape, start, tips, vector):
        def end(values):
            calibration = from_vector(vector.at[free].set(values))
            return predicted_end(shape, start, tips, calibration, num_steps)

        values = vector[free]
        return end(values), jax.jacfwd(end)(values)

    of_object = jax.vmap(of_push, (None, 0, 0, None))
    return jax.vmap(of_object)(shapes, starts, tips, vectors)


def _losses(groups: Groups, errors: np.ndarray, vectors: np.ndarray, scale: float) -> np.ndarray:
    squares = _squared_errors(errors) / scale**2
    prior = ((vectors / _PRIOR_STDS) ** 2).sum(1)
    return (groups.weights * np.log1p(squares).sum(-1)).sum(1) + prior


def _squared_errors(errors: np.ndarray) -> np.ndarray:
    """Returns squared errors of translation and rotation."""
    return np.stack([(errors[..., :2] ** 2).sum(-1), errors[..., 2] ** 2], -1)


def _proposed(
    groups: Groups,
    vectors: np.ndarray,
    free: Sequence[int],
    errors: np.ndarray,
    slopes: np.ndarray,
    damping: np.ndarray,
    scale: float,
) -> np.ndarray:
    free = list(free)
    weights = groups.weights[..., None] / (scale**2 + _squared_errors(errors))
    weights = weights[..., [0, 0, 1]]
    curvature = np.einsum("gpei,gpe,gpej->gij", slopes, weights, slopes)
    gradient = np.einsum("gpei,gpe,gpe->gi", slopes, weights, errors)
    stds = _PRIOR_STDS[free]
    curvature += np.diag(stds**-2.0)
    gradient += vectors[:, free] / stds**2
    diagonal = np.einsum("gii->gi", curvature)
    curvature = curvature + np.einsum("gi,ij->gij", damping[:, None] * diagonal, np.eye(len(free)))
    steps = np.linalg.solve(curvature, gradient[..., None])[..., 0]
    proposal = vectors.copy()
    proposal[:, free] -= steps
    return proposal
