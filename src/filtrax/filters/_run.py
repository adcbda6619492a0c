"""Running a filter over a sequence."""

import dataclasses
import functools
import math
from typing import Any, Generic, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax import _hooks
from filtrax._checks import as_arrays, check_plain, is_concrete, keyword_only, unmasked
from filtrax._given import unwrap
from filtrax._loops import scan_steps
from filtrax._types import Context, Key
from filtrax.beliefs import Gaussian
from filtrax.filters.base import AbstractFilter, Belief, Info
from filtrax.filters.interacting import check_modes
from filtrax.linalg import full_precision
from filtrax.sensors import Measurement, Precomputed, sense
from filtrax.state_space import StateSpaceModel, check_model
from filtrax.trajectory import Trajectory


class Filtered(eqx.Module, Generic[Belief]):
    """The result of filtering a sequence.

    **Attributes:**

    - `beliefs`: after each step, with a leading time axis.
    - `info`: diagnostics of each step: `finite`, `log_likelihood` and `novelty`, or everything.
    - `log_likelihood`: ln p(z_1, ..., z_T), the sum over all steps; None for a filter that has no
      likelihood.
    """

    beliefs: Belief
    info: Info
    log_likelihood: Float[Array, "*b"] | None


@keyword_only(
    "run(filter, model, prior, readings, *, inputs=None, observed=None, context=None, key=None)",
    controls="inputs",
)
def run(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    readings: Any,
    *,
    inputs: Any = None,
    observed: Any = None,
    context: Context = None,
    key: Key | None = None,
    info: bool = False,
    recompute: bool | None = None,
) -> Filtered:
    """The beliefs after each step of a sequence, in one compiled loop.

    **Arguments:**

    - `filt`, `model`: the filter and the model it works with.
    - `prior`: the belief before the first step.
    - `readings`: a pytree of arrays with a leading time axis.
    - `inputs`: what is known at each step, like commands, time steps and places of landmarks: a
      pytree of arrays with a leading time axis. The process uses `inputs[t]` on the way to the
      state at which `readings[t]` is taken, everything else at that state.
    - `observed`: which readings exist, per step or per step and component; for stacked sensors a
      tuple of such masks. None: all. What is not observed may hold anything, NaN included.
    - `context`: what is constant in the sequence.
    - `key`: for filters and sensors that draw random numbers, and for no others.
    - `info`: whether all diagnostics are returned, and not only those that cost next to nothing.
    - `recompute`: whether a backward pass computes each step again from the belief before it, which
      saves memory. None: where it is the faster way, too.
    """
    readings, observed = unmasked(readings, observed)
    inputs, readings, observed = as_arrays((inputs, readings, observed))
    check_sequence(readings, observed, inputs=inputs)
    sequence = _Sequence(prior, readings, inputs, observed, context)
    return _compiled(filt, model, sequence, key, recompute, info, _hooks.accelerated())


def sense_all(
    model: StateSpaceModel,
    readings: Any,
    observed: Any,
    inputs: Any,
    context: Context,
    *,
    key: Key | None = None,
) -> Measurement:
    """The measurements of all readings of a sequence."""
    measurements = _sense_all(model, readings, observed, inputs, context, key)
    if measurements.observed is not None:
        return measurements
    return dataclasses.replace(measurements, observed=jnp.ones(len(measurements.value), bool))


def _sense_all(model, readings, observed, inputs, context, key) -> Measurement:
    """The same, but `observed` is None where nothing is ever missing."""
    # The sensor sees all readings at once, outside of the scan: one batched network call.
    count = jax.tree.leaves(readings)[0].shape[0]
    keys, sensor = None if key is None else jr.split(key, count), unwrap(model.sensor)

    def one(reading, mask, inputs, key):
        measurement = sense(sensor, reading, mask, inputs, context, key=key)
        whole = measurement.observed is True
        return dataclasses.replace(measurement, observed=None) if whole else measurement

    return jax.vmap(one)(readings, observed, inputs, keys)


def sense_trajectory(
    model: StateSpaceModel, trajectory: Trajectory, *, key: Key | None = None
) -> tuple[StateSpaceModel, Trajectory]:
    """Does the work of the sensor beforehand: measurements take the place of readings.

    What uses both several times, as several objectives or several priors do, then runs the
    sensor once.
    """
    measurements = sense_all(
        model,
        trajectory.readings,
        trajectory.observed,
        trajectory.inputs,
        trajectory.context,
        key=key,
    )
    model = dataclasses.replace(model, sensor=Precomputed(model.sensor))
    return model, dataclasses.replace(trajectory, readings=measurements, observed=None)


def check_sequence(readings: Any, observed: Any, **others: Any) -> None:
    """Raises unless all arrays have the same number of steps and all seen readings are finite."""
    if not jax.tree.leaves(readings):
        raise ValueError("`readings` must hold at least one array with a leading time axis.")
    check_plain("readings", readings)
    check_plain("inputs", others)
    steps = jnp.shape(jax.tree.leaves(readings)[0])[:1]
    if steps == (0,):
        raise ValueError("`readings` must have one step at least, got none.")
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
    check_known_numbers("inputs", others.get("inputs"))


