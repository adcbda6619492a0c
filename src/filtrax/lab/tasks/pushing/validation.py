"""Validates the physics on real pushes: fitted on one half of them, tested on the other."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from filtrax.lab.tasks.pushing.agreement import Agreement, compare, errors
from filtrax.lab.tasks.pushing.calibration import (
    CENTRE,
    LENGTH,
    PUSHER,
    REGISTRATION,
    Calibration,
    Groups,
    even_pressure,
    fit,
    grouped,
    predict,
)
from filtrax.lab.tasks.pushing.physics import Correction
from filtrax.lab.tasks.pushing.recordings.endpoints import (
    Pushes,
    find_endpoints,
    read_endpoints,
    wrapped_difference,
)
from filtrax.lab.tasks.pushing.recordings.outlines import FILE, read_shapes
from filtrax.lab.tasks.pushing.residual import ResidualTraining, train_corrections
from filtrax.lab.tasks.pushing.shapes import NAMES, Shape, shape

MOVED = 5.0
"""Pushes that move the object by more than this, in mm, are also reported separately."""
QUANTILES = (50, 75, 90)
PAIR_DISTANCE = 4.0
"""The distance in mm, of starts and of points 30 mm further, below which pushes are repetitions."""

SIMULATED = "c, μ, registration"
"""The model whose errors on simulated and real pushes are compared."""

_FITS = {
    "c": LENGTH,
    SIMULATED: (*LENGTH, *PUSHER, *REGISTRATION),
    "+ centre of friction": (*LENGTH, *PUSHER, *REGISTRATION, *CENTRE),
}

Progress = Callable[[str], None]
"""Callback that gets the name of the current step."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Errors of one model on the test half."""

    name: str
    translation: Float[np.ndarray, " pushes"]
    """Errors of the final position in mm."""
    rotation: Float[np.ndarray, " pushes"]
    """Errors of the final orientation in degrees."""


@dataclasses.dataclass(frozen=True)
class Validation:
    """Errors of several models on the same pushes, and their fitted parameters."""

    pushes: Pushes
    """The test half."""
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    """The names of the objects."""
    calibrations: Mapping[str, Calibration]
    """The fitted calibrations by name of the row, with a leading axis of objects."""
    simulator: tuple[Agreement, ...] = ()
    """Comparisons of the errors of `SIMULATED` on all real pushes, and on simulated ones."""

    def parts(self) -> dict[str, Bool[np.ndarray, " pushes"]]:
        """Returns masks of the pushes of each object, of all, and of those with large motion."""
        motions = self.pushes.motions
        moved = np.hypot(motions[:, 0], motions[:, 1]) > MOVED
        objects = {name: self.pushes.shapes == name for name in self.names}
        return {**objects, "all": np.ones(len(self.pushes), bool), f"moved > {MOVED:g} mm": moved}


def validate(
    place: str | Path,
    *,
    seed: int = 0,
    residual: ResidualTraining | None = None,
    progress: Progress = lambda text: None,
) -> Validation:
    """Predicts the ends of held-out pushes in a table, with models of increasing complexity.

    Args:
        place: a table of pushes, or a folder with one; a file of shapes beside it, if there is
            one, has the outlines.
        seed: the seed of the halves, and of the learned correction.
        residual: the settings for training the correction; None for no correction.
        progress: called with the name of the current step.
    """
    path = find_endpoints(place)
    pushes = read_endpoints(path)
    shapes = _shapes(path.with_name(FILE), {*pushes.shapes.tolist()})
    fitted = halves(pushes, seed)
    train, test = grouped(pushes, shapes, fitted), grouped(pushes, shapes, ~fitted)
    calibration = jax.vmap(even_pressure)(train.shapes)
    calibrations = {"even pressure": calibration}
    rows = [
        _row("no motion", test, np.asarray(test.starts)),
        _tested("even pressure", test, calibration),
    ]
    for name, free in _FITS.items():
        progress(name)
        calibration = fit(train, calibration, free)
        calibrations[name] = calibration
        rows.append(_tested(name, test, calibration))
    progress("simulated pushes")
    everything = grouped(pushes, shapes, np.ones(len(pushes), bool))
    simulator = compare(test.names, errors(everything, calibrations[SIMULATED]), seed)
    if residual is not None:
        name = "+ learned correction"
        progress(name)
        correct = train_corrections(train, calibration, residual, key=jr.key(seed))
        rows.append(_tested(name, test, calibration, correct))
    order = test.indices[test.weights > 0]
    return Validation(pushes[order], tuple(rows), test.names, calibrations, simulator)


def halves(pushes: Pushes, seed: int) -> Bool[np.ndarray, " pushes"]:
    """Returns a mask of a random half of the pushes of each object.

    Repetitions of a push at other speeds are in the same half.
    """
    first = np.zeros(len(pushes), bool)
    for number, name in enumerate(sorted({*pushes.shapes.tolist()})):
        indices = np.flatnonzero(pushes.shapes == name)
        labels = repetitions(pushes[indices])
        groups = np.random.default_rng((seed, number)).permutation(np.unique(labels))
        first[indices] = np.isin(labels, groups[: (len(groups) + 1) // 2])
    return first


def repetitions(pushes: Pushes) -> np.ndarray:
    """Returns a label for each push of one object, which is equal for repetitions.

    A push repeats the push at another speed with the nearest start and direction in the object's
    frame, if their distance is below `PAIR_DISTANCE`.
    """
    angles = np.deg2rad(pushes.starts[:, 2])
    cosines, sines = np.cos(angles), np.sin(angles)
    travel = pushes.tip_ends - pushes.tip_starts
    directions = travel / np.maximum(np.hypot(*travel.T), 1e-9)[:, None]
    places = np.concatenate(
        [
            np.stack([cosines * x + sines * y, cosines * y - sines * x], -1)
            for x, y in ((pushes.tip_starts - pushes.starts[:, :2]).T, 30 * directions.T)
        ],
        1,
    )
    labels = np.arange(len(pushes))
    for index, place in enumerate(places):
        distances = np.linalg.norm(places - place, axis=1)
        distances[pushes.speeds == pushes.speeds[index]] = np.inf
        nearest = int(distances.argmin())
        if distances[nearest] < PAIR_DISTANCE:
            labels[labels == labels[nearest]] = labels[index]
    return labels


def _shapes(path: Path, names: set[str]) -> dict[str, Shape]:
    """Returns the objects of these names, with outlines from the file if it has them."""
    known = read_shapes(path) if path.exists() else {}
    return {name: known[name] if name in known else shape(name) for name in NAMES if name in names}


def _tested(
    name: str, test: Groups, calibration: Calibration, correct: Correction | None = None
) -> Row:
    return _row(name, test, predict(test, calibration, correct))


def _row(name: str, test: Groups, ends: np.ndarray) -> Row:
    used = test.weights > 0
    errors = wrapped_difference(np.asarray(ends, np.float64), np.asarray(test.ends))[used]
    return Row(name, np.hypot(errors[:, 0], errors[:, 1]), np.abs(errors[:, 2]))
