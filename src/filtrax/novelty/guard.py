"""A sensor that is trusted less where its readings are unlike the training data."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from filtrax._readers import AbstractReader, reader, sequences_at_once
from filtrax._types import Context, Inputs, Key, Reading
from filtrax.filters._run import sense_all
from filtrax.novelty.detector import SHRINKAGE, Novelty
from filtrax.sensors import Measurement, Sensor
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

Describe = Callable[[Reading, Context], PyTree]
"""`describe(reading, context)`: any tree of arrays, which a detector sees besides the features."""

MOST_INFLATION = 1e12
"""No covariance is multiplied by more, so that it stays finite in single precision."""

SEQUENCES_AT_ONCE = 16
"""Bounds the memory that the readings of a data set take."""


class GuardedSensor(AbstractReader):
    """A sensor that is trusted less where its readings are unlike the training data.

        R_guarded = R max(1, score)^power

    Up to a score of 1 the measurement is that of the sensor, bit for bit. From there on its
    covariance grows continuously. The score is about the square of a distance, so with a power of
    1 or more, the pull of a measurement goes to zero the farther it is out, as with Cauchy's
    weights in robust statistics. The `novelty` of the measurement is the score.

    Only `limit` helps a learned likelihood or a recurrent network, which see no covariance.

    **Attributes:**

    - `sensor`: any sensor; the detector sees its features, or its value if it has none.
    - `detector`: fitted to the features, and to what `describe` gives.
    - `describe`: `describe(reading, context)`, further parts for the detector.
    - `power`: 0 warns and changes nothing.
    - `limit`: readings with a larger score are treated as if there were none.
    """

    sensor: Sensor
    detector: Novelty
    describe: Describe | None = None
    power: float = eqx.field(default=1.0, static=True)
    limit: float = eqx.field(default=math.inf, static=True)

    def __check_init__(self):
        if not (self.power >= 0 and self.limit >= 1):
            raise ValueError(
                "`power` must not be negative and `limit` must be at least 1, "
                f"got {self.power} and {self.limit}."
            )

    @property
    def inner(self) -> Any:
        return reader(self.sensor)

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Measurement:
        measurement = self.sensor(reading, inputs, context, key=key)
        score = self.detector.score(_seen(measurement, reading, context, self.describe))
        score = score.astype(measurement.value.dtype)
        # Bounded before the power is taken, because the gradient of what overflows is not finite.
        largest = MOST_INFLATION ** (1 / max(self.power, 1.0))
        inflation = jnp.clip(score, 1.0, largest) ** (0.5 * self.power)  # of standard deviations
        observed = measurement.observed
        if math.isfinite(self.limit):
            observed = jnp.logical_and(observed, score <= self.limit)
        return dataclasses.replace(
            measurement,
            factor=inflation * measurement.factor,
            observed=observed,
            novelty=score,
        )


def fit_novelty(
    model: StateSpaceModel,
    train: Trajectory,
    validation: Trajectory,
    *,
    describe: Describe | None = None,
    alarms: float = 0.01,
    shrinkage: float = SHRINKAGE,
    power: float = 1.0,
    limit: float = math.inf,
    key: Key | None = None,
) -> StateSpaceModel:
    """The model, in inference mode, with a `GuardedSensor` that is fitted to its training data.

    **Arguments:**

    - `model`: whose sensor is trained.
    - `train`, `validation`: data sets, as of a task.
    - `describe`, `power`, `limit`: as in `GuardedSensor`.
    - `alarms`, `shrinkage`: as in `Novelty.fit`.
    - `key`: for sensors that draw random numbers even in inference.
    """
    model = eqx.nn.inference_mode(model)
    if isinstance(model.sensor, GuardedSensor):
        raise ValueError("`fit_novelty` needs a model whose sensor is not guarded, but it is.")
    rows = [_observed_rows(model, data, describe, key) for data in (train, validation)]
    detector = Novelty.fit(rows[0], rows[1], alarms, shrinkage=shrinkage)
    sensor = GuardedSensor(model.sensor, detector, describe, power, limit)
    return dataclasses.replace(model, sensor=sensor)


def novelty_of(
    model: StateSpaceModel, data: Trajectory, *, key: Key | None = None
) -> Float[np.ndarray, "*n t"]:
    """The score of every step of a trajectory, or of a data set; above 1 is an alarm.

    Steps that were not observed have a score of 0. The key is for sensors that draw random numbers
    even in inference.
    """
    single = data.initial.ndim == 1
    data = jax.tree.map(lambda leaf: leaf[None], data) if single else data
    scores = _in_chunks(_scores, data, eqx.nn.inference_mode(model), key)
    return scores[0] if single else scores


def _seen(
    measurement: Measurement, reading: Reading, context: Context, describe: Describe | None
) -> tuple[Float[Array, " n"], ...]:
    """The parts that a detector sees of a reading: the features, then those of `describe`."""
    leaves = jax.tree.leaves(measurement.features) or [measurement.value]
    features = jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
    others = [] if describe is None else jax.tree.leaves(describe(reading, context))
    return (features, *(jnp.ravel(leaf).astype(features.dtype) for leaf in others))


def _observed_rows(
    model: StateSpaceModel, data: Trajectory, describe: Describe | None, key: Key | None
) -> tuple[np.ndarray, ...]:
    """The parts that a detector sees of each observed reading of a data set, in rows."""
    parts, observed = _in_chunks(_parts, data, model, describe, key)
    return tuple(part[observed] for part in parts)


@eqx.filter_jit
def _parts(
    data: Trajectory, model: StateSpaceModel, describe: Describe | None, key: Key | None
) -> Any:
    def of_trajectory(trajectory: Trajectory) -> Any:
        def of_step(measurement: Measurement, reading: Reading) -> Any:
            seen = _seen(measurement, reading, trajectory.context, describe)
            return seen, measurement.seen().any()

        return jax.vmap(of_step)(_measurements(model, trajectory, key), trajectory.readings)

    return jax.vmap(of_trajectory)(data)


@eqx.filter_jit
def _scores(data: Trajectory, model: StateSpaceModel, key: Key | None) -> Array:
    novelty = jax.vmap(lambda trajectory: _measurements(model, trajectory, key))(data).novelty
    if novelty is None:
        raise ValueError(
            "The sensor of the model must say how novel readings are, but it is a "
            f"{type(model.sensor).__name__}: make one that does with `fit_novelty`."
        )
    return novelty


def _measurements(model: StateSpaceModel, trajectory: Trajectory, key: Key | None) -> Measurement:
    known = (trajectory.readings, trajectory.observed, trajectory.inputs, trajectory.context)
    return sense_all(model, *known, key=key)


def _in_chunks(function: Callable, data: Trajectory, model: StateSpaceModel, *others: Any) -> Any:
    """`function(data, model, *others)` for some sequences at a time, as NumPy's arrays."""
    count, num_steps = jax.tree.leaves(data.readings)[0].shape[:2]
    size = sequences_at_once(model.sensor, num_steps, SEQUENCES_AT_ONCE)
    outputs = []
    for first in range(0, count, size):
        # The last chunk begins earlier, so that all have the same size and are one program.
        begin = max(min(first, count - size), 0)
        chunk = jax.tree.map(lambda leaf, b=begin: leaf[b : b + size], data)
        output, new = function(chunk, model, *others), first - begin
        outputs.append(jax.tree.map(lambda leaf, n=new: np.asarray(leaf)[n:], output))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *outputs)