def check_known_numbers(
    name: str, tree: Any, axes: tuple[str, ...] = ("step",), known: Any = None
) -> None:
    """Raises unless all numbers of arrays are finite, or those that are known by a mask.

    Also raises if double precision goes to single precision and differences between steps are lost,
    as those of times since 1970 are. `axes` names the leading axes, the last of which is time.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_floating = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        if not is_concrete((leaf, known)) or not is_floating:
            continue
        array, full = np.asarray(leaf), name + jax.tree_util.keystr(path)
        bad = ~np.isfinite(array) & (True if known is None else np.asarray(known))
        if bad.any():
            place = tuple(int(number) for number in np.argwhere(bad)[0])
            names = (*axes, *["component"] * (len(place) - len(axes)))
            where = ", ".join(f"{axis} {n}" for axis, n in zip(names, place, strict=True))
            raise ValueError(
                f"`{full}` must be finite, found {int(bad.sum())} entries that are not, the first "
                f"in {where}: {array[place]}."
            )
        _check_differences(full, array, len(axes) - 1)


def _check_differences(name: str, array: np.ndarray, axis: int) -> None:
    if array.dtype != np.float64 or jnp.result_type(float) == np.float64:
        return
    differ = np.diff(array, axis=axis) != 0
    lost = differ & (np.diff(array.astype(np.float32), axis=axis) == 0)
    if 2 * lost.sum() > max(differ.sum(), 1):
        raise ValueError(
            f"`{name}` loses its differences between steps in single precision, as times since "
            "1970 do: hand over differences, like the seconds since the step before."
        )


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
        bad = ~np.isfinite(_as_jax_holds(leaf))
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


class _Sequence(NamedTuple):
    """The arguments of `run` for one sequence, under the names that a `Trajectory` has for them."""

    prior: Gaussian
    readings: Any
    inputs: Any
    observed: Any
    context: Context


def _as_jax_holds(leaf: Any) -> Any:
    """The numbers in the type that JAX turns them into: a double may be infinite as a single."""
    if getattr(leaf, "dtype", None) != np.float64 or jnp.result_type(float) == np.float64:
        return leaf
    with np.errstate(over="ignore"):
        return np.asarray(leaf).astype(np.float32)


@eqx.filter_jit
def _compiled(filt, model, sequence, key, recompute, info, accelerate) -> Filtered:
    with _hooks.acceleration(accelerate):
        return filter_trajectory(filt, model, sequence, key=key, recompute=recompute, info=info)


def filter_trajectory(
    filt: AbstractFilter[Belief],
    model: StateSpaceModel,
    trajectory: Trajectory | _Sequence,
    *,
    key: Key | None = None,
    info: bool = False,
    recompute: bool | None = None,
) -> Filtered[Belief]:
    """The body of `run`, neither checked nor compiled, for use in larger programs."""
    everything, prior, context = info, trajectory.prior, trajectory.context
    readings, observed, inputs = trajectory.readings, trajectory.observed, trajectory.inputs
    filt, model = unwrap(filt), unwrap(model).bind(context)
    sensor_key, init_key, key = (None,) * 3 if key is None else jr.split(key, 3)

    def step(belief, known):
        inputs, measurement, key = known
        if measurement.observed is None:  # known while tracing, so that masks cost nothing
            measurement = dataclasses.replace(measurement, observed=True)
        belief, info = filt.step(model, belief, measurement, inputs, key=key)
        if not everything:
            info = Info(info.finite, info.log_likelihood)
        return belief, (belief, dataclasses.replace(info, novelty=measurement.novelty))

    with full_precision():
        measurements = _sense_all(model, readings, observed, inputs, context, sensor_key)
        check_first(model, prior, inputs, measurements)
        keys = None if key is None else jr.split(key, measurements.value.shape[0])
        first, known = filt.init(model, prior, key=init_key), (inputs, measurements, keys)
        loop = functools.partial(scan_steps, step, recompute=recompute)
        wanted = _hooks.accelerated() and recompute is not False
        done = _hooks.scan(step, first, known, loop, keep=not recompute, accelerate=wanted)
        if done is None:
            done = scan_steps(step, first, known, recompute=recompute)
    _, (beliefs, diagnostics) = done
    likelihoods = diagnostics.log_likelihood
    return Filtered(beliefs, diagnostics, None if likelihoods is None else likelihoods.sum())


def check_first(model: StateSpaceModel, prior: Gaussian, inputs: Any, measurements: Any) -> None:
    """Raises unless all parts of a model agree on their shapes in the first step."""
    inputs, measurement = jax.tree.map(lambda leaf: leaf[0], (inputs, measurements))
    check_model(model, prior, inputs, measurement)
    check_modes(model, prior, inputs, measurement)
