"""Running a filter over a sequence."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from filtrax.arrays import Context, Key
from filtrax.beliefs import Gaussian
from filtrax.checks import as_arrays, is_concrete
from filtrax.filters.base import AbstractFilter, Belief, Info
from filtrax.loops import scan_in_one
from filtrax.model import StateSpaceModel, check_model
from filtrax.resampling.base import ANCESTORS
from filtrax.sensors import Measurement, Sensed, sense
from filtrax.trajectory import Trajectory


def run(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    controls: Any,
    readings: Any,
    *,
    observed: Any = None,
    context: Context = None,
    recompute: bool | None = None,
    key: Key,
) -> Any:
    """The beliefs after each step of a sequence, in one compiled loop.

    **Arguments:**

    - `filt`, `model`: the filter and the model it works with.
    - `prior`: the belief before the first step.
    - `controls`, `readings`: pytrees of arrays with a leading time axis; `controls[t]` acts on
      the way to the state at which `readings[t]` is taken. No controls: None.
    - `observed`: which readings exist, per step or per step and component; for stacked sensors a
      tuple of such masks. None: all. What is not observed may hold anything, NaN included.
    - `context`: what is constant in the sequence.
    - `recompute`: whether a backward pass computes each step again from the belief before it,
      and keeps beliefs and ancestors alone. None: on a GPU, where it is the faster way, too; a
      filter that is one kernel there keeps products and factors as well.
    - `key`: for filters and sensors that draw random numbers.

    **Returns:** what the filter believes, `Gaussian`, `Particles` or `RecurrentBelief`, with a
    leading time axis.
    """
    controls, readings, observed = as_arrays((controls, readings, observed))
    check_sequence(readings, observed, controls=controls)
    sequence = (prior, controls, readings, observed, context)
    return _compiled(filt, model, sequence, key, recompute, False)


def run_with_info(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    controls: Any,
    readings: Any,
    *,
    observed: Any = None,
    context: Context = None,
    recompute: bool | None = None,
    key: Key,
) -> tuple[Any, Info]:
    """As `run`, and also returns the diagnostics of each step."""
    controls, readings, observed = as_arrays((controls, readings, observed))
    check_sequence(readings, observed, controls=controls)
    sequence = (prior, controls, readings, observed, context)
    return _compiled(filt, model, sequence, key, recompute, True)


def filter_trajectory(
    filt: AbstractFilter[Belief],
    model: StateSpaceModel,
    trajectory: Trajectory,
    *,
    recompute: bool | None = None,
    key: Key,
) -> tuple[Belief, Info]:
    """The body of `run_with_info`, neither checked nor compiled, for use in larger programs."""
    sequence = (
        trajectory.prior,
        trajectory.controls,
        trajectory.readings,
        trajectory.observed,
        trajectory.context,
    )
    return _filter(filt, model, sequence, key, recompute)


def sense_all(
    model: StateSpaceModel, readings: Any, observed: Any, context: Context, *, key: Key
) -> Measurement:
    """The measurements of all readings of a sequence."""
    measurements = _sense_all(model, readings, observed, context, key)
    if measurements.observed is not None:
        return measurements
    return dataclasses.replace(measurements, observed=jnp.ones(len(measurements.value), bool))


def _sense_all(model, readings, observed, context, key) -> Measurement:
    """The same, but `observed` is None where nothing is ever missing."""
    # The sensor sees all readings at once, outside of the scan: one batched network call.
    keys = jr.split(key, jax.tree.leaves(readings)[0].shape[0])

    def one(reading, mask, key):
        measurement = sense(model.sensor, reading, mask, context, key=key)
        whole = measurement.observed is True
        return dataclasses.replace(measurement, observed=None) if whole else measurement

    return jax.vmap(one)(readings, observed, keys)


def sense_trajectory(
    model: StateSpaceModel, trajectory: Trajectory, *, key: Key
) -> tuple[StateSpaceModel, Trajectory]:
    """Does the work of the sensor beforehand: measurements take the place of readings.

    What uses both several times, as several objectives or several priors do, then runs the
    sensor once.
    """
    measurements = sense_all(
        model, trajectory.readings, trajectory.observed, trajectory.context, key=key
    )
    model = dataclasses.replace(model, sensor=Sensed(model.sensor))
    return model, dataclasses.replace(trajectory, readings=measurements, observed=None)


def check_sequence(readings: Any, observed: Any, **others: Any) -> None:
    """Raises unless all arrays have the same number of steps and all seen readings are finite."""
    if not jax.tree.leaves(readings):
        raise ValueError("`readings` must hold at least one array with a leading time axis.")
    steps = jnp.shape(jax.tree.leaves(readings)[0])[:1]
    for name, tree in {"readings": readings, "observed": observed, **others}.items():
        for leaf in jax.tree.leaves(tree):
            if not steps or jnp.shape(leaf)[:1] != steps:
                length = f" of length {steps[0]}" if steps else ""
                raise ValueError(
                    f"`{name}` must have a leading time axis{length} like `readings`, got an array "
                    f"of shape {jnp.shape(leaf)}."
                )
    for leaf in jax.tree.leaves(observed):
        if leaf.dtype != bool:
            raise ValueError(f"`observed` must be boolean, got {leaf.dtype}.")
    if is_concrete((readings, observed)):
        _check_finite(readings, observed)


def check_finite_reading(reading: Any, observed: Any) -> None:
    """Raises if a reading of one step is not finite where it is observed."""
    # The common case, kept cheap: a sum of squares is finite only if all numbers are.
    if all(math.isfinite(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(reading)):
        return
    add_axis = lambda leaf: np.asarray(leaf)[None]  # noqa: E731
    _check_finite(jax.tree.map(add_axis, reading), jax.tree.map(add_axis, observed))


def _check_finite(readings: Any, observed: Any) -> None:
    if isinstance(readings, tuple) and isinstance(observed, tuple):
        for reading, mask in zip(readings, observed, strict=True):
            _check_finite(reading, mask)
        return
    for leaf in jax.tree.leaves(readings):
        bad = ~np.isfinite(leaf)
        if observed is not None:
            seen = np.asarray(observed)
            # As sensors see it: a mask per component applies to readings of its own shape.
            each = seen if seen.shape == bad.shape else seen.reshape(len(bad), -1).any(1)
            bad &= each.reshape(each.shape + (1,) * (bad.ndim - each.ndim))
        if bad.any():
            first = int(np.argmax(bad.reshape(len(bad), -1).any(1)))
            raise ValueError(
                f"`readings` must be finite where they are observed: found {int(bad.sum())} "
                f"non-finite entries, the first in step {first}. Mark missing readings by "
                "`observed`."
            )


@eqx.filter_jit
def _compiled(filt, model, sequence, key, recompute, with_info) -> Any:
    beliefs, info = _filter(filt, model, sequence, key, recompute)
    return (beliefs, info) if with_info else beliefs


def _filter(filt, model, sequence, key, recompute):
    prior, controls, readings, observed, context = sequence
    sensor_key, init_key, key = jr.split(key, 3)
    model = model.bind(context)
    measurements = _sense_all(model, readings, observed, context, sensor_key)
    first = jax.tree.map(lambda leaf: leaf[0], (controls, measurements))
    check_model(model, prior, *first)

    def step(belief, inputs):
        control, measurement, key = inputs
        if measurement.observed is None:  # known while tracing, so that masks cost nothing
            measurement = dataclasses.replace(measurement, observed=True)
        belief, info = filt.step(model, belief, control, measurement, key=key)
        info = dataclasses.replace(info, novelty=measurement.novelty)
        return belief, (belief, info)

    keys = jr.split(key, measurements.value.shape[0])
    belief, inputs = filt.init(model, prior, key=init_key), (controls, measurements, keys)
    if recompute is not False:
        found = scan_in_one(step, belief, inputs, keeps=not recompute)
        if found is not None:
            return found[1]
    # Every array that is kept for the backward pass is a launch of its own on a GPU, each step, and
    # on a CPU still a copy: what is a kept one in another shape is not kept as well.
    whole = jax.default_backend() != "cpu" if recompute is None else recompute
    kept = jax.checkpoint_policies.save_only_these_names(ANCESTORS) if whole else _is_computed
    step = jax.checkpoint(step, policy=kept, prevent_cse=False)  # the loop prevents it already
    return lax.scan(step, belief, inputs)[1]


_MOVES = (lax.transpose_p, lax.reshape_p, lax.squeeze_p, lax.broadcast_in_dim_p)
_MOVES += (lax.convert_element_type_p,)


def _is_computed(primitive: Primitive, *_: Any, **__: Any) -> bool:
    """Whether an operation does more than to move numbers."""
    return primitive not in _MOVES
