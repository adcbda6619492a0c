"""Smoothing a sequence, and drawing trajectories given its readings."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from filtrax._checks import as_arrays, check_whole, keyword_only
from filtrax._given import unwrap
from filtrax._types import Context, Key
from filtrax.beliefs import Gaussian
from filtrax.filters._run import Filtered, check_first, check_sequence, sense_all
from filtrax.filters.base import AbstractFilter, Info
from filtrax.linalg import precise
from filtrax.smoothing.base import AbstractSmoother, Paths, Sequence, Smoothed, smoother_of
from filtrax.smoothing.gaussian import RauchTungStriebel
from filtrax.smoothing.parallel import FEWEST_STEPS, ParallelInTime, is_linear
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory


@keyword_only(
    "smooth(filter, model, prior, readings, *, inputs=None, observed=None, context=None, key=None)",
    controls="inputs",
)
def smooth(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    readings: Any,
    *,
    inputs: Any = None,
    observed: Any = None,
    context: Context = None,
    key: Key | None = None,
    smoother: AbstractSmoother | None = None,
    info: bool = False,
    recompute: bool | None = None,
) -> Smoothed:
    """The beliefs about every state of a sequence, given all readings.

    **Arguments:** those of `run`, and

    - `smoother`: an object of `filtrax.smoothing` in the place of the filter's own, which is
      `RauchTungStriebel` for Kalman filters, or `ParallelInTime` for long sequences of linear
      models on a GPU, `Kim` for an IMM filter and `MarginalSmoother` for particles.
    """
    inputs, readings, observed = as_arrays((inputs, readings, observed))
    check_sequence(readings, observed, inputs=inputs)
    sequence = (prior, inputs, readings, observed, context)
    return _compiled(smoother, filt, model, sequence, key, recompute, info)


@keyword_only("sample_path(filter, model, prior, readings, *, num_paths, key, ...)")
def sample_path(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    readings: Any,
    *,
    num_paths: int,
    inputs: Any = None,
    observed: Any = None,
    context: Context = None,
    key: Key,
    smoother: AbstractSmoother | None = None,
) -> Paths:
    """Draws whole trajectories from their distribution given all readings.

    States of one draw belong together, while those of `smooth` are about one time each. Arguments
    are those of `smooth`; `num_paths` trajectories are drawn.
    """
    check_whole("num_paths", num_paths, 1)
    inputs, readings, observed = as_arrays((inputs, readings, observed))
    check_sequence(readings, observed, inputs=inputs)
    sequence = (prior, inputs, readings, observed, context)
    return _compiled_paths(smoother, filt, model, sequence, num_paths, key)


def smooth_trajectory(
    filt: AbstractFilter,
    model: StateSpaceModel,
    trajectory: Trajectory,
    *,
    key: Key | None = None,
    smoother: AbstractSmoother | None = None,
    info: bool = False,
    recompute: bool | None = None,
) -> Smoothed:
    """The body of `smooth`, neither checked nor compiled, for use in larger programs."""
    sequence = (
        trajectory.prior,
        trajectory.inputs,
        trajectory.readings,
        trajectory.observed,
        trajectory.context,
    )
    return _smooth(smoother, filt, model, sequence, key, recompute, info)


@keyword_only(
    "run_parallel(filter, model, prior, readings, *, inputs=None, observed=None, ...)",
    controls="inputs",
)
def run_parallel(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    readings: Any,
    *,
    inputs: Any = None,
    observed: Any = None,
    context: Context = None,
    key: Key | None = None,
    passes: int = 1,
) -> Filtered[Gaussian]:
    """Filters as `run` does, by a scan over time in parallel (`ParallelInTime`).

    With more than one pass, the filter's model is linearized about the smoothed path of the pass
    before, so that its beliefs are not quite those of `run`.
    """
    inputs, readings, observed = as_arrays((inputs, readings, observed))
    check_sequence(readings, observed, inputs=inputs)
    sequence = (prior, inputs, readings, observed, context)
    return _compiled_filter(ParallelInTime(passes), filt, model, sequence, key)


@eqx.filter_jit
@precise
def _compiled_filter(smoother, filt, model, sequence, key) -> Filtered:
    *_, sequence, passed = _forward(smoother, filt, model, sequence, key, None)
    info = Info(passed.info.finite, passed.info.log_likelihood, sequence.measurements.novelty)
    return Filtered(passed.beliefs, info, passed.info.log_likelihood.sum())


@eqx.filter_jit
def _compiled(smoother, filt, model, sequence, key, recompute, everything) -> Smoothed:
    return _smooth(smoother, filt, model, sequence, key, recompute, everything)


@precise
def _smooth(smoother, filt, model, sequence, key, recompute, everything) -> Smoothed:
    key, draw_key = (None, None) if key is None else (key, jr.fold_in(key, 0))
    arguments = (smoother, filt, model, sequence, key, recompute)
    smoother, filt, model, sequence, passed = _forward(*arguments)
    smoothed = smoother.smooth(filt, model, sequence, passed, key=draw_key)
    info = smoothed.info
    if not everything:
        info = Info(info.finite, info.log_likelihood)
    info = dataclasses.replace(info, novelty=sequence.measurements.novelty)
    return dataclasses.replace(smoothed, info=info)


@eqx.filter_jit
@precise
def _compiled_paths(smoother, filt, model, sequence, num_paths, key) -> Paths:
    forward_key, key = jr.split(key)
    arguments = (smoother, filt, model, sequence, forward_key, None)
    smoother, filt, model, sequence, passed = _forward(*arguments)
    draw = lambda key: smoother.draw(filt, model, sequence, passed, key=key)  # noqa: E731
    return Paths(*jax.vmap(draw)(jr.split(key, num_paths)))


def _forward(smoother, filt, model, sequence, key, recompute):
    """The filter's pass, with the same random numbers as in `run`."""
    prior, inputs, readings, observed, context = sequence
    filt, model = unwrap(filt), unwrap(model).bind(context)
    sensor_key, init_key, key = (None,) * 3 if key is None else jr.split(key, 3)
    measurements = sense_all(model, readings, observed, inputs, context, key=sensor_key)
    check_first(model, prior, inputs, measurements)
    keys = None if key is None else jr.split(key, measurements.value.shape[0])
    sequence = Sequence(measurements, inputs, keys)
    smoother = _chosen(filt, model, prior, sequence) if smoother is None else smoother
    passed = smoother.forward(filt, model, prior, sequence, key=init_key, recompute=recompute)
    return smoother, filt, model, sequence, passed


def _chosen(filt: Any, model: Any, prior: Gaussian, sequence: Sequence) -> AbstractSmoother:
    """The filter's own smoother, or the parallel one where it is the faster program."""
    smoother = smoother_of(filt)
    steps, device = len(sequence.measurements.value), jax.default_backend()
    if not isinstance(smoother, RauchTungStriebel) or device == "cpu" or steps < FEWEST_STEPS:
        return smoother
    return ParallelInTime() if is_linear(model, prior.mean, sequence) else smoother
