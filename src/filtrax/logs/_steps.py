"""A log as the steps of a filter: event by event, or on a grid."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from filtrax._checks import as_float, check_known
from filtrax.beliefs import Gaussian
from filtrax.logs import _plausible
from filtrax.logs._stream import SECOND, Stream
from filtrax.spaces import Space
from filtrax.trajectory import Trajectory

Prior = Gaussian | Mapping[str, float | tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which columns of a log a model reads, as "stream.column" but for readings.

    **Attributes:**

    - `readings`: the columns of each sensor, in the order of the model's stacked sensors.
    - `rates`: columns that drive the process, like a speed or a turn rate. They are interpolated,
      and each step gets their mean over the time since the step before.
    - `increments`: columns that tell what was moved since the row before, like a distance. Each
      step gets them as rates, so that over all steps the same is moved.
    - `fields`: further columns of a reading that a sensor uses, like the number of a beacon.
    - `allowed`: the values that fields may have, if there are only some.
    - `angles`: columns of readings that are angles, in radians.
    - `state_space`: the space of the state, by whose names truth and prior are given.
    """

    readings: Mapping[str, tuple[str, ...]]
    rates: tuple[str, ...] = ()
    increments: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    allowed: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    angles: tuple[str, ...] = ()
    state_space: Space | None = None

    @classmethod
    def of(cls, model: Any) -> "Layout":
        """The layout of a model, or the layout itself."""
        if isinstance(model, Layout):
            return model
        layout = getattr(getattr(model, "observe", None), "layout", None)
        if not isinstance(layout, Layout):
            raise TypeError(
                "`model` must be made by `filtrax.models.build`, or be a `filtrax.logs.Layout` "
                f"that names the columns to read, got a {type(model).__name__}."
            )
        return layout

    @property
    def drives(self) -> tuple[str, ...]:
        """The streams that drive the process."""
        return tuple(dict.fromkeys(split_name(name)[0] for name in self.rates + self.increments))


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a filter over a log, in double precision.

    **Attributes:**

    - `nanoseconds`: the time of each step; `times` has them in seconds from the first step.
    - `inputs`: `dt`, the seconds since the step before, zero in the first; `stream`, the number of
      the sensor that reported, -1 for none; and for each stream a dictionary of its columns.
    - `readings`, `observed`: for each sensor its readings, and where it reported.
    - `names`: the names of the sensors, by their number.
    - `note`: sentences on readings that were left out, moved or merged.
    """

    nanoseconds: Int[np.ndarray, " t"]
    inputs: dict[str, Any]
    readings: tuple[Float[np.ndarray, "t _"], ...]
    observed: tuple[Bool[np.ndarray, " t"], ...]
    names: tuple[str, ...]
    note: str
    model: Any
    streams: Mapping[str, Stream] = dataclasses.field(repr=False)

    @property
    def times(self) -> Float[np.ndarray, " t"]:
        """Seconds since the first step."""
        return (self.nanoseconds - self.nanoseconds[0]) / SECOND

    def __len__(self) -> int:
        return len(self.nanoseconds)

    @property
    def _space(self) -> Space:
        space = self.model.state_space
        if not isinstance(space, Space):
            raise ValueError(
                "Truth and prior by name need a space with names: give `state_space` of the "
                "layout, or a Gaussian as the prior and no truth."
            )
        return space

    def states(
        self, truth: Mapping[str, str], *, largest_gap: float | None = None
    ) -> Float[np.ndarray, "t x"]:
        """True states at the steps, NaN where they are not known.

        `truth` has the column of each component of the state that was measured, as in
        `{"heading": "mocap.yaw"}`. Columns are interpolated, angles the short way round, and never
        extrapolated, nor over more than `largest_gap` seconds.
        """
        space = self._space
        check_known("`truth` must name components", {*truth} - {*space.names}, space.names)
        states = np.full((len(self), space.size), np.nan)
        for component, name in truth.items():
            stream, column = find(self.streams, name)
            (index,) = space.index(component)
            period = space.periods[index]
            angles = {} if period is None else {column: float(period)}
            chosen = dataclasses.replace(stream, columns={column: stream[column]})
            values = chosen.at_nanoseconds(self.nanoseconds, angles=angles, largest_gap=largest_gap)
            states[:, index] = values[column]
        return states

    def trajectory(
        self,
        prior: Prior,
        *,
        truth: Mapping[str, str] | None = None,
        largest_gap: float | None = None,
    ) -> Trajectory:
        """The steps as a trajectory for `run`, `fit` and `windows`.

        **Arguments:**

        - `prior`: the belief at the first step: a Gaussian, or for each component of the state its
          mean and standard deviation; a standard deviation alone means that the mean is the truth.
        - `truth`, `largest_gap`: see `states`. Components that are not named, and times at which
          the truth is not known, are not labelled.

        Readings that are a thousand times what the truth lets expect, or degrees in the place of
        radians, raise a warning.
        """
        states = None if truth is None else self.states(truth, largest_gap=largest_gap)
        belief = self._prior(prior, states)
        labelled = None
        if states is not None:
            labelled = np.isfinite(states)
            states = np.where(labelled, states, 0.0)
            if not isinstance(self.model, Layout):
                _plausible.warn(self, states, labelled)
        return Trajectory(
            belief.mean,
            belief.covariance,
            tuple(as_float(reading) for reading in self.readings),
            inputs=_as_inputs(self.inputs),
            states=None if states is None else as_float(states),
            observed=tuple(jnp.asarray(mask) for mask in self.observed),
            labelled=None if labelled is None else jnp.asarray(labelled),
        )

    def _prior(self, prior: Prior, states: np.ndarray | None) -> Gaussian:
        if isinstance(prior, Gaussian):
            return prior
        names = self._space.names
        check_known("`prior` must name components", {*prior} - {*names}, names)
        missing = [name for name in names if name not in prior]
        if missing:
            raise ValueError(
                f"`prior` must have all components of the state: {missing} are missing."
            )
        means, stds = np.zeros(len(names)), np.zeros(len(names))
        for index, name in enumerate(names):
            value = prior[name]
            if isinstance(value, tuple):
                means[index], stds[index] = value
                continue
            stds[index] = value
            first = np.nan if states is None else states[0, index]
            if not np.isfinite(first):
                raise ValueError(
                    f"`prior` has a standard deviation of {name!r} and no mean, and the truth of "
                    f'the first step is not known: give both, as in `{{"{name}": (0.0, {value})}}`.'
                )
            means[index] = first
        return Gaussian(as_float(means), as_float(np.diag(stds**2)))


def split_name(name: str) -> tuple[str, str]:
    """The stream and the column of a name like "imu.angular_velocity.z"."""
    stream, dot, column = name.partition(".")
    if not dot or not column:
        raise ValueError(f'Columns must be named as "stream.column", got {name!r}.')
    return stream, column


def find(streams: Mapping[str, Stream], name: str) -> tuple[Stream, str]:
    """The stream that has a column, and the name of the column in it."""
    stream, column = split_name(name)
    check_known(f"{name!r}, whose stream must exist", {stream} - {*streams}, [*streams])
    streams[stream][column]  # or an error
    return streams[stream], column


def _as_inputs(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _as_inputs(child) for name, child in tree.items()}
    return jnp.asarray(tree) if np.issubdtype(tree.dtype, np.integer) else as_float(tree)
