"""Compares the uncertainty of simulated and real pushes.

It compares the deviations of the ends of pushes from the physics with the object's c and μ. For
real pushes, these are fitted together with a registration; for simulated pushes, they are the means
of the simulator's distribution.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from filtrax.lab.tasks.pushing.calibration import Calibration, Groups, grouped, predict
from filtrax.lab.tasks.pushing.disturbances import real_friction
from filtrax.lab.tasks.pushing.recordings.endpoints import Pushes, wrapped_difference
from filtrax.lab.tasks.pushing.sequences import Sequences, make_sequences
from filtrax.lab.tasks.pushing.shapes import NAMES, shape
from filtrax.lab.tasks.pushing.simulator import PUSH_STEPS

QUANTILES = (50, 75, 90)
SEQUENCES_PER_OBJECT, NUM_STEPS = 200, 50
"""Sizes of the simulated data: nearly a thousand pushes of each object."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Errors of the physics on real and on simulated pushes of one object.

    Rows are `QUANTILES` of the errors of translation in mm, and of rotation in degrees.
    """

    name: str
    num_pushes: int
    real: Float[np.ndarray, "2 quantiles"]
    simulated: Float[np.ndarray, "2 quantiles"]

    @property
    def ratios(self) -> Float[np.ndarray, "2 quantiles"]:
        """The ratios of simulated to real errors; 1 is perfect agreement."""
        return self.simulated / self.real


def compare(
    names: Sequence[str], real: Sequence[Float[np.ndarray, "_ 3"]], seed: int = 0
) -> tuple[Agreement, ...]:
    """Compares the errors of real pushes of objects with those of simulated pushes."""
    sequences = make_sequences(
        "test",
        num_sequences=SEQUENCES_PER_OBJECT * len(names),
        num_steps=NUM_STEPS,
        seed=seed,
        objects=names,
    )
    shapes = {name: shape(name) for name in names}
    pushes = pushes_of(sequences)
    groups = grouped(pushes, shapes, np.ones(len(pushes), bool))
    simulated = errors(groups, simulated_calibrations(names))
    return tuple(
        Agreement(name, len(own), error_quantiles(theirs), error_quantiles(own))
        for name, theirs, own in zip(names, real, simulated, strict=True)
    )


def pushes_of(sequences: Sequences) -> Pushes:
    """Extracts complete pushes from sequences, with their ends in the frame of the data set."""
    pushing = np.asarray(sequences.pushes)
    began = pushing[:, 1:-PUSH_STEPS] & ~pushing[:, : -PUSH_STEPS - 1]
    sequence, moment = np.nonzero(began)
    moment = moment + 1
    names = np.asarray(NAMES)[np.asarray(sequences.shape)[sequence]]
    poses, tips = np.asarray(sequences.poses), np.asarray(sequences.tips)
    ends = moment + PUSH_STEPS
    return Pushes(
        surfaces=np.full(len(names), "simulated"),
        shapes=names,
        speeds=np.full(len(names), 50.0),
        starts=_to_data_set(names, poses[sequence, moment]),
        ends=_to_data_set(names, poses[sequence, ends]),
        tip_starts=tips[sequence, moment].astype(np.float64),
        tip_ends=tips[sequence, ends].astype(np.float64),
    )


def simulated_calibrations(names: Sequence[str]) -> Calibration:
    """Returns the means of the simulator's parameters, with a leading axis of objects."""
    frictions = [real_friction(name)[0] for name in names]
    friction = jax.tree.map(lambda *leaves: jnp.stack(leaves), *frictions)
    return Calibration(friction, jnp.zeros((len(names), 3)))


def errors(groups: Groups, calibration: Calibration) -> list[Float[np.ndarray, "_ 3"]]:
    """Returns the deviations of the ends of pushes from the physics, for each object."""
    ends = predict(groups, calibration).astype(np.float64)
    differences = wrapped_difference(np.asarray(groups.ends, np.float64), ends)
    return [
        difference[weights > 0]
        for difference, weights in zip(differences, groups.weights, strict=True)
    ]


def error_quantiles(errors: Float[np.ndarray, "pushes 3"]) -> Float[np.ndarray, "2 quantiles"]:
    """Returns quantiles of the absolute errors of translation and rotation."""
    lengths = np.stack([np.hypot(errors[:, 0], errors[:, 1]), np.abs(errors[:, 2])])
    return np.percentile(lengths, QUANTILES, axis=1).T


def _to_data_set(names: np.ndarray, poses: np.ndarray) -> np.ndarray:
    centroids = {name: np.asarray(shape(name).centroid) for name in np.unique(names)}
    angles = np.deg2rad(poses[:, 2].astype(np.float64))
    x, y = np.stack([centroids[name] for name in names]).T
    cosine, sine = np.cos(angles), np.sin(angles)
    offsets = np.stack([cosine * x - sine * y, sine * x + cosine * y], -1)
    return np.column_stack([poses[:, :2] - offsets, poses[:, 2]])
